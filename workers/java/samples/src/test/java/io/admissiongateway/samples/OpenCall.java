package io.admissiongateway.samples;

import static org.junit.jupiter.api.Assertions.assertTrue;

import admissiongateway.worker.v1.Worker;
import admissiongateway.worker.v1.Worker.ReviewBatch;
import admissiongateway.worker.v1.Worker.VerdictBatch;
import com.google.protobuf.ByteString;
import io.grpc.CallOptions;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.StreamObserver;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** A call of {@code sleeps} in flight on a stream, which a worker that drains waits for. */
final class OpenCall implements AutoCloseable, StreamObserver<VerdictBatch> {
    private final CountDownLatch inFlight = new CountDownLatch(1);
    private final CountDownLatch draining = new CountDownLatch(1);
    private final ManagedChannel channel;

    OpenCall(String address) {
        channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
        StreamObserver<ReviewBatch> worker =
                ClientCalls.asyncBidiStreamingCall(
                        channel.newCall(VectorsTest.STREAM, CallOptions.DEFAULT), this);
        worker.onNext(
                ReviewBatch.newBuilder()
                        .addPayloads(Worker.Payload.newBuilder().setAdmissionRequest(ByteString.copyFromUtf8("{}")))
                        .addCalls(Worker.Call.newBuilder().setId(1).setPolicy("sleeps").setTimeoutMillis(100_000))
                        .addCalls(Worker.Call.newBuilder().setId(2).setPolicy("fails").setTimeoutMillis(100_000))
                        .build());
    }

    void awaitInFlight() throws InterruptedException {
        assertTrue(inFlight.await(60, TimeUnit.SECONDS));
    }

    void awaitDraining() throws InterruptedException {
        assertTrue(draining.await(60, TimeUnit.SECONDS));
    }

    @Override
    public void onNext(VerdictBatch message) {
        if (message.getVerdictsCount() > 0) {
            inFlight.countDown(); // the other call of its batch has its verdict
        }
        if (message.getDraining()) {
            draining.countDown();
        }
    }

    @Override
    public void onError(Throwable gone) {
        // The worker was told to go.
    }

    @Override
    public void onCompleted() {
        // Likewise.
    }

    @Override
    public void close() {
        channel.shutdownNow();
    }
}
