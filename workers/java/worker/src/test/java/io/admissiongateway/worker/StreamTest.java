package io.admissiongateway.worker;

import static io.admissiongateway.worker.Gateway.batch;
import static io.admissiongateway.worker.Gateway.call;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import admissiongateway.worker.v1.Worker;
import admissiongateway.worker.v1.Worker.ReviewBatch;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import tools.jackson.databind.node.ObjectNode;

@Timeout(120)
final class StreamTest {
    private static final String POD = "{\"uid\": \"u\", \"object\": {\"metadata\": {}}}";
    private static final int LONG = 60_000;

    private final Semaphore gate = new Semaphore(0);
    private final BlockingQueue<String> told = new LinkedBlockingQueue<>();
    private final PolicyServer server =
            new PolicyServer()
                    .policy("allows", "", review -> review.object())
                    .policy("waits", "", this::waits)
                    .policy("computes", "", this::computes)
                    .policy("large", "", review -> review.warn("x".repeat(3 * 1024 * 1024)))
                    .policy("fails", "", review -> failing())
                    .mutating("marks", "", review -> ((ObjectNode) review.object()).put("marked", true));
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

    private void waits(Review review) throws InterruptedException {
        told.add("waits");
        try {
            gate.acquire();
        } catch (InterruptedException interrupted) {
            told.add(review.isCancelled() ? "interrupted and cancelled" : "interrupted");
            throw interrupted;
        }
    }

    private void computes(Review review) {
        told.add("computes");
        while (!gate.tryAcquire() && !review.isCancelled()) {
            Thread.onSpinWait();
        }
        told.add("computed");
    }

    private static void failing() {
        throw new IllegalStateException("broken");
    }

    @Test
    void answersEachCallByItsId() throws Exception {
        var stream = gateway.stream();
        stream.send(
                batch(POD)
                        .addCalls(call(0, "allows", LONG))
                        .addCalls(call(-1, "marks", LONG))
                        .addCalls(call(7, "nobody", LONG))
                        .addCalls(call(8, "fails", LONG))
                        .addCalls(call(9, "allows", LONG).toBuilder().setPayload(-1)));
        assertTrue(stream.verdict(0).getResponse().getAllowed());
        assertEquals(
                "[{\"op\":\"add\",\"path\":\"/marked\",\"value\":true}]",
                stream.verdict(-1).getResponse().getPatch().toStringUtf8());
        assertEquals(Status.Code.NOT_FOUND.value(), stream.verdict(7).getError().getCode());
        assertEquals(
                "policy \"nobody\" is not served here; served are: allows, computes, fails, large, marks, waits",
                stream.verdict(7).getError().getMessage());
        assertEquals("IllegalStateException: broken", stream.verdict(8).getError().getMessage());
        assertEquals(
                "the call is for payload 4294967295, the batch has 1", stream.verdict(9).getError().getMessage());
        stream.halfClose();
        assertEquals(Status.OK, stream.end());
    }

    @Test
    void quickCallsOfABatchGoOutTogether() throws Exception {
        var stream = gateway.stream();
        for (int warmUp = 0; warmUp < 50; warmUp++) {
            stream.send(batch(POD).addCalls(call(warmUp, "allows", LONG)));
            stream.verdict(warmUp);
        }
        int together = 0;
        for (int round = 1; round <= 100; round++) {
            ReviewBatch.Builder batch = batch(POD);
            for (int index = 0; index < 8; index++) {
                batch.addCalls(call(1000 * round + index, "allows", LONG));
            }
            stream.send(batch);
            together = Math.max(together, stream.next().getVerdictsCount());
            for (int index = 0; index < 8; index++) {
                stream.verdict(1000 * round + index);
            }
        }
        assertEquals(8, together);
    }

