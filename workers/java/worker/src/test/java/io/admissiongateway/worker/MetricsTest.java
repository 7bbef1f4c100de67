package io.admissiongateway.worker;

import static io.admissiongateway.worker.Gateway.batch;
import static io.admissiongateway.worker.Gateway.call;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import admissiongateway.worker.v1.Worker.ReviewBatch;
import admissiongateway.worker.v1.Worker.ReviewRequest;
import com.google.protobuf.ByteString;
import io.grpc.CallOptions;
import io.grpc.ClientInterceptors;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import java.net.Socket;
import java.net.SocketException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Metrics, and the trace context that policies get. */
@Timeout(120)
final class MetricsTest {
    private static final String TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    private static final int LONG = 60_000;

    private final CountDownLatch go = new CountDownLatch(1);
    private final PolicyServer server =
            new PolicyServer()
                    .policy("allows", "", review -> {})
                    .policy("denies", "", review -> deny("[" + review.traceparent() + "]"))
                    .policy("fails", "", review -> Integer.parseInt("x"))
                    .policy("waits", "", review -> go.await())
                    .metricsListen("127.0.0.1:0");
    private Gateway gateway;

    @BeforeEach
    void start() throws Exception {
        gateway = new Gateway(server.start("127.0.0.1:0").get(0));
    }

    @AfterEach
    void stop() throws Exception {
        go.countDown();
        gateway.close();
        server.stop(Duration.ZERO);
        assertEquals("", server.metricsAddress());
    }

    @Test
    void reviewsAreCountedByOutcome() throws Exception {
        expect(count("allows", "allowed", 0), inFlight("waits", 0));
        Gateway.Stream stream = gateway.stream();
        stream.send(
                batch("{}")
                        .addCalls(call(1, "allows", LONG))
                        .addCalls(call(2, "denies", LONG))
                        .addCalls(call(3, "fails", LONG))
                        .addCalls(call(4, "unknown", LONG)));
        for (long id = 1; id <= 4; id++) {
            stream.verdict(id);
        }
        gateway.review("allows", "{}");
        gateway.review("denies", "{}");
        assertThrows(StatusRuntimeException.class, () -> gateway.review("fails", "{}"));
        String duration = "admission_gateway_worker_policy_duration_seconds";
        expect(
                count("allows", "allowed", 2),
                count("allows", "error", 0),
                count("denies", "denied", 2),
                count("fails", "error", 2),
                inFlight("fails", 0),
                duration + "_bucket{policy=\"allows\",le=\"+Inf\"} 2",
                duration + "_count{policy=\"denies\"} 2",
                "# TYPE process_start_time_seconds gauge");
        String text = get("/metrics").body();
        assertTrue(text.contains("build_info{runtime=\""), text);
        assertTrue(text.contains("_bucket{policy=\"allows\",le=\"2.5E-4\"}"), text);
        assertFalse(text.contains("unknown"));
    }

    @Test
    void callsInFlightAreCountedAndCancelledCallsHaveNoOutcome() throws Exception {
        Gateway.Stream stream = gateway.stream();
        stream.send(
                batch("{}")
                        .addCalls(call(1, "waits", LONG))
                        .addCalls(call(2, "waits", LONG))
                        .addCalls(call(3, "waits", 1)));
        stream.verdict(3);
        expect(inFlight("waits", 2), count("waits", "error", 1));
        stream.send(ReviewBatch.newBuilder().addCancelled(1));
        expect(inFlight("waits", 1), count("waits", "error", 1));
        go.countDown();
        expect(inFlight("waits", 0), count("waits", "allowed", 1), count("waits", "error", 1));
    }

