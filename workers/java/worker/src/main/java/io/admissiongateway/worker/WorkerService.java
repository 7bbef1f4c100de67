package io.admissiongateway.worker;

import admissiongateway.worker.v1.Worker;
import admissiongateway.worker.v1.Worker.CheckParametersRequest;
import admissiongateway.worker.v1.Worker.CheckParametersResponse;
import admissiongateway.worker.v1.Worker.ListPoliciesRequest;
import admissiongateway.worker.v1.Worker.ListPoliciesResponse;
import admissiongateway.worker.v1.Worker.ReviewBatch;
import admissiongateway.worker.v1.Worker.ReviewRequest;
import admissiongateway.worker.v1.Worker.ReviewResponse;
import admissiongateway.worker.v1.Worker.VerdictBatch;
import com.google.protobuf.Message;
import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.Deadline;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.ServerCallHandler;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/** The methods of the service, over one Evaluator. They run on the threads of the connections and never wait. */
final class WorkerService {
    static final String NAME = "admissiongateway.worker.v1.PolicyWorker";

    /** Same limit as for a stream. */
    private static final int MAX_UNARY_IN_FLIGHT = 4096;

    private static final Metadata.Key<String> TRACEPARENT_HEADER =
            Metadata.Key.of("traceparent", Metadata.ASCII_STRING_MARSHALLER);
    private static final Context.Key<String> TRACEPARENT = Context.key("traceparent");

    private final Map<String, Policy> policies;
    private final Evaluator evaluator;
    private final Limits limits;
    private final Set<ReviewStream> streams = ConcurrentHashMap.newKeySet();
    private volatile boolean draining;
    private int unary;
    private int open;

    WorkerService(Map<String, Policy> policies, Evaluator evaluator, Limits limits) {
        this.policies = policies;
        this.limits = limits;
        this.evaluator = evaluator;
    }

    ServerServiceDefinition definition() {
        return ServerServiceDefinition.builder(NAME)
                .addMethod(
                        method(
                                "ListPolicies",
                                MethodType.UNARY,
                                ListPoliciesRequest.getDefaultInstance(),
                                ListPoliciesResponse.getDefaultInstance()),
                        ServerCalls.asyncUnaryCall(this::listPolicies))
                .addMethod(
                        method(
                                "CheckParameters",
                                MethodType.UNARY,
                                CheckParametersRequest.getDefaultInstance(),
                                CheckParametersResponse.getDefaultInstance()),
                        ServerCalls.asyncUnaryCall(this::checkParameters))
                .addMethod(
                        method(
                                "Review",
                                MethodType.UNARY,
                                ReviewRequest.getDefaultInstance(),
                                ReviewResponse.getDefaultInstance()),
                        WorkerService.<Received<ReviewRequest>, ReviewResponse>withTraceparent(
                                ServerCalls.asyncUnaryCall(this::review)))
                .addMethod(
                        method(
                                "ReviewStream",
                                MethodType.BIDI_STREAMING,
                                ReviewBatch.getDefaultInstance(),
                                VerdictBatch.getDefaultInstance()),
                        ServerCalls.asyncBidiStreamingCall(this::reviewStream))
                .build();
    }

    private static <Q, A> ServerCallHandler<Q, A> withTraceparent(ServerCallHandler<Q, A> handler) {
        return (call, headers) -> {
            String sent = headers.get(TRACEPARENT_HEADER);
            return sent == null
                    ? handler.startCall(call, headers)
                    : Contexts.interceptCall(Context.current().withValue(TRACEPARENT, sent), call, headers, handler);
        };
    }

    /** Sends the drain notice on all open and later streams. */
    void drain() {
        draining = true;
        streams.forEach(ReviewStream::drain);
    }

    /** Waits until no Review and no ReviewStream is open, for {@code nanos} at most. */
    synchronized void awaitIdle(long nanos) throws InterruptedException {
        long end = System.nanoTime() + nanos;
        for (long rest = nanos; open > 0 && rest > 0; rest = end - System.nanoTime()) {
            TimeUnit.NANOSECONDS.timedWait(this, rest);
        }
    }

    private static <Q extends Message, A extends Message> MethodDescriptor<Received<Q>, A> method(
            String name, MethodType type, Q request, A response) {
        return MethodDescriptor.<Received<Q>, A>newBuilder()
                .setType(type)
                .setFullMethodName(MethodDescriptor.generateFullMethodName(NAME, name))
                .setRequestMarshaller(Received.marshaller(request))
                .setResponseMarshaller(ProtoUtils.marshaller(response))
                .build();
    }

    private void listPolicies(
            Received<ListPoliciesRequest> received, StreamObserver<ListPoliciesResponse> gateway) {
        ListPoliciesResponse.Builder served = ListPoliciesResponse.newBuilder();
        for (Policy policy : policies.values()) {
            served.addPolicies(
                    Worker.Policy.newBuilder()
                            .setName(policy.name)
                            .setDescription(policy.description)
                            .setMutating(policy.mutating)
                            .setVersion(policy.version)
                            .setParametersSchema(
                                    policy.parameters == null ? "" : policy.parameters.schema().toString()));
        }
        gateway.onNext(served.build());
        gateway.onCompleted();
    }