    @Test
    void slowCallsHoldUpNoOthers() throws Exception {
        var stream = gateway.stream();
        // More than there are threads for quick calls, before anything is known of these policies.
        ReviewBatch.Builder slow = batch(POD);
        for (int index = 0; index < 50; index++) {
            slow.addCalls(call(index, index % 2 == 0 ? "waits" : "computes", LONG));
            slow.addCalls(call(1000 + index, "allows", LONG));
        }
        stream.send(slow);
        stream.send(batch(POD).addCalls(call(2000, "allows", LONG)));
        for (int index = 0; index < 50; index++) {
            assertTrue(stream.verdict(1000 + index).getResponse().getAllowed());
        }
        assertTrue(stream.verdict(2000).getResponse().getAllowed());
        assertEquals(51, stream.verdicts.size());
        gate.release(50);
        for (int index = 0; index < 50; index++) {
            assertTrue(stream.verdict(index).getResponse().getAllowed());
        }
    }

    @Test
    void aCallEndsAtItsDeadline() throws Exception {
        var stream = gateway.stream();
        stream.send(
                batch(POD)
                        .addCalls(call(1, "waits", 2000))
                        .addCalls(call(2, "computes", 2000))
                        .addCalls(call(3, "allows", 0)));
        for (long id = 1; id <= 3; id++) {
            assertEquals(Status.Code.DEADLINE_EXCEEDED.value(), stream.verdict(id).getError().getCode());
            assertEquals(
                    "the deadline passed before the policy answered", stream.verdict(id).getError().getMessage());
        }
        awaitTold("interrupted and cancelled", "computed");
    }

    @Test
    void aCancelledCallGetsNoVerdict() throws Exception {
        var stream = gateway.stream();
        stream.send(batch(POD).addCalls(call(1, "waits", LONG)).addCalls(call(2, "waits", LONG)).addCancelled(2));
        awaitTold("waits");
        stream.send(ReviewBatch.newBuilder().addCancelled(1).addCancelled(77));
        awaitTold("interrupted and cancelled");
        // The id is free again.
        stream.send(batch(POD).addCalls(call(1, "allows", LONG)));
        assertTrue(stream.verdict(1).getResponse().getAllowed());
        stream.halfClose();
        assertEquals(Status.OK, stream.end());
        assertNull(stream.verdicts.get(2L));
        assertFalse(told.contains("waits"));
    }

    @Test
    void anInterruptReachesNoOtherCall() throws Exception {
        var stream = gateway.stream();
        for (int id = 0; id < 200; id++) {
            stream.send(batch(POD).addCalls(call(id, "waits", LONG)).addCalls(call(1000 + id, "allows", LONG)));
            stream.send(ReviewBatch.newBuilder().addCancelled(id));
        }
        for (int id = 0; id < 200; id++) {
            assertTrue(stream.verdict(1000 + id).hasResponse());
        }
        stream.send(batch(POD).addCalls(call(5000, "waits", LONG)));
        gate.release();
        assertTrue(stream.verdict(5000).getResponse().getAllowed());
    }

    @Test
    void anIdInFlightUsedAgainEndsTheStream() throws Exception {
        var other = gateway.stream();
        other.send(batch(POD).addCalls(call(1, "waits", LONG)));
        awaitTold("waits");
        var stream = gateway.stream();
        stream.send(batch(POD).addCalls(call(-1, "waits", LONG)));
        awaitTold("waits");
        stream.send(batch(POD).addCalls(call(-1, "allows", LONG)));
        Status end = stream.end();
        assertEquals(Status.Code.INVALID_ARGUMENT, end.getCode());
        assertEquals("call id 18446744073709551615 is used again while its call is in flight", end.getDescription());
        awaitTold("interrupted and cancelled");
        gate.release();
        assertTrue(other.verdict(1).getResponse().getAllowed());
    }

    @Test
    void aStreamThatGoesAwayCancelsItsCalls() throws Exception {
        var stream = gateway.stream();
        stream.send(batch(POD).addCalls(call(1, "waits", LONG)));
        awaitTold("waits");
        stream.cancel();
        awaitTold("interrupted and cancelled");
        var other = gateway.stream();
        other.send(batch(POD).addCalls(call(1, "waits", LONG)));
        awaitTold("waits");
        gateway.channel.shutdownNow();
        awaitTold("interrupted and cancelled");
    }

