package io.admissiongateway.worker;

import io.prometheus.metrics.core.metrics.Counter;
import io.prometheus.metrics.core.metrics.Gauge;
import io.prometheus.metrics.core.metrics.Histogram;
import io.prometheus.metrics.core.metrics.Info;
import io.prometheus.metrics.expositionformats.PrometheusTextFormatWriter;
import io.prometheus.metrics.instrumentation.jvm.ProcessMetrics;
import io.prometheus.metrics.model.registry.PrometheusRegistry;
import java.io.ByteArrayOutputStream;
import java.io.IOException;

/** The metrics of a worker, in Prometheus' text format. */
final class Metrics {
    static final String TYPE = PrometheusTextFormatWriter.CONTENT_TYPE;

    /** Upper bounds of the duration histogram, the same in the SDKs of all languages. */
    private static final double[] BOUNDS_SECONDS = {
        0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10
    };

    private final PrometheusRegistry registry = new PrometheusRegistry();
    private final PrometheusTextFormatWriter format = PrometheusTextFormatWriter.create();
    private final Counter reviews =
            Counter.builder()
                    .name("admission_gateway_worker_policy_reviews_total")
                    .help("Reviews by outcome; error: the policy failed or exceeded its deadline.")
                    .labelNames("policy", "outcome")
                    .withoutExemplars()
                    .register(registry);
    private final Gauge inFlight =
            Gauge.builder()
                    .name("admission_gateway_worker_policy_in_flight")
                    .help("Reviews whose policy has begun and that have no answer yet.")
                    .labelNames("policy")
                    .register(registry);
    private final Histogram duration =
            Histogram.builder()
                    .name("admission_gateway_worker_policy_duration_seconds")
                    .help("Time from the begin of a policy to its answer.")
                    .labelNames("policy")
                    .withoutExemplars()
                    .classicOnly()
                    .classicUpperBounds(BOUNDS_SECONDS)
                    .register(registry);

    Metrics() {
        String version = Metrics.class.getPackage().getImplementationVersion();
        Info.builder()
                .name("admission_gateway_worker_build_info")
                .help("The SDK of the worker.")
                .labelNames("sdk", "version", "runtime")
                .register(registry)
                .setLabelValues("java", version == null ? "devel" : version, System.getProperty("java.version"));
        ProcessMetrics.builder().register(registry);
    }

    /** Returns what counts the calls of a policy; its series are there from now on. */
    Meter meter(String policy) {
        return new Meter(
                reviews.labelValues(policy, "allowed"),
                reviews.labelValues(policy, "denied"),
                reviews.labelValues(policy, "error"),
                inFlight.labelValues(policy),
                duration.labelValues(policy));
    }

    byte[] text() throws IOException {
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        format.write(text, registry.scrape());
        return text.toByteArray();
    }
}
