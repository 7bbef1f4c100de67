package io.admissiongateway.worker;

import io.grpc.Status;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;

/** Counts the calls of one policy, for {@link MetricsServer}. */
final class Meter {
    /** Upper bounds of the duration histogram in microseconds, the same in the SDKs of all languages. */
    static final long[] BOUNDS_MICROS = {
        100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
        5_000_000, 10_000_000
    };

    final LongAdder allowed = new LongAdder();
    final LongAdder denied = new LongAdder();
    final LongAdder error = new LongAdder();
    final LongAdder inFlight = new LongAdder();
    final LongAdder nanos = new LongAdder();

    /** Durations up to each bound and above the one before; the last: above all bounds. */
    final LongAdder[] durations = new LongAdder[BOUNDS_MICROS.length + 1];

    Meter() {
        for (int index = 0; index < durations.length; index++) {
            durations[index] = new LongAdder();
        }
    }

    /** Counts the outcome of a call; null, and a cancelled call, has none. */
    void count(Outcome outcome) {
        if (outcome == null) {
            return;
        }
        if (outcome.error() == null) {
            (outcome.response().getAllowed() ? allowed : denied).increment();
        } else if (outcome.error().getCode() != Status.Code.CANCELLED.value()) {
            error.increment();
        }
    }

    /** Counts how long a call took that has an outcome. */
    void took(long tookNanos) {
        int bucket = 0;
        while (bucket < BOUNDS_MICROS.length && tookNanos > TimeUnit.MICROSECONDS.toNanos(BOUNDS_MICROS[bucket])) {
            bucket++;
        }
        durations[bucket].increment();
        nanos.add(tookNanos);
    }
}
