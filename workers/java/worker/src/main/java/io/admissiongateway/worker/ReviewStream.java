package io.admissiongateway.worker;

import admissiongateway.worker.v1.Worker;
import admissiongateway.worker.v1.Worker.ReviewBatch;
import admissiongateway.worker.v1.Worker.VerdictBatch;
import io.grpc.Status;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/**
 * The server side of one ReviewStream: receives batches of calls, and sends batches of verdicts.
 *
 * <p>Verdicts that become ready together are sent in one message; they collect while the connection is not writable.
 * Bounds: {@code MAX_IN_FLIGHT} calls; no further batch is read while a full message of verdicts is unsent.
 *
 * <p>Source: protos/README.md.
 */
final class ReviewStream implements StreamObserver<Received<ReviewBatch>> {
    /** Four times the default maxInFlight of the gateway. */
    static final int MAX_IN_FLIGHT = 4096;

    /**
     * Time without a message after which the worker ends a draining stream: several round trips, for batches that the
     * gateway sent before it received the drain notice.
     */
    private static final long QUIET_NANOS = TimeUnit.MILLISECONDS.toNanos(500);

    private final ServerCallStreamObserver<VerdictBatch> gateway;
    private final Map<String, Policy> policies;
    private final Evaluator evaluator;
    private final Map<Long, StreamCall> inFlight = new HashMap<>();
    private final Outbox outbox = new Outbox();
    private boolean draining;
    private boolean isReadingHeld;
    private boolean isFlushDue;

    /** Whether no more messages will be read. */
    private boolean ended;

    /** Whether no more messages will be written. */
    private boolean over;

    private long lastBatch;

    ReviewStream(
            ServerCallStreamObserver<VerdictBatch> gateway, Map<String, Policy> policies, Evaluator evaluator) {
        this.gateway = gateway;
        this.policies = policies;
        this.evaluator = evaluator;
        gateway.disableAutoRequest();
        gateway.setOnReadyHandler(this::flush);
        gateway.request(1);
    }

    @Override
    public void onNext(Received<ReviewBatch> received) {
        if (received.problem() != null) {
            fail(received.problem());
            return;
        }
        List<StreamCall> unwanted = new ArrayList<>();
        List<StreamCall> calls = accept(received.message(), unwanted);
        unwanted.forEach(Call::cancel);
        if (calls.isEmpty()) {
            flush();
        } else {
            evaluator.run(new Batch(calls));
        }
        readOn();
    }

    @Override
    public void onError(Throwable gone) {
        cancelAll();
    }

    @Override
    public void onCompleted() {
        synchronized (this) {
            ended = true;
        }
        flush();
    }

    /** Cancels all calls of this stream. */
    void cancelAll() {
        List<StreamCall> unwanted;
        synchronized (this) {
            over = true;
            unwanted = new ArrayList<>(inFlight.values());
            inFlight.clear();
            outbox.clear();
        }
        unwanted.forEach(Call::cancel);
    }

    /** Sends the drain notice; the stream ends when no call is in flight, or after the quiet period. */
    void drain() {
        synchronized (this) {
            if (draining || ended || over) {
                return;
            }
            draining = true;
            outbox.addDraining();
            lastBatch = System.nanoTime();
        }
        evaluator.later(this::endIfQuiet, QUIET_NANOS);
        flush();
    }

    private void endIfQuiet() {
        synchronized (this) {
            if (ended || over) {
                return;
            }
            long rest = QUIET_NANOS - (System.nanoTime() - lastBatch);
            if (!inFlight.isEmpty() || !outbox.isEmpty() || rest > 0) {
                evaluator.later(this::endIfQuiet, Math.max(rest, QUIET_NANOS / 10));
                return;
            }
            ended = true;
        }
        flush();
    }

