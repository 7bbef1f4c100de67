package io.admissiongateway.worker;

import io.grpc.Status;
import io.prometheus.metrics.core.datapoints.CounterDataPoint;
import io.prometheus.metrics.core.datapoints.DistributionDataPoint;
import io.prometheus.metrics.core.datapoints.GaugeDataPoint;

/** Counts the calls of one policy; {@link Metrics} makes it. */
record Meter(
        CounterDataPoint allowed,
        CounterDataPoint denied,
        CounterDataPoint error,
        GaugeDataPoint inFlight,
        DistributionDataPoint duration) {

    /** Counts the outcome of a call; null, and a cancelled call, has none. */
    void count(Outcome outcome) {
        if (outcome == null) {
            return;
        }
        if (outcome.error() == null) {
            (outcome.response().getAllowed() ? allowed : denied).inc();
        } else if (outcome.error().getCode() != Status.Code.CANCELLED.value()) {
            error.inc();
        }
    }
}
