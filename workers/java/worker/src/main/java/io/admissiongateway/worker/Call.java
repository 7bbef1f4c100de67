package io.admissiongateway.worker;

import com.google.protobuf.ByteString;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * One review by one policy. It ends once: with the policy's outcome, at its deadline, or cancelled without
 * an outcome. The latter two interrupt the policy's thread.
 */
abstract class Call {
    final Policy policy;
    final Client client;
    private final long timeoutNanos;

    /** Of a call that begins after another one. */
    private final String traceparent;

    /** JSON of the parameters of a call that begins after another one. */
    private final ByteString parameters;

    /** The call of a chain that leaves the object for this one; null for none. */
    private final Call before;

    /** Null until the call before it has ended. */
    private volatile Review review;

    private Thread thread;
    private boolean settled;

    /** Whether its policy has begun, and when; only with metrics. */
    private boolean hasBegun;

    private long begunNanos;

    /** The payload that it leaves to the calls after it; null before its end, and if there are none. */
    private Payload left;

    /** The calls after it that have not been cancelled. */
    private Set<Call> dependents = Set.of();

    /** Runs it, in a batch of its own, when the call before it has ended; null if its batch runs it. */
    private volatile Evaluator heir;

    private Future<?> timer;

    /** What is to be done if it ends before it has begun; null for nothing. */
    private Runnable abandoned;

    Call(Policy policy, Client client, Review review) {
        this.policy = policy;
        this.client = client;
        this.review = review;
        timeoutNanos = 0;
        traceparent = "";
        parameters = ByteString.EMPTY;
        before = null;
    }

    /** A call that begins when {@code before} has ended, on the object that it leaves; the timeout counts from then. */
    Call(Policy policy, Call before, long timeoutNanos, String traceparent, ByteString parameters) {
        this.parameters = parameters;
        this.policy = policy;
        client = before.client;
        this.traceparent = traceparent;
        this.before = before;
        this.timeoutNanos = timeoutNanos;
        before.addDependent(this);
    }

    /** Takes the outcome, at most once; not called if the call was cancelled. */
    abstract void answer(Outcome outcome);

    /** Whether an answer may be added now; otherwise {@code resume} is called when it may, or when none is needed. */
    abstract boolean mayAnswer(Runnable resume);

    /** Sends what was answered, if it has not gone out already. */
    abstract void flush();

    /** As {@link #flush}, by another thread, so that what is answered until then goes out too. */
    abstract void flushSoon();

    /** Whether the call before it has ended; otherwise {@code evaluator} runs it when that happens. */
    final boolean isDue(Evaluator evaluator) {
        if (before == null || review != null) {
            return true;
        }
        Payload payload;
        synchronized (before) {
            payload = before.left;
            if (payload == null) {
                heir = evaluator;
                return false;
            }
        }
        review =
                new Review(payload, policy.mutating, System.nanoTime() + timeoutNanos, traceparent)
                        .withParametersJson(parameters);
        return true;
    }

    /** Runs the policy in this thread, unless the call has ended already. */
    final void run() {
        if (!begin()) {
            return;
        }
        Outcome outcome;
        try {
            outcome = remainingNanos() > 0 ? policy.evaluate(review) : Outcome.TOO_LATE;
        } finally {
            ran();
        }
        settle(outcome);
        review.forget();
    }

    /** Cancels the call; an answer is no longer needed. */
    final void cancel() {
        cancelReview();
        if (before != null) {
            synchronized (before) {
                before.dependents.remove(this);
            }
        }
        settle(null);
        interrupt();
    }

    /** Answers that it is too late, and stops it as far as it can be stopped. */
    final void expire() {
        end(Outcome.TOO_LATE);
    }

    /** Answers with this error, and stops it as far as it can be stopped. */
    final void end(Outcome error) {
        cancelReview();
        settle(error);
        interrupt();
        flushSoon();
    }

    /** Has {@code clock} end the call at its deadline. */
    final synchronized void arm(ScheduledExecutorService clock) {
        if (!settled && timer == null && deadline() != Review.NEVER) {
            timer = clock.schedule(this::expire, Math.max(0, remainingNanos()), TimeUnit.NANOSECONDS);
        }
    }