    /** Returns the calls that are to be run; puts those that are no longer wanted into {@code unwanted}. */
    private List<StreamCall> accept(ReviewBatch batch, List<StreamCall> unwanted) {
        long arrived = System.nanoTime();
        List<StreamCall> calls = new ArrayList<>(batch.getCallsCount());
        List<Payload> payloads = new ArrayList<>(batch.getPayloadsCount());
        for (Worker.Payload payload : batch.getPayloadsList()) {
            payloads.add(new Payload(payload.getAdmissionRequest(), payload.getNamespaceObject()));
        }
        Set<Long> cancelled = batch.getCancelledCount() == 0 ? Set.of() : new HashSet<>(batch.getCancelledList());
        synchronized (this) {
            lastBatch = arrived;
            for (Worker.Call call : batch.getCallsList()) {
                if (cancelled.contains(call.getId())) {
                    continue;
                }
                if (inFlight.containsKey(call.getId())) {
                    String id = Long.toUnsignedString(call.getId());
                    fail("call id " + id + " is used again while its call is in flight");
                    return List.of();
                }
                Outcome refused = refused(call, payloads.size());
                if (refused != null) {
                    outbox.add(call.getId(), refused);
                    continue;
                }
                Policy policy = policies.get(call.getPolicy());
                long timeout = TimeUnit.MILLISECONDS.toNanos(Integer.toUnsignedLong(call.getTimeoutMillis()));
                Payload payload = payloads.get(call.getPayload()).use();
                StreamCall accepted =
                        new StreamCall(call.getId(), policy, new Review(payload, policy.mutating, arrived + timeout));
                inFlight.put(call.getId(), accepted);
                calls.add(accepted);
            }
            for (Long id : cancelled) {
                StreamCall call = inFlight.remove(id);
                if (call != null) {
                    unwanted.add(call);
                }
            }
        }
        return calls;
    }

    /** Returns the outcome of a rejected call; null if it is accepted. */
    private Outcome refused(Worker.Call call, int payloads) {
        if (!policies.containsKey(call.getPolicy())) {
            return Outcome.unknownPolicy(call.getPolicy(), policies.keySet());
        }
        if (Integer.compareUnsigned(call.getPayload(), payloads) >= 0) {
            String position = Integer.toUnsignedString(call.getPayload());
            String text = "the call is for payload " + position + ", the batch has " + payloads;
            return Outcome.error(Status.Code.INVALID_ARGUMENT, text);
        }
        if (call.getTimeoutMillis() == 0) {
            return Outcome.TOO_LATE;
        }
        if (inFlight.size() >= MAX_IN_FLIGHT) {
            String text = MAX_IN_FLIGHT + " calls of this stream are in flight";
            return Outcome.error(Status.Code.RESOURCE_EXHAUSTED, text);
        }
        return null;
    }

    /** Ends the stream after a violation by the gateway. */
    private void fail(String problem) {
        boolean first;
        synchronized (this) {
            first = !over;
            over = true;
        }
        if (first) {
            gateway.onError(Status.INVALID_ARGUMENT.withDescription(Text.shorten(problem)).asRuntimeException());
        }
        cancelAll();
    }

    private synchronized void readOn() {
        isReadingHeld = outbox.isFull();
        if (!isReadingHeld && !over) {
            gateway.request(1);
        }
    }

    /** Sends what is ready, as far as the connection takes it, and ends the stream when all is said. */
    private synchronized void flush() {
        isFlushDue = false;
        while (!over && gateway.isReady() && !outbox.isEmpty()) {
            gateway.onNext(outbox.poll());
        }
        if (over || !outbox.isEmpty()) {
            return;
        }
        if (isReadingHeld) {
            lastBatch = System.nanoTime(); // until now nothing could come in
            readOn();
        }
        if (ended && inFlight.isEmpty()) {
            over = true;
            gateway.onCompleted();
        }
    }

    /** Has another thread flush, unless one is about to: calls that end one by one at the same time go out together. */
    private synchronized void flushSoon() {
        if (!isFlushDue && !over) {
            isFlushDue = true;
            evaluator.later(this::flush, 0);
        }
    }

    private synchronized void answered(StreamCall call, Outcome outcome) {
        if (inFlight.remove(call.id, call)) {
            outbox.add(call.id, outcome);
        }
    }

    private final class StreamCall extends Call {
        final long id;

        StreamCall(long id, Policy policy, Review review) {
            super(policy, review);
            this.id = id;
        }

        @Override
        void answer(Outcome outcome) {
            answered(this, outcome);
        }

        @Override
        void flush() {
            ReviewStream.this.flush();
        }

        @Override
        void flushSoon() {
            ReviewStream.this.flushSoon();
        }
    }
}