    @Test
    void onlyTheMetricsAreServed() throws Exception {
        assertEquals(404, get("/").statusCode());
        assertEquals(200, get("/metrics?x=1").statusCode());
        HttpRequest post = request("/metrics").POST(BodyPublishers.ofString("x")).build();
        assertEquals(405, HttpClient.newHttpClient().send(post, BodyHandlers.ofString()).statusCode());
        HttpRequest large = request("/metrics").header("x", "x".repeat(10_000)).build();
        assertThrows(
                java.io.IOException.class, () -> HttpClient.newHttpClient().send(large, BodyHandlers.ofString()));
        assertEquals("text/plain; version=0.0.4; charset=utf-8", get("/metrics").headers().firstValue("content-type").get());
    }

    @Test
    void theSeventeenthConnectionIsNotServed() throws Exception {
        String[] address = server.metricsAddress().split(":");
        List<Socket> open = new ArrayList<>();
        int first = -1;
        try {
            for (int index = 0; index < 17; index++) {
                open.add(new Socket(address[0], Integer.parseInt(address[1])));
            }
            Socket last = open.get(16);
            last.getOutputStream().write("GET /metrics HTTP/1.1\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
            first = last.getInputStream().read();
        } catch (SocketException reset) {
            // It is closed, then.
        } finally {
            for (Socket socket : open) {
                socket.close();
            }
        }
        assertEquals(-1, first);
    }

    @Test
    void aTakenPortIsNamedWithItsOption() throws Exception {
        String taken = server.metricsAddress();
        PolicyServer second = new PolicyServer().policy("allows", "", review -> {}).metricsListen(taken);
        StartException problem = assertThrows(StartException.class, () -> second.start("127.0.0.1:0"));
        assertTrue(problem.getMessage().startsWith("--metrics-listen: " + taken + ": Address already in use"));
        assertThrows(IllegalArgumentException.class, () -> second.metricsListen("unix:/x"));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                TRACEPARENT,
                "",
                "garbage",
                TRACEPARENT + "0",
                "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"
            })
    void policiesGetAValidTraceparentByBothMethods(String sent) throws Exception {
        String message = "[" + (sent.equals(TRACEPARENT) ? sent : "") + "]";
        Gateway.Stream stream = gateway.stream();
        stream.send(batch("{}").addCalls(call(1, "denies", LONG).toBuilder().setTraceparent(sent)));
        assertEquals(message, stream.verdict(1).getResponse().getStatus().getMessage());
        Metadata headers = new Metadata();
        headers.put(Metadata.Key.of("traceparent", Metadata.ASCII_STRING_MARSHALLER), sent);
        var channel = ClientInterceptors.intercept(gateway.channel, MetadataUtils.newAttachHeadersInterceptor(headers));
        ReviewRequest request =
                ReviewRequest.newBuilder()
                        .setPolicy("denies")
                        .setAdmissionRequest(ByteString.copyFromUtf8("{}"))
                        .build();
        var answer = ClientCalls.blockingUnaryCall(channel, Gateway.REVIEW, CallOptions.DEFAULT, request);
        assertEquals(message, answer.getStatus().getMessage());
    }

    private static void deny(String message) {
        throw new Denied(message);
    }

    private HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(URI.create("http://" + server.metricsAddress() + path));
    }

    private HttpResponse<String> get(String path) throws Exception {
        return HttpClient.newHttpClient().send(request(path).build(), BodyHandlers.ofString());
    }

    /** Waits until the metrics have these lines. */
    private void expect(String... lines) throws Exception {
        long end = System.nanoTime() + Gateway.PATIENCE.toNanos();
        String text;
        do {
            text = get("/metrics").body();
            if (Stream.of(lines).allMatch(("\n" + text)::contains)) {
                return;
            }
            Thread.sleep(10);
        } while (System.nanoTime() < end);
        throw new AssertionError(String.join("\n", lines) + "\nare not all in\n" + text);
    }

    private static String count(String policy, String outcome, int count) {
        return String.format(
                "\nadmission_gateway_worker_policy_reviews_total{outcome=\"%s\",policy=\"%s\"} %d.0\n",
                outcome, policy, count);
    }

    private static String inFlight(String policy, int count) {
        return String.format("\nadmission_gateway_worker_policy_in_flight{policy=\"%s\"} %d.0\n", policy, count);
    }
}
