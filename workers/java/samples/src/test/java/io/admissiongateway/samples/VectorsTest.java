package io.admissiongateway.samples;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import admissiongateway.worker.v1.Worker;
import admissiongateway.worker.v1.Worker.ReviewBatch;
import admissiongateway.worker.v1.Worker.ReviewRequest;
import admissiongateway.worker.v1.Worker.ReviewResponse;
import admissiongateway.worker.v1.Worker.Verdict;
import admissiongateway.worker.v1.Worker.VerdictBatch;
import com.google.protobuf.ByteString;
import com.google.protobuf.Message;
import io.admissiongateway.worker.PolicyServer;
import io.grpc.CallOptions;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.StreamObserver;
import jakarta.json.Json;
import java.io.IOException;
import java.io.StringReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/** The samples answer as those in all other languages do, by Review and on a stream. */
@Timeout(120)
final class VectorsTest {
    private static final Path VECTORS = Path.of("..", "..", "conformance", "admission_gateway_conformance", "samples.json");
    private static final JsonMapper MAPPER = JsonMapper.shared();
    private static final int TIMEOUT_MS = 60_000;

    private static final MethodDescriptor<ReviewRequest, ReviewResponse> REVIEW =
            method(
                    "Review",
                    MethodType.UNARY,
                    ReviewRequest.getDefaultInstance(),
                    ReviewResponse.getDefaultInstance());
    static final MethodDescriptor<ReviewBatch, VerdictBatch> STREAM =
            method(
                    "ReviewStream",
                    MethodType.BIDI_STREAMING,
                    ReviewBatch.getDefaultInstance(),
                    VerdictBatch.getDefaultInstance());

    private static PolicyServer server;
    private static ManagedChannel channel;
    private static final List<JsonNode> vectors = new ArrayList<>();

    @BeforeAll
    static void start() throws IOException {
        MAPPER.readTree(Files.readAllBytes(VECTORS)).forEach(vectors::add);
        server = Samples.server();
        String address = server.start("127.0.0.1:0").get(0);
        channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
    }

    @AfterAll
    static void stop() throws InterruptedException {
        channel.shutdownNow();
        server.stop(Duration.ZERO);
    }

    @Test
    void answersReviewsAsWritten() {
        assertTrue(vectors.size() > 50);
        for (JsonNode vector : vectors) {
            JsonNode outcome;
            try {
                ReviewRequest request =
                        ReviewRequest.newBuilder()
                                .setPolicy(vector.get("policy").stringValue())
                                .setAdmissionRequest(bytes(vector.get("request")))
                                .setNamespaceObject(bytes(vector.get("namespaceObject")))
                                .setParameters(bytes(vector.get("parameters")))
                                .build();
                CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(TIMEOUT_MS, TimeUnit.MILLISECONDS);
                outcome = answered(ClientCalls.blockingUnaryCall(channel, REVIEW, options, request));
            } catch (StatusRuntimeException problem) {
                Status status = problem.getStatus();
                outcome = failed(status.getCode().value(), status.getDescription());
            }
            check(vector, outcome);
        }
    }

    @Test
    void answersOneBatchOfAllAsWritten() throws InterruptedException {
        ReviewBatch.Builder batch = ReviewBatch.newBuilder();
        for (JsonNode vector : vectors) {
            int position = batch.getPayloadsCount();
            int parameters = 0;
            if (vector.has("parameters")) {
                parameters = batch.getParametersCount() + 1;
                batch.addParameters(
                        Worker.Parameters.newBuilder().setId(parameters).setJson(bytes(vector.get("parameters"))));
            }
            batch.addPayloads(
                            Worker.Payload.newBuilder()
                                    .setAdmissionRequest(bytes(vector.get("request")))
                                    .setNamespaceObject(bytes(vector.get("namespaceObject"))))
                    .addCalls(
                            Worker.Call.newBuilder()
                                    .setId(position)
                                    .setPayload(position)
                                    .setPolicy(vector.get("policy").stringValue())
                                    .setTimeoutMillis(TIMEOUT_MS)
                                    .setParameters(parameters));
        }
        Map<Long, Verdict> verdicts = ask(batch.build());
        assertEquals(vectors.size(), verdicts.size());
        for (int position = 0; position < vectors.size(); position++) {
            Verdict verdict = verdicts.get((long) position);
            JsonNode outcome =
                    verdict.hasError()
                            ? failed(verdict.getError().getCode(), verdict.getError().getMessage())
                            : answered(verdict.getResponse());
            check(vectors.get(position), outcome);
        }
    }

