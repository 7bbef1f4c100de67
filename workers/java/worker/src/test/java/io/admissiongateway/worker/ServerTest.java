package io.admissiongateway.worker;

import static io.admissiongateway.worker.Gateway.batch;
import static io.admissiongateway.worker.Gateway.call;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import admissiongateway.worker.v1.Worker;
import admissiongateway.worker.v1.Worker.ReviewBatch;
import com.google.protobuf.ByteString;
import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.health.v1.HealthCheckRequest;
import io.grpc.health.v1.HealthCheckResponse.ServingStatus;
import io.grpc.health.v1.HealthGrpc;
import io.grpc.stub.ClientCalls;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import tools.jackson.databind.node.ObjectNode;

/** Review, ListPolicies, health, addresses, and how it all ends. */
@Timeout(120)
final class ServerTest {
    private static final String POD = "{\"uid\": \"u\", \"object\": {\"metadata\": {}}}";

    private final CountDownLatch waiting = new CountDownLatch(1);
    private final CountDownLatch go = new CountDownLatch(1);
    private final CountDownLatch cancelled = new CountDownLatch(1);
    private final PolicyServer server =
            new PolicyServer()
                    .policy("allows", "Says yes.", "v1", review -> review.object())
                    .mutating("marks", "Leaves a mark.", review -> ((ObjectNode) review.object()).put("marked", 1))
                    .policy("fails", "", review -> failing())
                    .policy("waits", "", this::waits);
    private String address;
    private Gateway gateway;

    @BeforeEach
    void start() throws Exception {
        address = server.start("127.0.0.1:0").get(0);
        gateway = new Gateway(address);
    }

    @AfterEach
    void stop() throws Exception {
        gateway.close();
        server.stop(Duration.ZERO);
    }

    private void waits(Review review) throws InterruptedException {
        waiting.countDown();
        try {
            go.await();
        } catch (InterruptedException interrupted) {
            cancelled.countDown();
            throw interrupted;
        }
    }

    private static void failing() {
        throw new IllegalStateException("broken \u00e9");
    }

    @Test
    void answersOneReview() {
        assertTrue(gateway.review("allows", POD).getAllowed());
        assertEquals(
                "[{\"op\":\"add\",\"path\":\"/marked\",\"value\":1}]",
                gateway.review("marks", POD).getPatch().toStringUtf8());
    }

    @Test
    void anErrorIsTheStatusOfTheCall() {
        assertStatus(Status.Code.INTERNAL, "IllegalStateException: broken \u00e9", "fails", POD);
        assertStatus(
                Status.Code.NOT_FOUND,
                "policy \"x\" is not served here; served are: allows, fails, marks, waits",
                "x",
                POD);
        assertStatus(
                Status.Code.INVALID_ARGUMENT,
                "admission_request is to be a JSON object, found null",
                "allows",
                "null");
    }

    @Test
    void aReviewEndsAtItsDeadline() throws Exception {
        StatusRuntimeException end =
                assertThrows(
                        StatusRuntimeException.class, () -> gateway.review("waits", POD, Duration.ofMillis(300)));
        assertEquals(Status.Code.DEADLINE_EXCEEDED, end.getStatus().getCode());
        assertTrue(cancelled.await(30, TimeUnit.SECONDS));
    }

    @Test
    void aCancelledReviewIsInterrupted() throws Exception {
        var asked = gateway.channel.newCall(Gateway.REVIEW, CallOptions.DEFAULT);
        ClientCalls.futureUnaryCall(asked, Worker.ReviewRequest.newBuilder().setPolicy("waits").build());
        assertTrue(waiting.await(30, TimeUnit.SECONDS));
        asked.cancel("changed its mind", null);
        assertTrue(cancelled.await(30, TimeUnit.SECONDS));
    }

    @Test
    void messagesOverTheLimitAreRefused() throws Exception {
        assertTrue(gateway.review("allows", "{\"a\": \"" + "x".repeat(7 * 1024 * 1024) + "\"}").getAllowed());
        StatusRuntimeException refused =
                assertThrows(
                        StatusRuntimeException.class, () -> gateway.review("allows", "x".repeat(9 * 1024 * 1024)));
        assertEquals(Status.Code.RESOURCE_EXHAUSTED, refused.getStatus().getCode());
        var stream = gateway.stream();
        ByteString large = ByteString.copyFrom(new byte[9 * 1024 * 1024]);
        stream.send(
                ReviewBatch.newBuilder().addPayloads(Worker.Payload.newBuilder().setAdmissionRequest(large)));
        assertEquals(Status.Code.RESOURCE_EXHAUSTED, stream.end().getCode());
        assertTrue(gateway.review("allows", POD).getAllowed());
    }