    @Test
    void afterAHalfCloseWhatIsInFlightIsAnswered() throws Exception {
        var stream = gateway.stream();
        stream.send(batch(POD).addCalls(call(1, "waits", LONG)));
        stream.halfClose();
        awaitTold("waits");
        gate.release();
        assertTrue(stream.verdict(1).getResponse().getAllowed());
        assertEquals(Status.OK, stream.end());
    }

    @Test
    void verdictsThatDoNotFitIntoOneMessageGoInSeveral() throws Exception {
        var stream = gateway.stream();
        ReviewBatch.Builder batch = batch(POD);
        for (int id = 0; id < 8; id++) {
            batch.addCalls(call(id, "large", LONG));
        }
        stream.send(batch);
        int messages = 0;
        while (stream.verdicts.size() < 8) {
            assertTrue(stream.next().getSerializedSize() <= Outcome.MAX_MESSAGE_BYTES);
            messages++;
        }
        assertTrue(messages >= 4);
    }

    @Test
    void aDrainedStreamIsNotQuietWhileTheGatewayIsSlowToTakeAnswers() throws Exception {
        BlockingQueue<Worker.VerdictBatch> messages = new LinkedBlockingQueue<>();
        BlockingQueue<Status> end = new LinkedBlockingQueue<>();
        ClientCall<ReviewBatch, Worker.VerdictBatch> call =
                gateway.channel.newCall(Gateway.STREAM, CallOptions.DEFAULT);
        call.start(
                new ClientCall.Listener<>() {
                    @Override
                    public void onMessage(Worker.VerdictBatch message) {
                        messages.add(message);
                    }

                    @Override
                    public void onClose(Status status, Metadata trailers) {
                        end.add(status);
                    }
                },
                new Metadata());
        ReviewBatch.Builder large = batch(POD);
        for (int id = 0; id < 8; id++) {
            large.addCalls(call(id, "large", LONG));
        }
        call.sendMessage(large.build());
        for (long left = Gateway.PATIENCE.toMillis(); unsent() <= Outcome.MAX_MESSAGE_BYTES; left--) {
            assertTrue(left > 0, "the answers do not wait");
            Thread.sleep(1);
        }
        // After at most one of these the worker reads no more, until the answers are taken.
        for (int id = 8; id < 11; id++) {
            call.sendMessage(batch(POD).addCalls(call(id, "allows", LONG)).build());
        }
        CompletableFuture<Void> stopping = CompletableFuture.runAsync(server::close);
        Thread.sleep(1500); // three times as long as a stream has to be quiet
        call.request(Integer.MAX_VALUE);
        assertEquals(Status.OK, end.poll(Gateway.PATIENCE.toSeconds(), TimeUnit.SECONDS));
        assertEquals(11, messages.stream().mapToInt(Worker.VerdictBatch::getVerdictsCount).sum());
        stopping.get();
    }

    @Test
    void moreThanFourThousandInFlightAreRefused() throws Exception {
        var stream = gateway.stream();
        ReviewBatch.Builder batch = batch(POD);
        for (int id = 0; id < ReviewStream.MAX_IN_FLIGHT + 1; id++) {
            batch.addCalls(call(id, "waits", LONG));
        }
        stream.send(batch);
        Worker.Verdict refused = stream.verdict(ReviewStream.MAX_IN_FLIGHT);
        assertEquals(Status.Code.RESOURCE_EXHAUSTED.value(), refused.getError().getCode());
        assertEquals("4096 calls of this stream are in flight", refused.getError().getMessage());
        assertEquals(1, stream.verdicts.size());
        gate.release(ReviewStream.MAX_IN_FLIGHT);
        for (int id = 0; id < ReviewStream.MAX_IN_FLIGHT; id++) {
            assertTrue(stream.verdict(id).getResponse().getAllowed());
        }
    }

    /** Waits until the policies have told all of these, in any order. */
    private long unsent() {
        return server.limits().received.total();
    }

    private void awaitTold(String... expected) throws InterruptedException {
        List<String> missing = new ArrayList<>(List.of(expected));
        while (!missing.isEmpty()) {
            String next = told.poll(Gateway.PATIENCE.toSeconds(), TimeUnit.SECONDS);
            assertTrue(next != null, () -> "never: " + missing);
            missing.remove(next);
        }
    }
}
