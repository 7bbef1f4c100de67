package io.admissiongateway.worker;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import admissiongateway.worker.v1.Worker;
import admissiongateway.worker.v1.Worker.ReviewBatch;
import admissiongateway.worker.v1.Worker.ReviewRequest;
import admissiongateway.worker.v1.Worker.ReviewResponse;
import admissiongateway.worker.v1.Worker.Verdict;
import admissiongateway.worker.v1.Worker.VerdictBatch;
import com.google.protobuf.ByteString;
import com.google.protobuf.Message;
import io.grpc.CallOptions;
import io.grpc.ChannelCredentials;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.StreamObserver;
import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Asks a worker as the gateway does, over a real connection. */
final class Gateway implements AutoCloseable {
    static final MethodDescriptor<Worker.ListPoliciesRequest, Worker.ListPoliciesResponse> LIST =
            method(
                    "ListPolicies",
                    MethodType.UNARY,
                    Worker.ListPoliciesRequest.getDefaultInstance(),
                    Worker.ListPoliciesResponse.getDefaultInstance());
    static final MethodDescriptor<ReviewRequest, ReviewResponse> REVIEW =
            method(
                    "Review",
                    MethodType.UNARY,
                    ReviewRequest.getDefaultInstance(),
                    ReviewResponse.getDefaultInstance());
    static final MethodDescriptor<Worker.CheckParametersRequest, Worker.CheckParametersResponse> CHECK =
            method(
                    "CheckParameters",
                    MethodType.UNARY,
                    Worker.CheckParametersRequest.getDefaultInstance(),
                    Worker.CheckParametersResponse.getDefaultInstance());
    static final MethodDescriptor<ReviewBatch, VerdictBatch> STREAM =
            method(
                    "ReviewStream",
                    MethodType.BIDI_STREAMING,
                    ReviewBatch.getDefaultInstance(),
                    VerdictBatch.getDefaultInstance());

    /** For anything that is to happen at all; long, since the machine may be busy. */
    static final Duration PATIENCE = Duration.ofSeconds(30);

    final ManagedChannel channel;

    Gateway(String address) {
        this(address, InsecureChannelCredentials.create());
    }

    Gateway(String address, ChannelCredentials credentials) {
        channel =
                NettyChannelBuilder.forTarget(address, credentials).maxInboundMessageSize(64 * 1024 * 1024).build();
    }

    static <Q extends Message, A extends Message> MethodDescriptor<Q, A> method(
            String name, MethodType type, Q request, A response) {
        return MethodDescriptor.<Q, A>newBuilder()
                .setType(type)
                .setFullMethodName(MethodDescriptor.generateFullMethodName(WorkerService.NAME, name))
                .setRequestMarshaller(ProtoUtils.marshaller(request))
                .setResponseMarshaller(ProtoUtils.marshaller(response))
                .build();
    }

    /** Asks by Review; throws a StatusRuntimeException for any other status than OK. */
    ReviewResponse review(String policy, String request) {
        return review(policy, request, PATIENCE);
    }

    ReviewResponse review(String policy, String request, Duration timeout) {
        ReviewRequest message =
                ReviewRequest.newBuilder()
                        .setPolicy(policy)
                        .setAdmissionRequest(ByteString.copyFromUtf8(request))
                        .build();
        CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(timeout.toNanos(), TimeUnit.NANOSECONDS);
        return ClientCalls.blockingUnaryCall(channel, REVIEW, options, message);
    }

    Stream stream() {
        return new Stream();
    }

    @Override
    public void close() {
        channel.shutdownNow();
    }

    /** One ReviewStream, and what has come in by it. */
    final class Stream implements StreamObserver<VerdictBatch> {
        final BlockingQueue<VerdictBatch> messages = new LinkedBlockingQueue<>();
        final BlockingQueue<Status> end = new LinkedBlockingQueue<>();
        final Map<Long, Verdict> verdicts = new TreeMap<>();
        private final StreamObserver<ReviewBatch> worker =
                ClientCalls.asyncBidiStreamingCall(channel.newCall(STREAM, CallOptions.DEFAULT), this);

        void send(ReviewBatch.Builder batch) {
            worker.onNext(batch.build());
        }

        void halfClose() {
            worker.onCompleted();
        }

        void cancel() {
            worker.onError(Status.CANCELLED.asRuntimeException());
        }

        VerdictBatch next() throws InterruptedException {
            VerdictBatch message = messages.poll(PATIENCE.toSeconds(), TimeUnit.SECONDS);
            assertNotNull(message, () -> "no message; the stream has ended with " + end.peek());
            for (Verdict verdict : message.getVerdictsList()) {
                assertNull(verdicts.put(verdict.getId(), verdict), "a second verdict");
            }
            return message;
        }

        Verdict verdict(long id) throws InterruptedException {
            while (!verdicts.containsKey(id)) {
                next();
            }
            return verdicts.get(id);
        }

        Status end() throws InterruptedException {
            Status status = end.poll(PATIENCE.toSeconds(), TimeUnit.SECONDS);
            assertNotNull(status, "the stream has not ended");
            return status;
        }

        @Override
        public void onNext(VerdictBatch message) {
            messages.add(message);
        }

        @Override
        public void onError(Throwable problem) {
            end.add(Status.fromThrowable(problem));
        }

        @Override
        public void onCompleted() {
            end.add(Status.OK);
        }
    }

    /** Returns a batch with one payload and no calls. */
    static ReviewBatch.Builder batch(String request) {
        return ReviewBatch.newBuilder()
                .addPayloads(Worker.Payload.newBuilder().setAdmissionRequest(ByteString.copyFromUtf8(request)));
    }

    /** Returns a call for the first payload of its batch. */
    static Worker.Call call(long id, String policy, int timeoutMillis) {
        return Worker.Call.newBuilder().setId(id).setPolicy(policy).setTimeoutMillis(timeoutMillis).build();
    }
}