    @Test
    void whatIsNoMessageIsRefused() throws Exception {
        var odd =
                Gateway.method(
                        "Review",
                        io.grpc.MethodDescriptor.MethodType.UNARY,
                        // Its field 2 is a text too, here not in UTF-8.
                        Worker.Error.getDefaultInstance(),
                        Worker.ReviewResponse.getDefaultInstance());
        StatusRuntimeException refused =
                assertThrows(
                        StatusRuntimeException.class,
                        () ->
                                ClientCalls.blockingUnaryCall(
                                        gateway.channel,
                                        odd,
                                        CallOptions.DEFAULT,
                                        Worker.Error.newBuilder()
                                                .setUnknownFields(unknownField())
                                                .build()));
        assertEquals(Status.Code.INVALID_ARGUMENT, refused.getStatus().getCode());
        assertTrue(refused.getStatus().getDescription().startsWith("not a ReviewRequest: "));
    }

    private static com.google.protobuf.UnknownFieldSet unknownField() {
        ByteString notUtf8 = ByteString.copyFrom(new byte[] {(byte) 0xff});
        return com.google.protobuf.UnknownFieldSet.newBuilder()
                .addField(
                        1, com.google.protobuf.UnknownFieldSet.Field.newBuilder().addLengthDelimited(notUtf8).build())
                .build();
    }

    @Test
    void listsItsPoliciesInTheOrderOfRegistration() {
        var listed =
                ClientCalls.blockingUnaryCall(
                        gateway.channel,
                        Gateway.LIST,
                        CallOptions.DEFAULT,
                        Worker.ListPoliciesRequest.getDefaultInstance());
        assertEquals(
                List.of("allows", "marks", "fails", "waits"),
                listed.getPoliciesList().stream().map(Worker.Policy::getName).toList());
        assertEquals("Says yes.", listed.getPolicies(0).getDescription());
        assertEquals("v1", listed.getPolicies(0).getVersion());
        assertFalse(listed.getPolicies(0).getMutating());
        assertTrue(listed.getPolicies(1).getMutating());
    }

    @Test
    void isHealthy() {
        for (String service : List.of("", WorkerService.NAME)) {
            assertEquals(ServingStatus.SERVING, health(gateway.channel, service));
        }
    }

    @Test
    void drainsBeforeItStops() throws Exception {
        var stream = gateway.stream();
        stream.send(batch(POD).addCalls(call(1, "waits", 60_000)));
        assertTrue(waiting.await(30, TimeUnit.SECONDS));
        var executor = Executors.newSingleThreadExecutor();
        CompletableFuture<Integer> stopping =
                CompletableFuture.supplyAsync(() -> stopQuietly(Duration.ofSeconds(60)), executor);
        assertTrue(stream.next().getDraining());
        // What crossed the notice is answered too.
        stream.send(batch(POD).addCalls(call(2, "allows", 60_000)));
        assertTrue(stream.verdict(2).getResponse().getAllowed());
        assertFalse(stopping.isDone());
        go.countDown();
        assertTrue(stream.verdict(1).getResponse().getAllowed());
        assertEquals(Status.OK, stream.end());
        assertEquals(0, stopping.get(30, TimeUnit.SECONDS));
        executor.shutdown();
        assertThrows(StatusRuntimeException.class, () -> gateway.review("allows", POD));
    }

    @Test
    void cutsOffWhatIsLeftAfterTheGrace() throws Exception {
        var stream = gateway.stream();
        stream.send(batch(POD).addCalls(call(1, "waits", 60_000)));
        assertTrue(waiting.await(30, TimeUnit.SECONDS));
        assertEquals(0, server.stop(Duration.ofMillis(100)));
        assertFalse(stream.end().isOk());
        assertTrue(cancelled.await(30, TimeUnit.SECONDS));
    }

    @Test
    void startsAgainAfterAStop() throws Exception {
        server.stop(Duration.ZERO);
        server.stop(Duration.ZERO);
        try (Gateway other = new Gateway(server.start("127.0.0.1:0").get(0))) {
            assertTrue(other.review("allows", POD).getAllowed());
        }
    }

    @Test
    void anAddressInUseIsSaid() {
        Exception problem = assertThrows(StartException.class, () -> another().start(address));
        assertEquals(address + ": Address already in use", problem.getMessage());
        assertThrows(IllegalStateException.class, () -> server.start("127.0.0.1:0"));
        assertThrows(IllegalArgumentException.class, () -> another().start("nowhere"));
        problem = assertThrows(StartException.class, () -> another().start("no-such-host.invalid:1"));
        assertEquals("no-such-host.invalid:1: Name or service not known", problem.getMessage());
    }

