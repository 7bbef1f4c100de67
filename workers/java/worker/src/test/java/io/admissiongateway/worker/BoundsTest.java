package io.admissiongateway.worker;

import static io.admissiongateway.worker.Gateway.batch;
import static io.admissiongateway.worker.Gateway.call;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import admissiongateway.worker.v1.Worker;
import admissiongateway.worker.v1.Worker.ReviewBatch;
import admissiongateway.worker.v1.Worker.VerdictBatch;
import com.google.protobuf.ByteString;
import com.google.protobuf.UnknownFieldSet;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import tools.jackson.databind.node.ObjectNode;

/** No message and no client takes all of a worker's memory, or stops it for others. */
@Timeout(120)
final class BoundsTest {
    private static final int LONG = 60_000;

    private final Semaphore gate = new Semaphore(0);
    private final PolicyServer server =
            new PolicyServer()
                    .policy("allows", "", review -> {})
                    .policy("waits", "", this::await)
                    .policy("chats", "", review -> review.warn("x".repeat(3 * 1024 * 1024)))
                    .mutating("marks", "", this::mark);
    private volatile WeakReference<Object> marked;
    private Gateway gateway;
    private Gateway other;

    private final AtomicInteger waiting = new AtomicInteger();
    private final AtomicInteger mostWaiting = new AtomicInteger();

    private void await(Review review) throws InterruptedException {
        mostWaiting.accumulateAndGet(waiting.incrementAndGet(), Math::max);
        try {
            gate.acquire();
        } finally {
            waiting.decrementAndGet();
        }
    }

    private void mark(Review review) {
        ((ObjectNode) review.object()).put("marked", true);
        marked = new WeakReference<>(review.object());
    }

    @BeforeEach
    void start() throws Exception {
        String address = server.start("127.0.0.1:0").get(0);
        gateway = new Gateway(address);
        other = new Gateway(address);
    }

    @AfterEach
    void stop() throws Exception {
        gateway.close();
        other.close();
        server.stop(Duration.ZERO);
    }

    @Test
    void theElementsOfABatchAreCountedBeforeItIsDecoded() throws Exception {
        Map<String, ReviewBatch.Builder> excess = new HashMap<>();
        for (int count : new int[] {4096, 4097}) {
            ReviewBatch.Builder payloads = ReviewBatch.newBuilder();
            ReviewBatch.Builder cancelled = ReviewBatch.newBuilder();
            ReviewBatch.Builder calls = batch("{}");
            for (int index = 0; index < count; index++) {
                payloads.addPayloads(Worker.Payload.getDefaultInstance());
                cancelled.addCancelled(1000L * index);
                calls.addCalls(call(2L * index, "nobody", LONG)).addCalls(call(2L * index + 1, "nobody", LONG));
            }
            ReviewBatch.Builder parameters = ReviewBatch.newBuilder();
            for (int index = 0; index < count - 3840; index++) {
                parameters.addParameters(
                        Worker.Parameters.newBuilder().setId(1).setJson(ByteString.copyFromUtf8("{}")));
            }
            String than = ", expected at most ";
            excess.put(count + " payloads" + than + 4096, payloads);
            excess.put(count + " cancelled ids" + than + 4096, cancelled);
            excess.put(2 * count + " calls" + than + 8192, calls);
            excess.put(count - 3840 + " parameters" + than + 256, parameters);
        }
        for (Map.Entry<String, ReviewBatch.Builder> one : excess.entrySet()) {
            String[] words = one.getKey().split("[ ,]+");
            boolean isAccepted = words[0].equals(words[words.length - 1]);
            assertEquals(
                    isAccepted ? null : "a ReviewBatch has " + one.getKey(),
                    BatchBounds.excess(one.getValue().build().toByteArray()));
        }
        var stream = gateway.stream();
        stream.send(excess.get("4097 payloads, expected at most 4096"));
        assertEquals(Status.Code.INVALID_ARGUMENT, stream.end().getCode());
        var next = gateway.stream();
        next.send(batch("{}").addCalls(call(1, "allows", LONG)));
        assertTrue(next.verdict(1).getResponse().getAllowed());
    }

    @Test
    void aCallThatHasEndedKeepsNoCopyWhileOthersOfItsBatchGoOn() throws Exception {
        var stream = gateway.stream();
        stream.send(
                batch("{\"object\": {}}").addCalls(call(1, "marks", LONG)).addCalls(call(2, "waits", LONG)));
        stream.verdict(1);
        for (int attempt = 0; attempt < 200 && marked.get() != null; attempt++) {
            System.gc();
            Thread.sleep(20);
        }
        assertNull(marked.get());
        gate.release();
        assertTrue(stream.verdict(2).getResponse().getAllowed());
    }