    private static void check(JsonNode vector, JsonNode found) {
        JsonNode object = vector.at("/request/object");
        assertEquals(patched(object, vector.get("outcome")), patched(object, found), vector.get("name").stringValue());
    }

    /** Returns the outcome with the object after the patch in place of the patch. */
    private static JsonNode patched(JsonNode object, JsonNode outcome) {
        JsonNode result = outcome.deepCopy();
        if (result.at("/response/patch") instanceof ArrayNode patch) {
            var operations = Json.createReader(new StringReader(patch.toString())).readArray();
            var target = Json.createReader(new StringReader(object.toString())).readObject();
            JsonNode changed = MAPPER.readTree(Json.createPatch(operations).apply(target).toString());
            ((ObjectNode) result.get("response")).set("patch", changed);
        }
        return result;
    }

    private static Map<Long, Verdict> ask(ReviewBatch batch) throws InterruptedException {
        Map<Long, Verdict> verdicts = new ConcurrentHashMap<>();
        BlockingQueue<Status> end = new LinkedBlockingQueue<>();
        StreamObserver<ReviewBatch> worker =
                ClientCalls.asyncBidiStreamingCall(
                        channel.newCall(STREAM, CallOptions.DEFAULT),
                        new StreamObserver<VerdictBatch>() {
                            @Override
                            public void onNext(VerdictBatch message) {
                                message.getVerdictsList().forEach(one -> verdicts.put(one.getId(), one));
                            }

                            @Override
                            public void onError(Throwable problem) {
                                end.add(Status.fromThrowable(problem));
                            }

                            @Override
                            public void onCompleted() {
                                end.add(Status.OK);
                            }
                        });
        worker.onNext(batch);
        worker.onCompleted();
        assertEquals(Status.OK, end.poll(TIMEOUT_MS, TimeUnit.MILLISECONDS));
        return verdicts;
    }

    private static ByteString bytes(JsonNode json) {
        return json == null ? ByteString.EMPTY : ByteString.copyFromUtf8(json.toString());
    }

    private static JsonNode failed(int code, String message) {
        ObjectNode outcome = MAPPER.createObjectNode();
        outcome.putObject("error").put("code", code).put("message", message);
        return outcome;
    }

    /** Returns the answer as the vectors are written: what is empty is absent. */
    private static JsonNode answered(ReviewResponse answer) {
        ObjectNode outcome = MAPPER.createObjectNode();
        ObjectNode response = outcome.putObject("response").put("allowed", answer.getAllowed());
        if (answer.hasStatus()) {
            Worker.Status from = answer.getStatus();
            ObjectNode status =
                    response.putObject("status")
                            .put("code", from.getCode())
                            .put("reason", from.getReason())
                            .put("message", from.getMessage());
            ArrayNode causes = status.putArray("causes");
            for (Worker.StatusCause cause : from.getCausesList()) {
                causes.addObject()
                        .put("reason", cause.getReason())
                        .put("message", cause.getMessage())
                        .put("field", cause.getField());
            }
            if (from.getRetryAfterSeconds() != 0) {
                status.put("retryAfterSeconds", from.getRetryAfterSeconds());
            }
            Map.of("name", from.getName(), "group", from.getGroup(), "kind", from.getKind(), "uid", from.getUid())
                    .forEach(
                            (name, text) -> {
                                if (!text.isEmpty()) {
                                    status.put(name, text);
                                }
                            });
        }
        if (!answer.getPatch().isEmpty()) {
            response.set("patch", MAPPER.readTree(answer.getPatch().toByteArray()));
        }
        if (answer.getWarningsCount() > 0) {
            response.set("warnings", MAPPER.valueToTree(new ArrayList<>(answer.getWarningsList())));
        }
        if (answer.getAuditAnnotationsCount() > 0) {
            response.set("auditAnnotations", MAPPER.valueToTree(answer.getAuditAnnotationsMap()));
        }
        return outcome;
    }

    private static <Q extends Message, A extends Message> MethodDescriptor<Q, A> method(
            String name, MethodType type, Q request, A response) {
        return MethodDescriptor.<Q, A>newBuilder()
                .setType(type)
                .setFullMethodName("admissiongateway.worker.v1.PolicyWorker/" + name)
                .setRequestMarshaller(ProtoUtils.marshaller(request))
                .setResponseMarshaller(ProtoUtils.marshaller(response))
                .build();
    }
}
