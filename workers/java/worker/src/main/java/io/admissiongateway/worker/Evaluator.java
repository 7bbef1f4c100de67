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
 * policy in a separate thread. Clients take turns for threads, and for the bytes that are evaluated.
 *
 * <p>While calls run, it checks every few milliseconds which have not ended. Only these get a timer for their
 * deadline, and another thread replaces a thread that is blocked. A call of microseconds therefore needs neither.
 */
final class Evaluator {
    static final long TICK_NANOS = TimeUnit.MILLISECONDS.toNanos(5);

    /**
     * For policies that take long: mostly they wait, so many more than there are CPUs. A client gets at most half of
     * what the others leave; further calls wait.
     */
    static final int MAX_APART = 512;

    /** Limit of the JSON that is evaluated at a time: it takes several times as much when it is parsed. */
    static final int MAX_EVALUATED_BYTES = 32 * 1024 * 1024;

    private static final int CPUS = Runtime.getRuntime().availableProcessors();

    final Turns evaluated = new Turns(Turns.Kind.EVALUATED, MAX_EVALUATED_BYTES, true);
    private final Turns pooled = new Turns(Turns.Kind.THREADS, CPUS, false);
    private final Turns parted = new Turns(Turns.Kind.THREADS_APART, MAX_APART, true);
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

    /** Runs one call in a thread of its own, and then gives back the room that it is evaluated in. */
    void runApart(Call call, Turns.Waiter room) {
        Runnable work =
                () -> {
                    long started = System.nanoTime();
                    call.run();
                    call.policy.ran(System.nanoTime() - started);
                    call.flushSoon();
                };
        Turns.Waiter thread = runApart(call.client, work, call::cancel, () -> evaluated.give(room));
        // Threads that never come back are to keep no call, with its review, longer than it is in flight.
        call.onAbandoned(() -> parted.giveUp(thread));
    }

    /**
     * Runs something that may take long in a thread of slow policies, when it is the turn of the client.
     *
     * @param refused is called if this is closed by then
     * @param ended is called in the end, whatever happened
     * @return what waits for the turn
     */
    Turns.Waiter runApart(Client client, Runnable work, Runnable refused, Runnable ended) {
        Turns.Waiter thread =
                new Turns.Waiter(
                        client,
                        1,
                        told -> {
                            if (!told.hasTurn()) {
                                ended.run();
                                return;
                            }
                            Runnable whole = () -> runThen(work, () -> end(told, ended));
                            if (!isExecuted(apart, whole)) {
                                runThen(refused, () -> end(told, ended));
                            }
                        });
        parted.await(thread);
        return thread;
    }

    private void end(Turns.Waiter apart, Runnable ended) {
        parted.give(apart);
        ended.run();
    }

    private static void runThen(Runnable work, Runnable ended) {
        try {
            work.run();
        } finally {
            ended.run();
        }
    }

    private static boolean isExecuted(ThreadPoolExecutor pool, Runnable work) {
        try {
            pool.execute(work);
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

    /** Has a thread of the pool run a batch, when it is the turn of its client. */
    void submit(Batch batch) {
        pooled.await(
                new Turns.Waiter(
                        batch.client(),
                        1,
                        told -> {
                            Runnable work = () -> batch.run((PolicyThread) Thread.currentThread(), this);
                            if (!isExecuted(pool, () -> runThen(work, () -> pooled.give(told)))) {
                                batch.calls.forEach(Call::cancel);
                            }
                        }));
    }

    /** Whether a batch waits for a thread of the pool. */
    boolean isWanted() {
        return pooled.isWanted();
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
            boolean isWatched = batch.watch(clock);
            if (batch.takeFromStuckRunner()) {
                submit(batch);
            } else if (isWatched) {
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
        } else {
            return;
        }
        pooled.setLimit(size);
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