    /** Also ids that are not packed, and with fields of later versions between them. */
    @Test
    void elementsAreCountedHoweverTheyAreEncoded() throws Exception {
        UnknownFieldSet.Field later = UnknownFieldSet.Field.newBuilder().addVarint(7).addFixed64(8).build();
        UnknownFieldSet.Field.Builder ids = UnknownFieldSet.Field.newBuilder();
        for (int index = 0; index < 4095; index++) {
            ids.addVarint(index << 20);
        }
        ids.addLengthDelimited(ByteString.copyFrom(new byte[] {1, (byte) 0x80, 1}));
        var unknown = UnknownFieldSet.newBuilder().addField(3, ids.build()).addField(99, later).build();
        byte[] encoded = unknown.toByteArray();
        assertEquals(4097, ReviewBatch.parseFrom(encoded).getCancelledCount());
        assertEquals("a ReviewBatch has 4097 cancelled ids, expected at most 4096", BatchBounds.excess(encoded));
        assertNull(BatchBounds.excess(new byte[] {0x0a, 0x7f}), "the decoder says what is wrong");
    }

    @Test
    void moreCallsThanAStreamMayHaveAreRefusedWhateverBecomesOfTheFirst() throws Exception {
        var stream = gateway.stream();
        ReviewBatch.Builder batch = batch("{}");
        for (int id = 0; id < ReviewStream.MAX_IN_FLIGHT; id++) {
            batch.addCalls(call(id, "nobody", LONG));
        }
        stream.send(batch.addCalls(call(9999, "allows", LONG)));
        Worker.Error error = stream.verdict(9999).getError();
        assertEquals(Status.Code.RESOURCE_EXHAUSTED.value(), error.getCode());
        assertEquals("4096 calls of this stream are in flight", error.getMessage());
    }

    @Test
    void theStreamWithTheMostParametersEnds() throws Exception {
        var small = other.stream();
        small.send(parameters(1).addPayloads(Worker.Payload.newBuilder()).addCalls(call(1, "nobody", LONG)));
        small.verdict(1);
        List<Gateway.Stream> large = new ArrayList<>();
        for (int count = 0; count < 4; count++) {
            large.add(fill(256));
        }
        // The sum is exceeded by the one that has least.
        small.send(parameters(2).addPayloads(Worker.Payload.newBuilder()).addCalls(call(2, "nobody", LONG)));
        small.verdict(2);
        Status ended = null;
        while (ended == null) {
            for (Gateway.Stream stream : large) {
                ended = ended == null ? stream.end.poll() : ended;
            }
            Thread.sleep(10);
        }
        assertEquals(Status.Code.RESOURCE_EXHAUSTED, ended.getCode());
        assertEquals(
                "there are more than 67108864 bytes of parameters, most of them of this client",
                ended.getDescription());
        small.send(batch("{}").addCalls(call(3, "allows", LONG)));
        assertTrue(small.verdict(3).getResponse().getAllowed());
    }

    private Gateway.Stream fill(int count) throws Exception {
        Gateway.Stream stream = gateway.stream();
        for (int first = 1; first <= count; first += 64) {
            ReviewBatch.Builder batch = batch("{}").addCalls(call(first, "nobody", LONG));
            for (int id = first; id < first + 64; id++) {
                batch.addParameters(parameters(id).getParameters(0));
            }
            stream.send(batch);
            stream.verdict(first);
        }
        return stream;
    }

    private static ReviewBatch.Builder parameters(int id) {
        ByteString json = ByteString.copyFrom(new byte[ReviewStream.MAX_PARAMETERS_BYTES]);
        return ReviewBatch.newBuilder().addParameters(Worker.Parameters.newBuilder().setId(id).setJson(json));
    }

    @Test
    void theClientWithMostIsEndedWhenTooMuchIsReceived() throws Exception {
        var small = other.stream();
        small.send(batch("{}").addCalls(call(1, "waits", LONG)));
        var large = gateway.stream();
        String payload = "{\"x\":\"" + "x".repeat(7 * 1024 * 1024) + "\"}";
        for (int id = 0; id < 40 && large.end.isEmpty(); id++) {
            large.send(batch(payload).addCalls(call(id, "waits", LONG)));
        }
        Status ended = large.end();
        assertEquals(Status.Code.RESOURCE_EXHAUSTED, ended.getCode());
        assertEquals(
                "there are more than 268435456 bytes of requests, most of them of this client", ended.getDescription());
        gate.release(100);
        assertTrue(small.verdict(1).getResponse().getAllowed());
    }

