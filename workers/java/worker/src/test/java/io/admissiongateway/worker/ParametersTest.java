package io.admissiongateway.worker;

import static io.admissiongateway.worker.Gateway.batch;
import static io.admissiongateway.worker.Gateway.call;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import admissiongateway.worker.v1.Worker;
import admissiongateway.worker.v1.Worker.ReviewBatch;
import admissiongateway.worker.v1.Worker.ReviewRequest;
import admissiongateway.worker.v1.Worker.ReviewResponse;
import com.google.protobuf.ByteString;
import io.grpc.CallOptions;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import tools.jackson.databind.JsonNode;

/** Parameters of policies: on the stream and by Review. */
@Timeout(120)
final class ParametersTest {
    private static final int LONG = 60_000;
    private static final String SCHEMA = "{\"type\":\"object\"}";
    private static final int TOO_LONG = 64 * 1024 + 1;

    private final AtomicInteger count = new AtomicInteger();
    private final PolicyServer server =
            new PolicyServer()
                    .policy("shows", "", Parameters.of(SCHEMA, this::prepare), ParametersTest::show)
                    .policy("allows", "", Parameters.of(SCHEMA, given -> given), review -> {})
                    .policy("none", "", review -> {});
    private Gateway gateway;

    private Object prepare(JsonNode given) {
        count.incrementAndGet();
        if (given.has("bad")) {
            throw new IllegalStateException("no " + given.get("bad").stringValue());
        }
        return given;
    }

    private static void show(Review review) {
        review.warn(review.parameters(JsonNode.class).toString());
    }

    @BeforeEach
    void start() throws Exception {
        gateway = new Gateway(server.start("127.0.0.1:0").get(0));
    }

    @AfterEach
    void stop() throws Exception {
        gateway.close();
        server.stop(Duration.ZERO);
    }

    private static Worker.Call with(long id, String policy, int parameters) {
        return call(id, policy, LONG).toBuilder().setParameters(parameters).build();
    }

    private static Worker.Parameters value(int id, String json) {
        return Worker.Parameters.newBuilder().setId(id).setJson(ByteString.copyFromUtf8(json)).build();
    }

    private ReviewResponse review(String policy, String parameters) {
        ReviewRequest request =
                ReviewRequest.newBuilder()
                        .setPolicy(policy)
                        .setAdmissionRequest(ByteString.copyFromUtf8("{}"))
                        .setParameters(ByteString.copyFromUtf8(parameters))
                        .build();
        return ClientCalls.blockingUnaryCall(gateway.channel, Gateway.REVIEW, CallOptions.DEFAULT, request);
    }

    @Test
    void callsGetTheParametersThatTheirStreamHadForTheId() throws Exception {
        var stream = gateway.stream();
        stream.send(
                batch("{}")
                        .addParameters(value(1, "{\"a\":1}"))
                        .addParameters(value(256, "{}"))
                        .addCalls(with(1, "shows", 1))
                        .addCalls(with(2, "shows", 256))
                        .addCalls(with(3, "shows", 0)));
        stream.send(batch("{}").addCalls(with(4, "shows", 1)));
        stream.send(
                batch("{}")
                        .addParameters(value(1, "{\"a\":2}"))
                        .addCalls(with(5, "shows", 1))
                        .addCalls(with(6, "allows", 1)));
        List<String> shown = new ArrayList<>();
        for (int id = 1; id <= 6; id++) {
            ReviewResponse response = stream.verdict(id).getResponse();
            shown.addAll(response.getWarningsList());
            assertEquals(id != 3, response.getParametersApplied(), "call " + id);
        }
        assertEquals(List.of("{\"a\":1}", "{}", "{}", "{\"a\":1}", "{\"a\":2}"), shown);
        assertEquals(4, count.get());
        assertEquals("{\"a\":1}", review("shows", "{\"a\":1}").getWarnings(0));
        assertFalse(review("allows", "").getParametersApplied());
        assertEquals(4, count.get());
    }

