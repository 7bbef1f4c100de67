package io.admissiongateway.worker;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Runs policies: a batch of calls in one thread of a pool with one thread for each CPU, and each call of a slow
 * policy in a separate thread.
 *
 * <p>While calls run, it checks every few milliseconds which have not ended. Only these get a timer for their
 * deadline, and another thread replaces a thread that is blocked. A call of microseconds therefore needs neither.
 */
final class Evaluator {
    static final long TICK_NANOS = TimeUnit.MILLISECONDS.toNanos(5);

    /** For policies that take long: mostly they wait, so many more than there are CPUs. Further calls queue. */
    private static final int MAX_APART = 256;

    private static final int CPUS = Runtime.getRuntime().availableProcessors();

    private final Set<PolicyThread> threads = ConcurrentHashMap.newKeySet();
    private final ThreadPoolExecutor pool =
            new ThreadPoolExecutor(
                    CPUS, CPUS, 1, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), this::newThread);
    private final ThreadPoolExecutor apart =
            new ThreadPoolExecutor(
                    MAX_APART, MAX_APART, 5, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), this::newThreadApart);
    private final ScheduledThreadPoolExecutor clock = new ScheduledThreadPoolExecutor(1, this::newClock);
    private final AtomicBoolean ticking = new AtomicBoolean();

    /** Batches that came since the last tick. */
    private final Queue<Batch> fresh = new ConcurrentLinkedQueue<>();

    /** Batches that came before it; only the tick looks at them. */
    private final List<Batch> aged = new ArrayList<>();

    Evaluator() {
        apart.allowCoreThreadTimeOut(true);
        clock.setRemoveOnCancelPolicy(true);
    }

    /** Runs the calls, in other threads; does not wait. */
    void run(Batch batch) {
        for (Call call : batch.calls) {
            if (call.remainingNanos() < 2 * TICK_NANOS) {
                call.arm(clock);
            }
        }
        fresh.add(batch);
        submit(batch);
        if (ticking.compareAndSet(false, true)) {
            later(this::tick, TICK_NANOS);
        }
    }

    /** Runs one call in a thread of its own. */
    void runApart(Call call) {
        Runnable work =
                () -> {
                    long started = System.nanoTime();
                    call.run();
                    call.policy.ran(System.nanoTime() - started);
                    call.flushSoon();
                };
        if (runApart(work)) {
            // Threads that never come back are to keep no call, with its review, longer than it is in flight.
            call.onAbandoned(() -> apart.remove(work));
        } else {
            call.cancel();
        }
    }

    /** Runs something that may take long, in a thread of slow policies; returns false if this is closed. */
    boolean runApart(Runnable work) {
        try {
            apart.execute(work);
            return true;
        } catch (RejectedExecutionException closed) {
            return false;
        }
    }

    /** Runs something soon in a thread that must not be held up; never, if this is closed by then. */
    void later(Runnable work, long nanos) {
        try {
            clock.schedule(work, nanos, TimeUnit.NANOSECONDS);
        } catch (RejectedExecutionException closed) {
            // The server has stopped, so the result is not needed.
        }
    }

    /** Stops running calls and waits for their end, for {@code nanos} at most; returns how many are left. */
    int close(long nanos) throws InterruptedException {
        clock.shutdownNow();
        pool.shutdownNow();
        apart.shutdownNow();
        long end = System.nanoTime() + nanos;
        pool.awaitTermination(nanos, TimeUnit.NANOSECONDS);
        apart.awaitTermination(Math.max(0, end - System.nanoTime()), TimeUnit.NANOSECONDS);
        return pool.getActiveCount() + apart.getActiveCount();
    }

    private void submit(Batch batch) {
        try {
            pool.execute(() -> batch.run((PolicyThread) Thread.currentThread(), this));
        } catch (RejectedExecutionException closed) {
            batch.calls.forEach(Call::cancel);
        }
    }

    private void tick() {
        boolean isIdle = false;
        try {
            isIdle = lookAtAll();
        } catch (Throwable problem) { // an Error too, for want of memory or threads: without ticks no call times out
            Log.error("looking after calls failed", problem);
        }
        if (!isIdle) {
            later(this::tick, TICK_NANOS);
        }
    }

    /** Does what is due; returns whether nothing is left to look at. */
    private boolean lookAtAll() {
        int stuck = 0;
        for (PolicyThread thread : threads) {
            thread.look();
            stuck += thread.isStuck() ? 1 : 0;
        }
        resize(CPUS + Math.min(stuck, MAX_APART));
        for (Iterator<Batch> batches = aged.iterator(); batches.hasNext(); ) {
            Batch batch = batches.next();
            for (Call call : batch.calls) {
                call.arm(clock);
            }
            if (batch.takeFromStuckRunner()) {
                submit(batch);
            } else if (batch.isWatched()) {
                batches.remove();
            }
            batch.calls.get(0).flush();
        }
        for (Batch batch; (batch = fresh.poll()) != null; ) {
            if (!batch.calls.stream().allMatch(Call::isSettled)) {
                aged.add(batch);
            }
        }
        boolean isIdle = aged.isEmpty() && stuck == 0 && pool.getCorePoolSize() == CPUS;
        if (isIdle) {
            ticking.set(false);
            // A batch that came in between saw a clock that ticks.
            isIdle = fresh.isEmpty() || !ticking.compareAndSet(false, true);
        }
        return isIdle;
    }

    private void resize(int size) {
        if (size > pool.getCorePoolSize()) {
            pool.setMaximumPoolSize(size);
            pool.setCorePoolSize(size);
        } else if (size < pool.getCorePoolSize()) {
            pool.setCorePoolSize(size);
            pool.setMaximumPoolSize(size);
        }
    }

    private Thread newThread(Runnable work) {
        return new PolicyThread(work, threads);
    }

    private Thread newThreadApart(Runnable work) {
        return daemon(work, "slow-policy");
    }

    private Thread newClock(Runnable work) {
        return daemon(work, "policy-clock");
    }

    static Thread daemon(Runnable work, String name) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        return thread;
    }
}
