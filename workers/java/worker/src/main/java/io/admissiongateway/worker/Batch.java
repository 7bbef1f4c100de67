package io.admissiongateway.worker;

import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Calls that came together, run one after the other by one thread, without a hand-over for each. When one of them
 * takes long, another thread runs the same batch and goes on with the next call.
 */
final class Batch {
    /** How long an answer waits for the next call of the batch to be run, and so to go out with it. */
    private static final long COLLECT_NANOS = TimeUnit.MILLISECONDS.toNanos(1);

    final List<? extends Call> calls;
    private final AtomicInteger next = new AtomicInteger();

    /** Who runs it; null while it waits for a thread. */
    private volatile PolicyThread runner;

    Batch(List<? extends Call> calls) {
        this.calls = calls;
    }

    /** Runs what has not been begun, in a thread of the evaluator's; hands on policies that are known to be slow. */
    void run(PolicyThread thread, Evaluator evaluator) {
        runner = thread;
        long flushed = System.nanoTime();
        Call call = null;
        int index;
        while ((index = next.getAndIncrement()) < calls.size()) {
            call = calls.get(index);
            if (!call.isDue(evaluator)) {
                continue;
            }
            if (call.policy.isSlow()) {
                evaluator.runApart(call);
                continue;
            }
            thread.current = call;
            call.run();
            thread.current = null;
            long now = System.nanoTime();
            if (now - flushed > COLLECT_NANOS) {
                call.flush();
                flushed = now;
            }
        }
        if (call != null) {
            call.flush();
        }
    }

    /** Whether the runner is stuck in a call and another one is needed for the rest; true once for each runner. */
    boolean takeFromStuckRunner() {
        PolicyThread current = runner;
        if (current == null || !current.isStuck() || next.get() >= calls.size()) {
            return false;
        }
        runner = null;
        return true;
    }

    /** Whether each call was begun, and ends in time. */
    boolean isWatched() {
        return next.get() >= calls.size() && calls.stream().allMatch(Call::isWatched);
    }
}