    /** Has {@code abandoned} run when the call ends without having begun; at once, if it has ended already. */
    final void onAbandoned(Runnable abandoned) {
        synchronized (this) {
            if (!settled) {
                this.abandoned = thread == null ? abandoned : null;
                return;
            }
        }
        abandoned.run();
    }

    final synchronized boolean isSettled() {
        return settled;
    }

    /** Whether nothing is left to do so that it ends in time: it has a timer, needs none, or is in another batch. */
    final synchronized boolean isWatched() {
        return settled || timer != null || heir != null || (review != null && deadline() == Review.NEVER);
    }

    final long remainingNanos() {
        return deadline() == Review.NEVER ? Review.NEVER : deadline() - System.nanoTime();
    }

    /** Length of the JSON that it is evaluated on; it is due. */
    final int size() {
        return review.size();
    }

    private long deadline() {
        Review present = review;
        return present == null ? Review.NEVER : present.deadline();
    }

    private void cancelReview() {
        Review present = review;
        if (present != null) {
            present.cancel();
        }
    }

    /** Length of the patch that it leaves to calls after it; 0 if there are none. */
    final synchronized int leftBytes(Outcome outcome) {
        return dependents.isEmpty() || outcome.response() == null ? 0 : outcome.response().getPatch().size();
    }

    /** The calls after it that have not been cancelled. */
    final synchronized List<Call> dependents() {
        return List.copyOf(dependents);
    }

    private void handOn() {
        Evaluator evaluator = heir;
        heir = null;
        evaluator.run(new Batch(List.of(this)));
    }

    private synchronized void addDependent(Call dependent) {
        dependents = dependents.isEmpty() ? new HashSet<>() : dependents;
        dependents.add(dependent);
    }

    /** Returns the payload that it leaves with this outcome: changed if it allowed with a patch. */
    private Payload after(Outcome outcome) {
        Payload own = review.payload();
        boolean isChanged = outcome.response() != null && outcome.response().getAllowed();
        ByteString patch = isChanged ? outcome.response().getPatch() : ByteString.EMPTY;
        return patch.isEmpty() ? own : own.after(patch);
    }

    private synchronized boolean begin() {
        if (settled) {
            return false;
        }
        thread = Thread.currentThread();
        abandoned = null;
        Meter meter = policy.meter();
        if (meter != null) {
            hasBegun = true;
            begunNanos = System.nanoTime();
            meter.inFlight().inc();
        }
        return true;
    }

    private void ran() {
        synchronized (this) {
            thread = null;
        }
        // From here on this call cannot interrupt the thread. A pending interrupt must not reach the next call.
        Thread.interrupted();
    }

    private synchronized void interrupt() {
        if (thread != null) {
            thread.interrupt();
        }
    }

    private void measure(Outcome outcome) {
        Meter meter = policy.meter();
        if (meter == null) {
            return;
        }
        meter.count(outcome);
        if (hasBegun) {
            meter.inFlight().dec();
            if (outcome != null) {
                meter.duration().observe((System.nanoTime() - begunNanos) / 1e9);
            }
        }
    }

    private void settle(Outcome outcome) {
        Runnable forget;
        List<Call> waiting;
        synchronized (this) {
            if (settled) {
                return;
            }
            settled = true;
            left = outcome == null || dependents.isEmpty() ? null : after(outcome);
            measure(outcome);
            waiting =
                    dependents.isEmpty()
                            ? List.of()
                            : dependents.stream().filter(call -> call.heir != null).toList();
            forget = abandoned;
            abandoned = null;
            if (timer != null) {
                timer.cancel(false);
            }
        }
        if (forget != null) {
            forget.run();
        }
        if (outcome != null) {
            answer(outcome);
            if (!waiting.isEmpty()) {
                flush(); // the timeout of those after it counts from its verdict
                waiting.forEach(Call::handOn);
            }
        }
    }
}
