package io.admissiongateway.worker;

import static io.admissiongateway.worker.Gateway.batch;
import static io.admissiongateway.worker.Gateway.call;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import admissiongateway.worker.v1.Worker;
import admissiongateway.worker.v1.Worker.ReviewBatch;
import admissiongateway.worker.v1.Worker.Verdict;
import io.grpc.Status;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.Semaphore;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/** Calls that are evaluated on the object that an earlier call of their batch leaves. */
@Timeout(120)
final class ChainTest {
    private static final int LONG = 60_000;
    private static final List<String> POLICIES =
            List.of("changes", "waits a little", "explicit", "broken", "denied", "failed", "validating");

    private final Semaphore gate = new Semaphore(0);
    private final PolicyServer server =
            new PolicyServer()
                    .policy("allows", "", review -> {})
                    .policy("waits", "", review -> gate.acquire())
                    .policy("validating", "", review -> extend(review, 1))
                    .mutating("changes", "", review -> extend(review, 1))
                    .mutating(
                            "waits a little",
                            "",
                            review -> {
                                Thread.sleep(1);
                                extend(review, 2);
                            })
                    .mutating("explicit", "", ChainTest::explicit)
                    .mutating("broken", "", ChainTest::broken)
                    .mutating(
                            "denied",
                            "",
                            review -> {
                                extend(review, 1);
                                throw new Denied("no");
                            })
                    .mutating(
                            "failed",
                            "",
                            review -> {
                                extend(review, 1);
                                throw new IllegalStateException("broken");
                            });
    private Gateway gateway;

    @BeforeEach
    void start() throws Exception {
        gateway = new Gateway(server.start("127.0.0.1:0").get(0));
    }

    @AfterEach
    void stop() throws Exception {
        gateway.close();
        server.stop(Duration.ZERO);
    }

    /** Warns with the request that the policy gets, and adds to the list in the object. */
    private static void extend(Review review, int number) {
        review.warn(review.request().toString());
        assertTrue(Json.same(review.request().get("object"), review.object()));
        // A float is a double or a decimal once it was sent.
        ((ArrayNode) review.object().get("list")).add(number).add(0.25f).addPOJO(List.of(number));
    }

    private static void explicit(Review review) {
        extend(review, 3);
        review.patch().add("/list/0", 7).replace("/last", true);
    }

    private static void broken(Review review) {
        extend(review, 4);
        review.patch().remove("/list").remove("/absent");
    }

    /** Returns the object that one of the policies leaves. */
    private static ObjectNode model(String policy, ObjectNode object) {
        ObjectNode left = object.deepCopy();
        ArrayNode list = (ArrayNode) left.get("list");
        switch (policy) {
            case "changes" -> list.add(1).add(0.25).addArray().add(1);
            case "waits a little" -> list.add(2).add(0.25).addArray().add(2);
            case "explicit" -> {
                list.insert(0, 7);
                left.put("last", true);
            }
            default -> {}
        }
        return left;
    }

    private static Worker.Call after(long before, long id, String policy) {
        return call(id, policy, LONG).toBuilder().setAfter(before).build();
    }

    @Test
    void eachCallGetsTheObjectThatTheCallBeforeItLeaves() throws Exception {
        Random random = new Random(1);
        var stream = gateway.stream();
        long first = 1;
        for (int round = 0; round < 100; round++) {
            ObjectNode request =
                    Json.readObject("it", "{\"object\": {\"list\": [1.50]}, \"oldObject\": {}}".getBytes(StandardCharsets.UTF_8));
            ReviewBatch.Builder batch = batch(request.toString());
            List<ObjectNode> objects = new ArrayList<>(List.of((ObjectNode) request.get("object")));
            List<String> policies = new ArrayList<>();
            List<JsonNode> expected = new ArrayList<>();
            int count = 1 + random.nextInt(12);
            for (int index = 0; index < count; index++) {
                int before = random.nextInt(index + 1); // 0: none
                String policy = POLICIES.get(random.nextInt(POLICIES.size()));
                batch.addCalls(after(before == 0 ? 0 : first + before - 1, first + index, policy));
                request.set("object", objects.get(before));
                policies.add(policy);
                expected.add(request.deepCopy());
                objects.add(model(policy, objects.get(before)));
            }
            stream.send(batch);
            for (int index = 0; index < count; index++) {
                Verdict verdict = stream.verdict(first + index);
                assertEquals(batch.getCalls(index).getAfter() != 0, verdict.getChained());
                if (policies.get(index).equals("failed")) {
                    assertEquals("IllegalStateException: broken", verdict.getError().getMessage());
                } else {
                    JsonNode found = Json.MAPPER.readTree(verdict.getResponse().getWarnings(0));
                    assertTrue(Json.same(expected.get(index), found), () -> "found " + found);
                }
            }
            first += count;
        }
    }

