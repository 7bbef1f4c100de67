package io.admissiongateway.samples;

import io.admissiongateway.worker.Review;
import java.time.Duration;

/** Two faulty policies, to demonstrate failurePolicy and timeoutSeconds. */
final class Misbehaving {
    /** Twice the longest timeout of a webhook. */
    private static final Duration SLEEP = Duration.ofMinutes(1);

    private Misbehaving() {}

    static void sleeps(Review review) throws InterruptedException {
        Thread.sleep(SLEEP.toMillis()); // interrupted when the answer is no longer needed
    }

    static void fails(Review review) {
        throw new RuntimeException("this policy always fails (review " + review.uid() + ")");
    }
}