    @Test
    void parametersThatCannotBeUsedAreAnErrorOfTheirCalls() throws Exception {
        String cannot = "the parameters of policy \"shows\" cannot be used: IllegalStateException: no wine";
        List<List<String>> cases =
                List.of(
                        List.of("shows", "[]", "parameters is to be a JSON object, found array"),
                        List.of("shows", "{\"bad\":\"wine\"}", cannot),
                        List.of("shows", "{\"bad\":\"wine\"}", cannot),
                        List.of("none", "{}", "policy \"none\" takes no parameters"),
                        List.of(
                                "shows",
                                " ".repeat(TOO_LONG),
                                "the parameters have 65537 bytes, expected at most 65536"));
        var stream = gateway.stream();
        long id = 0;
        for (List<String> one : cases) {
            StatusRuntimeException failed =
                    assertThrows(StatusRuntimeException.class, () -> review(one.get(0), one.get(1)));
            assertEquals(Status.Code.INVALID_ARGUMENT, failed.getStatus().getCode());
            assertEquals(one.get(2), failed.getStatus().getDescription());
            if (one.get(1).length() < TOO_LONG) {
                id++;
                stream.send(batch("{}").addParameters(value(1, one.get(1))).addCalls(with(id, one.get(0), 1)));
                assertEquals(one.get(2), stream.verdict(id).getError().getMessage());
            }
        }
        assertEquals(1, count.get());
        stream.send(batch("{}").addCalls(with(99, "shows", 9)));
        assertEquals(
                "the call has an id of parameters that this stream has not had",
                stream.verdict(99).getError().getMessage());
    }

    private String check(String policy, String parameters) {
        var request =
                Worker.CheckParametersRequest.newBuilder()
                        .setPolicy(policy)
                        .setParameters(ByteString.copyFromUtf8(parameters))
                        .build();
        return ClientCalls.blockingUnaryCall(gateway.channel, Gateway.CHECK, CallOptions.DEFAULT, request)
                .getProblem();
    }

    /** What CheckParameters says of a value is what the calls with it fail with. */
    @Test
    void checkParametersSaysWhyCallsWouldFail() {
        List<List<String>> cases =
                List.of(
                        List.of("shows", "{\"a\":1}"),
                        List.of("shows", ""),
                        List.of("none", ""),
                        List.of("none", "{}"),
                        List.of("shows", "[]"),
                        List.of("shows", "{"),
                        List.of("shows", "{\"bad\":\"wine\"}"),
                        List.of("shows", "{\"bad\":\"" + "wine".repeat(10_000) + "\"}"),
                        List.of("shows", " ".repeat(TOO_LONG)));
        for (List<String> one : cases) {
            String checked = check(one.get(0), one.get(1));
            String failed = "";
            try {
                review(one.get(0), one.get(1));
            } catch (StatusRuntimeException problem) {
                assertEquals(Status.Code.INVALID_ARGUMENT, problem.getStatus().getCode());
                failed = problem.getStatus().getDescription();
            }
            assertEquals(failed, checked, one.get(0));
        }
        assertEquals(4, count.get());
        Status unknown =
                assertThrows(StatusRuntimeException.class, () -> check("nobody", "{}")).getStatus();
        assertEquals(Status.Code.NOT_FOUND, unknown.getCode());
        Status called = assertThrows(StatusRuntimeException.class, () -> review("nobody", "")).getStatus();
        assertEquals(called.getDescription(), unknown.getDescription());
    }