    @Test
    void aVerdictDoesNotWaitForTheEndOfItsChain() throws Exception {
        var stream = gateway.stream();
        stream.send(
                batch("{\"object\": {\"list\": []}}")
                        .addCalls(call(1, "changes", LONG))
                        .addCalls(after(1, 2, "waits"))
                        .addCalls(after(2, 3, "changes")));
        stream.verdict(1);
        stream.halfClose();
        assertEquals(Set.of(1L), stream.verdicts.keySet());
        gate.release();
        assertTrue(stream.verdict(2).getResponse().getAllowed());
        assertTrue(stream.verdict(3).getResponse().getWarnings(0).contains("0.25"));
        assertEquals(Status.OK, stream.end());
    }

    @Test
    void theTimeoutCountsFromTheVerdictOfTheCallBefore() throws Exception {
        var stream = gateway.stream();
        ReviewBatch.Builder batch = batch("{\"object\": {}}").addCalls(call(1, "waits", 300));
        for (int id = 2; id <= 3; id++) {
            batch.addCalls(after(id - 1, id, "waits").toBuilder().setTimeoutMillis(300));
        }
        stream.send(batch.addCalls(after(3, 4, "allows").toBuilder().setTimeoutMillis(300)));
        for (int id = 1; id <= 3; id++) {
            assertEquals(Status.Code.DEADLINE_EXCEEDED.value(), stream.verdict(id).getError().getCode());
        }
        assertTrue(stream.verdict(4).getResponse().getAllowed());
    }

    @Test
    void aCancelledCallCancelsThoseAfterItAndNoOther() throws Exception {
        var stream = gateway.stream();
        stream.send(
                batch("{}")
                        .addCalls(call(1, "waits", LONG))
                        .addCalls(after(1, 2, "allows"))
                        .addCalls(after(2, 3, "allows"))
                        .addCalls(after(1, 4, "allows"))
                        .addCalls(call(11, "waits", LONG))
                        .addCalls(after(11, 12, "allows"))
                        .addCalls(after(12, 13, "allows"))
                        .addCalls(after(11, 14, "allows"))
                        .addCalls(call(21, "allows", LONG))
                        .addCalls(after(21, 22, "allows"))
                        .addCancelled(21));
        stream.send(ReviewBatch.newBuilder().addCancelled(1).addCancelled(12));
        // The ids are free again.
        ReviewBatch.Builder again = batch("{}");
        Set.of(1, 2, 3, 4, 12, 13, 21, 22).forEach(id -> again.addCalls(call(id, "allows", LONG)));
        stream.send(again);
        for (long id : List.of(1L, 2L, 3L, 4L, 12L, 13L, 21L, 22L)) {
            assertTrue(stream.verdict(id).getResponse().getAllowed());
        }
        gate.release(2);
        stream.verdict(11);
        stream.verdict(14);
        stream.halfClose();
        assertEquals(Status.OK, stream.end());
        assertEquals(10, stream.verdicts.size());
    }

