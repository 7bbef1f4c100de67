package io.admissiongateway.samples;

import io.admissiongateway.worker.Review;
import java.time.Duration;

/** Two policies that go wrong on purpose, to see what failurePolicy and timeoutSeconds do. */
final class Misbehaving {
    /** Twice the longest timeout that a webhook can have. */
    private static final Duration SLEEP = Duration.ofMinutes(1);

    private Misbehaving() {}

    static void sleeps(Review review) throws InterruptedException {
        Thread.sleep(SLEEP.toMillis()); // interrupted when nobody waits for the answer any more
    }

    static void fails(Review review) {
        throw new RuntimeException("this policy always fails (review " + review.uid() + ")");
    }
}