    /** A value that takes long to prepare holds up no call with another one. */
    @Test
    void valuesArePreparedIndependently() throws Exception {
        Semaphore begun = new Semaphore(0);
        Semaphore gate = new Semaphore(0);
        Parameters parameters =
                Parameters.of(
                        "{}",
                        given -> {
                            if (given.has("slow")) {
                                begun.release();
                                gate.acquire();
                            }
                            return given;
                        });
        Policy policy = new Policy("p", "", "", false, parameters, review -> {});
        var slow =
                CompletableFuture.supplyAsync(
                        () -> String.valueOf(policy.refusal(ByteString.copyFromUtf8("{\"slow\":1}"))));
        begun.acquire();
        assertNull(policy.refusal(ByteString.EMPTY));
        gate.release();
        assertEquals("null", slow.get());
    }

    @Test
    void parametersBeyondTheBoundsEndTheStream() throws Exception {
        for (Worker.Parameters sent : List.of(value(0, "{}"), value(257, "{}"), value(1, " ".repeat(TOO_LONG)))) {
            var stream = gateway.stream();
            stream.send(ReviewBatch.newBuilder().addParameters(sent));
            Status status = stream.end();
            assertEquals(Status.Code.INVALID_ARGUMENT, status.getCode());
            assertTrue(status.getDescription().startsWith("parameters have "), status.getDescription());
        }
    }

    @Test
    void theValuesThatWereUsedLastAreKept() {
        List<Object> seen = new ArrayList<>();
        Parameters parameters = Parameters.of("{}", given -> new Object());
        Policy policy = new Policy("p", "", "", false, parameters, review -> seen.add(review.parameters(Object.class)));
        evaluate(policy, "{\"first\":1}");
        for (int number = 0; number < 2 * Policy.MAX_PREPARED; number++) {
            evaluate(policy, "{\"n\":" + number + "}");
            if (number < Policy.MAX_PREPARED) {
                evaluate(policy, "{\"first\":1}");
                assertSame(seen.get(0), seen.get(seen.size() - 1));
            }
        }
        assertEquals(Policy.MAX_PREPARED, policy.preparedCount());
        evaluate(policy, "{\"first\":1}");
        assertNotSame(seen.get(0), seen.get(seen.size() - 1));
    }

    @Test
    void theBytesOfPreparedValuesAreBounded() {
        List<Object> seen = new ArrayList<>();
        Parameters parameters = Parameters.of("{}", given -> new Object());
        Policy policy = new Policy("p", "", "", false, parameters, review -> seen.add(review.parameters(Object.class)));
        int kept = Policy.MAX_PREPARED_BYTES / (TOO_LONG - 1);
        for (int number = 0; number < kept; number++) {
            evaluate(policy, longValue(number));
        }
        evaluate(policy, longValue(0));
        assertSame(seen.get(0), seen.get(seen.size() - 1));
        evaluate(policy, "{}");
        assertEquals(kept, policy.preparedCount());
        evaluate(policy, longValue(0));
        assertSame(seen.get(0), seen.get(seen.size() - 1));
        evaluate(policy, longValue(1));
        assertNotSame(seen.get(1), seen.get(seen.size() - 1));
    }

    private static String longValue(int number) {
        String json = "{\"n\":" + number + "}";
        return json + " ".repeat(TOO_LONG - 1 - json.length());
    }

    private static void evaluate(Policy policy, String parameters) {
        Review review = Review.fromJson("{}");
        policy.evaluate(review.withParametersJson(ByteString.copyFromUtf8(parameters)));
    }

    @Test
    void listPoliciesHasTheSchemaAndWrongOnesAreRefused() {
        var request = Worker.ListPoliciesRequest.getDefaultInstance();
        var listed = ClientCalls.blockingUnaryCall(gateway.channel, Gateway.LIST, CallOptions.DEFAULT, request);
        List<String> schemas =
                listed.getPoliciesList().stream().map(Worker.Policy::getParametersSchema).toList();
        assertEquals(List.of(SCHEMA, SCHEMA, ""), schemas);
        for (String schema : List.of("{", "[]")) {
            assertThrows(IllegalArgumentException.class, () -> Parameters.of(schema, given -> given));
        }
        assertEquals(7, Review.fromJson("{}").withParameters(7).parameters(Integer.class));
    }
}