    @Test
    void aCallAfterNoEarlierCallOfItsPayloadIsRefused() throws Exception {
        var stream = gateway.stream();
        stream.send(batch("{}").addCalls(call(1, "waits", LONG)));
        stream.send(
                batch("{}")
                        .addPayloads(Worker.Payload.newBuilder())
                        .addCalls(after(1, 2, "allows"))
                        .addCalls(after(3, 3, "allows"))
                        .addCalls(after(5, 4, "allows"))
                        .addCalls(call(5, "allows", LONG))
                        .addCalls(after(5, 6, "allows").toBuilder().setPayload(1))
                        .addCalls(after(5, 7, "allows")));
        for (long id : List.of(2L, 3L, 4L, 6L)) {
            assertEquals(Status.Code.INVALID_ARGUMENT.value(), stream.verdict(id).getError().getCode());
        }
        assertEquals(
                "no earlier call of the batch has the id 1 and the same payload",
                stream.verdict(2).getError().getMessage());
        assertTrue(stream.verdict(7).getResponse().getAllowed());
        gate.release();
    }

    @Test
    void patchesMeanWhatTheyMeanForKubeApiserver() {
        String before = "{'a': {'b/c': 1}, 'l': [1, 2]}";
        List<List<String>> cases =
                List.of(
                        List.of("{'op': 'add', 'path': '/l/1', 'value': 9}", "{'a': {'b/c': 1}, 'l': [1, 9, 2]}"),
                        List.of("{'op': 'add', 'path': '/l/-', 'value': 9}", "{'a': {'b/c': 1}, 'l': [1, 2, 9]}"),
                        List.of("{'op': 'add', 'path': '/l/-1', 'value': 9}", "{'a': {'b/c': 1}, 'l': [1, 2, 9]}"),
                        List.of("{'op': 'add', 'path': 'x/a/~0', 'value': 9}", "{'a': {'b/c': 1, '~': 9}, 'l': [1, 2]}"),
                        List.of("{'op': 'add', 'path': '/a'}", "{'a': null, 'l': [1, 2]}"),
                        List.of("{'op': 'replace', 'path': '/x', 'value': 9}", "{'a': {'b/c': 1}, 'l': [1, 2], 'x': 9}"),
                        List.of("{'op': 'replace', 'path': '/l/+0', 'value': 9}", "{'a': {'b/c': 1}, 'l': [9, 2]}"),
                        List.of("{'op': 'replace', 'path': '', 'value': {}}", "{}"),
                        List.of("{'op': 'remove', 'path': '/l/-2'}", "{'a': {'b/c': 1}, 'l': [2]}"),
                        List.of("{'op': 'move', 'from': '/a/b~1c', 'path': '/l/0'}", "{'a': {}, 'l': [1, 1, 2]}"),
                        List.of("{'op': 'copy', 'from': '/x', 'path': '/a'}", "{'a': null, 'l': [1, 2]}"),
                        List.of("{'op': 'test', 'path': '/l/1', 'value': 2}", before),
                        List.of("{'op': 'test', 'path': '/x'}", before));
        for (List<String> one : cases) {
            JsonNode found = JsonPatch.apply(json(before), json("[" + one.get(0) + "]"));
            assertTrue(Json.same(json(one.get(1)), found), () -> one + ": " + found);
        }
        for (String path : List.of("", "x", "/l/3", "/l/x", "/x/y", "/l/0/y", "/a/b~1c/y")) {
            JsonNode operations = json("[{'op': 'add', 'path': '" + path + "', 'value': 9}]");
            assertThrows(IllegalArgumentException.class, () -> JsonPatch.apply(json(before), operations), path);
        }
        for (String odd :
                List.of(
                        "null",
                        "{}",
                        "{'op': 'merge', 'path': '/a'}",
                        "{'op': 'remove', 'path': '/x'}",
                        "{'op': 'replace', 'path': '', 'value': 1}",
                        "{'op': 'replace', 'path': '/l/-', 'value': 1}",
                        "{'op': 'test', 'path': '/l/0', 'value': 2}",
                        "{'op': 'copy', 'path': '/a'}")) {
            JsonNode operations = json("[" + odd + "]");
            assertThrows(IllegalArgumentException.class, () -> JsonPatch.apply(json(before), operations), odd);
        }
    }

    private static JsonNode json(String text) {
        return Json.MAPPER.readTree(text.replace('\'', '"'));
    }
}