    @Test
    void theBytesThatAreEvaluatedAreBounded() throws Exception {
        var stream = gateway.stream();
        ReviewBatch.Builder batch = batch(large(1024 * 1024));
        for (int id = 0; id < 64; id++) {
            batch.addCalls(call(id, "waits", LONG));
        }
        stream.send(batch);
        // A connection gets half of what the others leave.
        int most = Evaluator.MAX_EVALUATED_BYTES / 2 / (1024 * 1024) - 1;
        await(() -> waiting.get() == most);
        // Another connection is served at once, as are further messages of the stream.
        assertTrue(other.review("allows", large(1024 * 1024)).getAllowed());
        stream.send(ReviewBatch.newBuilder().addCancelled(62).addCancelled(63));
        gate.release(62);
        for (int id = 0; id < 62; id++) {
            assertTrue(stream.verdict(id).getResponse().getAllowed());
        }
        assertEquals(most, mostWaiting.get());
    }

    @Test
    void callsThatWaitForTheirTurnExpire() throws Exception {
        var stream = gateway.stream();
        for (int id = 0; id < 3; id++) {
            stream.send(batch(large(7 * 1024 * 1024)).addCalls(call(id, "waits", LONG)));
        }
        await(() -> waiting.get() == 2);
        ReviewBatch.Builder late = batch(large(1024 * 1024));
        for (int id = 3; id < 43; id++) {
            late.addCalls(call(id, "waits", 20));
        }
        stream.send(late);
        for (int id = 3; id < 43; id++) {
            assertEquals(Outcome.TOO_LATE.error(), stream.verdict(id).getError());
        }
        StatusRuntimeException ended =
                assertThrows(
                        StatusRuntimeException.class,
                        () -> gateway.review("waits", large(7 * 1024 * 1024), Duration.ofMillis(20)));
        assertEquals(Status.Code.DEADLINE_EXCEEDED, ended.getStatus().getCode());
        assertEquals(2, mostWaiting.get());
    }

    @Test
    void answersThatTheClientDoesNotReadCount() throws Exception {
        BlockingQueue<VerdictBatch> answers = new LinkedBlockingQueue<>();
        ClientCall<ReviewBatch, VerdictBatch> stream = gateway.channel.newCall(Gateway.STREAM, CallOptions.DEFAULT);
        stream.start(
                new ClientCall.Listener<>() {
                    @Override
                    public void onMessage(VerdictBatch message) {
                        answers.add(message);
                        stream.request(1);
                    }
                },
                new Metadata());
        ReviewBatch.Builder batch = batch("{}");
        for (int id = 0; id < 40; id++) {
            batch.addCalls(call(id, "chats", LONG));
        }
        stream.sendMessage(batch.build());
        await(() -> server.limits().received.total() > Outcome.MAX_MESSAGE_BYTES);
        assertTrue(other.review("allows", "{}").getAllowed());
        stream.request(1);
        for (int count = 0; count < 40; ) {
            VerdictBatch next = answers.poll(Gateway.PATIENCE.toSeconds(), TimeUnit.SECONDS);
            assertNotNull(next);
            count += next.getVerdictsCount();
        }
        await(() -> server.limits().received.total() == 0);
        stream.cancel("done", null);
    }

    private static String large(int bytes) {
        return "{\"object\": {\"x\": \"" + "x".repeat(bytes) + "\"}}";
    }

    private static void await(BooleanSupplier condition) throws InterruptedException {
        for (long left = Gateway.PATIENCE.toMillis(); !condition.getAsBoolean(); left--) {
            assertTrue(left > 0, "it has not come to pass");
            Thread.sleep(1);
        }
    }

    /** The sum is within the limit after each change, and the client that is ended had most. */
    @Test
    void aStoreKeepsItsLimit() {
        for (long seed = 0; seed < 200; seed++) {
            Random random = new Random(seed);
            Store store = new Store("things", 100, Runnable::run);
            List<Client> clients = List.of(new Client(), new Client(), new Client());
            Map<Store.Part, Integer> sizes = new HashMap<>();
            List<Store.Part> parts = new ArrayList<>();
            Map<Store.Part, Client> owners = new HashMap<>();
            for (int number = 0; number < 9; number++) {
                Store.Part[] self = new Store.Part[1];
                Client owner = clients.get(number % 3);
                self[0] =
                        new Store.Part(
                                owner,
                                outcome -> {
                                    Map<Client, Integer> sums = new HashMap<>();
                                    sizes.forEach((part, size) -> sums.merge(owners.get(part), size, Integer::sum));
                                    assertEquals(
                                            sums.values().stream().max(Integer::compare).get(), sums.get(owner));
                                    sizes.remove(self[0]);
                                    parts.remove(self[0]);
                                });
                owners.put(self[0], owner);
                parts.add(self[0]);
            }
            for (int step = 0; step < 100 && !parts.isEmpty(); step++) {
                Store.Part part = parts.get(random.nextInt(parts.size()));
                int size = random.nextInt(40);
                sizes.put(part, size);
                store.set(part, size);
                assertTrue(sizes.values().stream().mapToInt(Integer::intValue).sum() <= 100, "seed " + seed);
            }
        }
    }
}
