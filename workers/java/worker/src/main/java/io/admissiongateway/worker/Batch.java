package io.admissiongateway.worker;

import java.util.List;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Calls that came together, begun one after the other by one thread at a time, without a hand-over for each. When one
 * of them takes long, another thread goes on with the next call.
 */
final class Batch {
    /** How long an answer waits for the next call of the batch to be run, and so to go out with it. */
    private static final long COLLECT_NANOS = TimeUnit.MILLISECONDS.toNanos(1);

    /** How long a batch has a thread, if others wait for one. */
    private static final long SLICE_NANOS = TimeUnit.MILLISECONDS.toNanos(4);

    final List<? extends Call> calls;

    /** The first call that has not begun. */
    private volatile int next;

    /** How many calls from the first on need no look any more. */
    private int watched;

    /** The turn of the next call to be evaluated; null if it has asked for none. */
    private Turns.Waiter turn;

    /** The thread in a call, from which the rest can be taken; null between calls. */
    private final AtomicReference<PolicyThread> runner = new AtomicReference<>();

    Batch(List<? extends Call> calls) {
        this.calls = calls;
    }

    Client client() {
        return calls.get(0).client;
    }

    /**
     * Runs what has not been begun, in a thread of the evaluator's, until the slice ends or there is no room: then
     * the evaluator is asked for another turn. Hands on policies that are known to be slow.
     */
    void run(PolicyThread thread, Evaluator evaluator) {
        long began = System.nanoTime();
        long flushed = began;
        Call call = calls.get(0);
        while (next < calls.size()) {
            call = calls.get(next);
            if (turn == null && (call.isSettled() || !call.isDue(evaluator))) {
                next++;
                continue;
            }
            if (turn == null && !(call.mayAnswer(() -> evaluator.submit(this)) && mayEvaluate(call, evaluator))) {
                call.flush();
                return;
            }
            Turns.Waiter room = turn;
            turn = null;
            next++;
            if (!room.hasTurn()) {
                continue;
            }
            if (call.policy.isSlow()) {
                evaluator.runApart(call, room);
                continue;
            }
            runner.set(thread);
            thread.current = call;
            try {
                call.run();
            } finally {
                thread.current = null;
                evaluator.evaluated.give(room);
            }
            if (!runner.compareAndSet(thread, null)) {
                break;
            }
            long now = System.nanoTime();
            if (now - flushed > COLLECT_NANOS) {
                call.flush();
                flushed = now;
            }
            if (now - began > SLICE_NANOS && next < calls.size() && evaluator.isWanted()) {
                call.flush();
                evaluator.submit(this);
                return;
            }
        }
        call.flush();
    }

    /** Whether there is room for the next call; otherwise this is submitted when there is, or when the call ends. */
    private boolean mayEvaluate(Call call, Evaluator evaluator) {
        Turns.Waiter room = new Turns.Waiter(call.client, call.size(), told -> evaluator.submit(this));
        turn = room;
        if (evaluator.evaluated.take(room)) {
            return true;
        }
        // From here on another thread may run it.
        call.onAbandoned(() -> evaluator.evaluated.giveUp(room));
        return false;
    }

    /** Whether the runner is stuck in a call and another one is needed for the rest; true once for each runner. */
    boolean takeFromStuckRunner() {
        PolicyThread current = runner.get();
        boolean isNeeded = current != null && current.isStuck() && next < calls.size();
        return isNeeded && runner.compareAndSet(current, null);
    }

    /** Has {@code clock} end the calls in time; returns whether each has begun, and nothing is left to look at. */
    boolean watch(ScheduledExecutorService clock) {
        for (int index = watched; index < calls.size(); index++) {
            Call call = calls.get(index);
            call.arm(clock);
            watched += index == watched && call.isWatched() ? 1 : 0;
        }
        return watched == calls.size() && next >= calls.size();
    }
}
