package io.admissiongateway.worker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.opentelemetry.api.GlobalOpenTelemetry;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.propagation.ContextPropagators;
import io.opentelemetry.context.propagation.TextMapGetter;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.testing.exporter.InMemorySpanExporter;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;

/** A policy that continues the gateway's trace with OpenTelemetry, as in README.md. */
final class TracingTest {
    private static final String TRACE_ID = "0af7651916cd43dd8448eb211c80319c";
    private static final String SPAN_ID = "b7ad6b7169203331";

    // README.md has the lines from here.
    static final TextMapGetter<Review> SENT =
            (review, key) -> key.equals("traceparent") ? review.traceparent() : null;

    private static void knownTeam(Review review) {
        Context parent = GlobalOpenTelemetry.getPropagators().getTextMapPropagator().extract(Context.root(), review, SENT);
        Span span = GlobalOpenTelemetry.getTracer("policies").spanBuilder("known-team").setParent(parent).startSpan();
        span.end();
    }

    @Test
    void aPolicyContinuesTheTrace() {
        InMemorySpanExporter exporter = InMemorySpanExporter.create();
        GlobalOpenTelemetry.resetForTest();
        OpenTelemetrySdk.builder()
                .setTracerProvider(
                        SdkTracerProvider.builder().addSpanProcessor(SimpleSpanProcessor.create(exporter)).build())
                .setPropagators(ContextPropagators.create(W3CTraceContextPropagator.getInstance()))
                .buildAndRegisterGlobal();
        knownTeam(Review.fromJson("{}", null, null, "00-" + TRACE_ID + "-" + SPAN_ID + "-00"));
        assertEquals(List.of(), exporter.getFinishedSpanItems());
        knownTeam(Review.fromJson("{}", null, null, "00-" + TRACE_ID + "-" + SPAN_ID + "-01"));
        var span = exporter.getFinishedSpanItems().get(0);
        assertEquals(TRACE_ID, span.getTraceId());
        assertEquals(SPAN_ID, span.getParentSpanId());
    }

    @Test
    void theReadmeHasTheLines() throws Exception {
        String source =
                Files.readString(Path.of("src/test/java/io/admissiongateway/worker/TracingTest.java"))
                        .split("lines from here\\.\n")[1];
        String readme = Files.readString(Path.of("../README.md"));
        source.lines()
                .map(String::strip)
                .takeWhile(line -> !line.startsWith("span.end"))
                .filter(line -> !line.isEmpty() && !line.startsWith("private"))
                .forEach(line -> assertTrue(readme.contains(line + "\n"), line));
    }
}
