package io.admissiongateway.worker;

import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * One policy asked about one review. It ends once: with the policy's outcome, at its deadline, or cancelled without
 * an outcome. The latter two interrupt the policy's thread.
 */
abstract class Call {
    final Policy policy;
    private final Review review;
    private Thread thread;
    private boolean settled;
    private Future<?> timer;

    /** What is to be done if it ends before it has begun; null for nothing. */
    private Runnable abandoned;

    Call(Policy policy, Review review) {
        this.policy = policy;
        this.review = review;
    }

    /** Is told the outcome, at most once; not if the call was cancelled. */
    abstract void answer(Outcome outcome);

    /** Sends what was answered, if it has not gone out already. */
    abstract void flush();

    /** As {@link #flush}, by another thread, so that what is answered until then goes out too. */
    abstract void flushSoon();

    /** Runs the policy in this thread, unless the call has ended already. */
    final void run() {
        if (!begin()) {
            return;
        }
        Outcome outcome;
        try {
            outcome = remainingNanos() > 0 ? policy.evaluate(review) : Outcome.TOO_LATE;
        } finally {
            end();
        }
        settle(outcome);
    }

    /** Cancels the call; an answer is no longer needed. */
    final void cancel() {
        review.cancel();
        settle(null);
        interrupt();
    }

    /** Answers that it is too late, and stops it as far as it can be stopped. */
    final void expire() {
        review.cancel();
        settle(Outcome.TOO_LATE);
        interrupt();
        flushSoon();
    }

    /** Has {@code clock} end the call at its deadline. */
    final synchronized void arm(ScheduledExecutorService clock) {
        if (!settled && timer == null && review.deadline() != Review.NEVER) {
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

    final long remainingNanos() {
        return review.deadline() == Review.NEVER ? Review.NEVER : review.deadline() - System.nanoTime();
    }

    /** Length of the request's JSON. */
    final int size() {
        return review.size();
    }

    private synchronized boolean begin() {
        if (settled) {
            return false;
        }
        thread = Thread.currentThread();
        abandoned = null;
        return true;
    }

    private void end() {
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

    private void settle(Outcome outcome) {
        Runnable forget;
        synchronized (this) {
            if (settled) {
                return;
            }
            settled = true;
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
        }
    }
}