    private void review(Received<ReviewRequest> received, StreamObserver<ReviewResponse> observer) {
        ServerCallStreamObserver<ReviewResponse> gateway = (ServerCallStreamObserver<ReviewResponse>) observer;
        ReviewRequest request = received.message();
        Policy policy = enter(gateway, received.problem(), request == null ? null : request.getPolicy());
        if (policy == null) {
            return;
        }
        String tooLong = Policy.tooLong(request.getParameters());
        if (tooLong != null) {
            fail(gateway, Outcome.error(Status.Code.INVALID_ARGUMENT, tooLong));
            return;
        }
        Deadline deadline = Context.current().getDeadline();
        Review review =
                new Review(
                        new Payload(request.getAdmissionRequest(), request.getNamespaceObject()),
                        policy.mutating,
                        deadline == null
                                ? Review.NEVER
                                : System.nanoTime() + deadline.timeRemaining(TimeUnit.NANOSECONDS),
                        TRACEPARENT.get());
        UnaryCall call = new UnaryCall(policy, review.withParametersJson(request.getParameters()), gateway);
        Store.Part part = call.received;
        gateway.setOnCloseHandler(
                () -> {
                    left(1);
                    limits.received.set(part, 0);
                });
        gateway.setOnCancelHandler(
                () -> {
                    left(1);
                    limits.received.set(part, 0);
                    call.cancel();
                });
        limits.received.set(part, received.size());
        evaluator.run(new Batch(List.of(call)));
    }

    /** Prepares the parameters as a call would, in a thread that the policy may hold up. */
    private void checkParameters(
            Received<CheckParametersRequest> received, StreamObserver<CheckParametersResponse> observer) {
        ServerCallStreamObserver<CheckParametersResponse> gateway =
                (ServerCallStreamObserver<CheckParametersResponse>) observer;
        CheckParametersRequest request = received.message();
        Policy policy = enter(gateway, received.problem(), request == null ? null : request.getPolicy());
        if (policy == null) {
            return;
        }
        String tooLong = Policy.tooLong(request.getParameters());
        if (tooLong != null) {
            checked(gateway, tooLong);
            return;
        }
        evaluator.runApart(
                Client.current(),
                () -> checked(gateway, policy.refusal(request.getParameters())),
                () -> fail(gateway, Outcome.error(Status.Code.UNAVAILABLE, "the worker shuts down")),
                () -> {});
    }

    private static void checked(StreamObserver<CheckParametersResponse> gateway, String refusal) {
        String problem = refusal == null ? "" : Text.shorten(refusal);
        gateway.onNext(CheckParametersResponse.newBuilder().setProblem(problem).build());
        gateway.onCompleted();
    }

    /** Counts a unary call until it ends, and returns its policy; null if the call is refused. */
    private Policy enter(ServerCallStreamObserver<?> gateway, String problem, String name) {
        int inFlight = entered(1);
        gateway.setOnCloseHandler(() -> left(1));
        gateway.setOnCancelHandler(() -> left(1));
        if (problem != null) {
            fail(gateway, Outcome.error(Status.Code.INVALID_ARGUMENT, problem));
            return null;
        }
        Policy policy = policies.get(name);
        if (policy == null) {
            fail(gateway, Outcome.unknownPolicy(name, policies.keySet()));
        } else if (inFlight > MAX_UNARY_IN_FLIGHT) {
            String text = MAX_UNARY_IN_FLIGHT + " calls are in flight";
            fail(gateway, Outcome.error(Status.Code.RESOURCE_EXHAUSTED, text));
            return null;
        }
        return policy;
    }

    private static void fail(StreamObserver<?> gateway, Outcome outcome) {
        gateway.onError(outcome.status().asRuntimeException());
    }

    private StreamObserver<Received<ReviewBatch>> reviewStream(StreamObserver<VerdictBatch> observer) {
        ServerCallStreamObserver<VerdictBatch> gateway = (ServerCallStreamObserver<VerdictBatch>) observer;
        ReviewStream stream = new ReviewStream(gateway, policies, evaluator, limits);
        entered(0);
        streams.add(stream);
        Runnable gone =
                () -> {
                    stream.cancelAll();
                    streams.remove(stream);
                    left(0);
                };
        gateway.setOnCancelHandler(gone);
        gateway.setOnCloseHandler(gone);
        if (draining) {
            stream.drain();
        }
        return stream;
    }

    private synchronized int entered(int unaryCalls) {
        open++;
        unary += unaryCalls;
        return unary;
    }

    private synchronized void left(int unaryCalls) {
        open--;
        unary -= unaryCalls;
        if (open == 0) {
            notifyAll();
        }
    }

    private final class UnaryCall extends Call {
        final Store.Part received = new Store.Part(client, this::end);
        private final ServerCallStreamObserver<ReviewResponse> gateway;

        UnaryCall(Policy policy, Review review, ServerCallStreamObserver<ReviewResponse> gateway) {
            super(policy, Client.current(), review);
            this.gateway = gateway;
        }

        @Override
        void answer(Outcome outcome) {
            if (outcome.error() != null) {
                fail(gateway, outcome);
            } else {
                limits.received.set(received, size() + outcome.response().getSerializedSize());
                gateway.onNext(outcome.response());
                gateway.onCompleted();
            }
        }

        @Override
        boolean mayAnswer(Runnable resume) {
            return true;
        }

        @Override
        void flush() {
            // It went out when it was answered.
        }

        @Override
        void flushSoon() {
            // Likewise.
        }
    }
}