    @Test
    void servesUnixSockets(@TempDir Path folder) throws Exception {
        Path socket = folder.resolve("worker.sock");
        PolicyServer worker = another();
        assertEquals(List.of("unix:" + socket), worker.start("unix:" + socket));
        assertEquals(
                "unix:" + socket + ": Address already in use",
                assertThrows(StartException.class, () -> another().start("unix:" + socket)).getMessage());
        try (UnixProxy proxy = new UnixProxy(socket);
                Gateway other = new Gateway("127.0.0.1:" + proxy.port())) {
            assertTrue(other.review("allows", POD).getAllowed());
        }
        worker.stop(Duration.ZERO);
        assertFalse(Files.exists(socket));
    }

    @Test
    void takesOverFromADeadWorker(@TempDir Path folder) throws Exception {
        Path socket = folder.resolve("worker.sock");
        try (var dead = java.nio.channels.ServerSocketChannel.open(java.net.StandardProtocolFamily.UNIX)) {
            dead.bind(java.net.UnixDomainSocketAddress.of(socket));
        }
        assertTrue(Files.exists(socket));
        PolicyServer worker = another();
        worker.start("unix:" + socket);
        worker.stop(Duration.ZERO);
        Files.writeString(socket, "something else");
        assertEquals(
                "unix:" + socket + ": the file exists and is not a socket",
                assertThrows(StartException.class, () -> another().start("unix:" + socket)).getMessage());
        assertThrows(StartException.class, () -> another().start("unix:" + folder.resolve("none/worker.sock")));
    }

    @Test
    void leavesTheSocketToWhoTakesOverWhileItDrains(@TempDir Path folder) throws Exception {
        Path socket = folder.resolve("worker.sock");
        PolicyServer leaving = new PolicyServer().policy("waits", "", this::waits);
        String port = leaving.start("unix:" + socket, "127.0.0.1:0").get(1);
        try (Gateway other = new Gateway(port);
                PolicyServer next = another()) {
            var stream = other.stream();
            stream.send(batch(POD).addCalls(call(1, "waits", 60_000)));
            assertTrue(waiting.await(30, TimeUnit.SECONDS));
            var stopping = CompletableFuture.runAsync(leaving::close);
            assertTrue(stream.next().getDraining());
            startWhenFree(next, "unix:" + socket);
            go.countDown();
            stopping.get(30, TimeUnit.SECONDS);
            assertTrue(Files.exists(socket));
        }
        assertFalse(Files.exists(socket));
    }

    private static void startWhenFree(PolicyServer server, String address) throws Exception {
        for (int attempt = 0; ; attempt++) {
            try {
                server.start(address);
                return;
            } catch (StartException inUse) {
                assertTrue(attempt < 100, inUse.getMessage());
                Thread.sleep(50);
            }
        }
    }

    @Test
    void anInterruptedStopCutsOffAtOnce() throws Exception {
        var stream = gateway.stream();
        stream.send(batch(POD).addCalls(call(1, "waits", 60_000)));
        assertTrue(waiting.await(30, TimeUnit.SECONDS));
        Thread.currentThread().interrupt();
        server.close();
        assertTrue(Thread.interrupted());
        assertFalse(stream.end().isOk());
        assertTrue(cancelled.await(30, TimeUnit.SECONDS));
    }

    @Test
    void theGraceMayBeForever() throws Exception {
        assertEquals(0, server.stop(ChronoUnit.FOREVER.getDuration()));
        assertThrows(StatusRuntimeException.class, () -> gateway.review("allows", POD));
    }

    private static PolicyServer another() {
        return new PolicyServer().policy("allows", "", review -> {});
    }

    private int stopQuietly(Duration grace) {
        try {
            return server.stop(grace);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    static ServingStatus health(ManagedChannel channel, String service) {
        return HealthGrpc.newBlockingStub(channel)
                .withDeadlineAfter(30, TimeUnit.SECONDS)
                .check(HealthCheckRequest.newBuilder().setService(service).build())
                .getStatus();
    }

    private void assertStatus(Status.Code code, String text, String policy, String request) {
        StatusRuntimeException problem =
                assertThrows(StatusRuntimeException.class, () -> gateway.review(policy, request));
        assertEquals(code, problem.getStatus().getCode());
        assertEquals(text, problem.getStatus().getDescription());
    }
}
