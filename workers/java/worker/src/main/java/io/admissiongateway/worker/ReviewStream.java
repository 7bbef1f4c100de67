package io.admissiongateway.worker;

import admissiongateway.worker.v1.Worker;
import admissiongateway.worker.v1.Worker.ReviewBatch;
import admissiongateway.worker.v1.Worker.VerdictBatch;
import com.google.protobuf.ByteString;
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
 * Bounds: {@code MAX_IN_FLIGHT} calls; no further batch is read, and no further call begins, while a full message of
 * verdicts is unsent.
 *
 * <p>Source: protos/README.md.
 */
final class ReviewStream implements StreamObserver<Received<ReviewBatch>> {
    /** Four times the default maxInFlight of the gateway. */
    static final int MAX_IN_FLIGHT = 4096;

    /** Limit of the JSON of one value. */
    static final int MAX_PARAMETERS_BYTES = 64 * 1024;

    private static final int MAX_PARAMETERS_ID = 256;

    private static final Outcome TOO_MANY_CALLS =
            Outcome.error(Status.Code.RESOURCE_EXHAUSTED, MAX_IN_FLIGHT + " calls of this stream are in flight");

    /**
     * Time without a message after which the worker ends a draining stream: several round trips, for batches that the
     * gateway sent before it received the drain notice.
     */
    private static final long QUIET_NANOS = TimeUnit.MILLISECONDS.toNanos(500);

    private final ServerCallStreamObserver<VerdictBatch> gateway;
    private final Map<String, Policy> policies;
    private final Evaluator evaluator;
    /** JSON of the parameters, by id. */
    private final Map<Integer, ByteString> parameters = new HashMap<>();

    private final Limits limits;
    private final Client client = Client.current();
    private final Store.Part keptPart;
    private final Store.Part receivedPart;

    /** Length of the JSON of all parameters. */
    private long parameterBytes;

    /** Length of the messages whose calls are in flight. */
    private long received;

    private final Map<Long, StreamCall> inFlight = new HashMap<>();
    private final Outbox outbox = new Outbox();

    /** Continue batches that wait for room in the outbox. */
    private final List<Runnable> held = new ArrayList<>();

    private boolean draining;
    private boolean isReadingHeld;
    private boolean isFlushDue;

    /** Whether no more messages will be read. */
    private boolean ended;

    /** Whether no more messages will be written. */
    private boolean over;

    private long lastBatch;

    ReviewStream(
            ServerCallStreamObserver<VerdictBatch> gateway,
            Map<String, Policy> policies,
            Evaluator evaluator,
            Limits limits) {
        this.gateway = gateway;
        this.limits = limits;
        keptPart = new Store.Part(client, this::fail);
        receivedPart = new Store.Part(client, this::fail);
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
        List<StreamCall> calls = accept(received.message(), received.size(), unwanted);
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
            parameters.clear();
            parameterBytes = 0;
            received = 0;
            count();
            release();
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
    private List<StreamCall> accept(ReviewBatch batch, int size, List<StreamCall> unwanted) {
        Message message = new Message(client, size);
        long arrived = System.nanoTime();
        List<StreamCall> calls = new ArrayList<>(batch.getCallsCount());
        List<Payload> payloads = new ArrayList<>(batch.getPayloadsCount());
        for (Worker.Payload payload : batch.getPayloadsList()) {
            payloads.add(new Payload(payload.getAdmissionRequest(), payload.getNamespaceObject()));
        }
        Set<Long> cancelled = batch.getCancelledCount() == 0 ? Set.of() : new HashSet<>(batch.getCancelledList());
        boolean hasChains = batch.getCallsList().stream().anyMatch(call -> call.getAfter() != 0);
        Map<Long, Link> links = new HashMap<>();
        synchronized (this) {
            lastBatch = arrived;
            if (over) {
                return List.of();
            }
            String problem = takeParameters(batch.getParametersList());
            if (problem != null) {
                fail(problem);
                return List.of();
            }
            int index = 0;
            for (Worker.Call call : batch.getCallsList()) {
                index++;
                Link before = call.getAfter() == 0 ? null : links.get(call.getAfter());
                before = before != null && before.payload() == call.getPayload() ? before : null;
                Link link;
                if (cancelled.contains(call.getId()) || (before != null && before.isCancelled())) {
                    link = new Link(call.getPayload(), null, true);
                } else if (inFlight.containsKey(call.getId())) {
                    String id = Long.toUnsignedString(call.getId());
                    fail("call id " + id + " is used again while its call is in flight");
                    return List.of();
                } else {
                    boolean isExcess = index > MAX_IN_FLIGHT;
                    StreamCall leaving = accept(call, payloads, before, arrived, calls, isExcess ? null : message);
                    link = new Link(call.getPayload(), leaving, false);
                }
                if (hasChains) {
                    links.put(call.getId(), link);
                }
            }
            for (Long id : cancelled) {
                remove(id, unwanted);
            }
            count();
        }
        return calls;
    }

    /**
     * Adds a call to {@code calls}, or rejects it.
     *
     * @param before what the call before it in its chain leaves; null for none
     * @param message the message of the call; null if it has too many calls before this one
     * @return the call that leaves the object for the calls after this one; null: the object is the one that was sent
     */
    private StreamCall accept(
            Worker.Call call,
            List<Payload> payloads,
            Link before,
            long arrived,
            List<StreamCall> calls,
            Message message) {
        StreamCall leaving = before == null ? null : before.call();
        Outcome refused = message == null ? TOO_MANY_CALLS : refused(call, payloads.size(), before);
        if (refused != null) {
            outbox.add(call.getId(), call.getAfter() != 0, refused);
            return leaving;
        }
        Policy policy = policies.get(call.getPolicy());
        long timeout = TimeUnit.MILLISECONDS.toNanos(Integer.toUnsignedLong(call.getTimeoutMillis()));
        Payload payload = payloads.get(call.getPayload()).use();
        StreamCall accepted;
        if (leaving == null) {
            Review review = new Review(payload, policy.mutating, arrived + timeout, call.getTraceparent());
            accepted = new StreamCall(call, message, policy, review.withParametersJson(parametersOf(call)));
        } else {
            accepted = new StreamCall(call, message, policy, leaving, timeout, parametersOf(call));
        }
        received += message.calls++ == 0 ? message.size : 0;
        inFlight.put(accepted.id, accepted);
        calls.add(accepted);
        return accepted;
    }

    /** Takes the parameters of a batch; returns what is wrong with them, null for nothing. */
    private String takeParameters(List<Worker.Parameters> sent) {
        for (Worker.Parameters one : sent) {
            if (one.getId() == 0 || Integer.compareUnsigned(one.getId(), MAX_PARAMETERS_ID) > 0) {
                String id = Integer.toUnsignedString(one.getId());
                return "parameters have the id " + id + ", expected 1 to " + MAX_PARAMETERS_ID;
            }
            int size = one.getJson().size();
            if (size > MAX_PARAMETERS_BYTES) {
                return "parameters have " + size + " bytes, expected at most " + MAX_PARAMETERS_BYTES;
            }
            ByteString replaced = parameters.put(one.getId(), one.getJson());
            parameterBytes += size - (replaced == null ? 0 : replaced.size());
        }
        return null;
    }

    private ByteString parametersOf(Worker.Call call) {
        return call.getParameters() == 0 ? ByteString.EMPTY : parameters.get(call.getParameters());
    }

    /** Removes a call in flight, and all that depend on its object; puts them into {@code unwanted}. */
    private void remove(Long id, List<StreamCall> unwanted) {
        int first = unwanted.size();
        StreamCall cancelled = inFlight.remove(id);
        if (cancelled != null) {
            drop(cancelled);
            unwanted.add(cancelled);
        }
        for (int index = first; index < unwanted.size(); index++) {
            for (Call call : unwanted.get(index).dependents()) {
                if (call instanceof StreamCall dependent && inFlight.remove(dependent.id, dependent)) {
                    drop(dependent);
                    unwanted.add(dependent);
                }
            }
        }
    }

    /**
     * Returns the outcome of a rejected call; null if it is accepted.
     *
     * @param before the call before it in its chain; null for none
     */
    private Outcome refused(Worker.Call call, int payloads, Link before) {
        if (!policies.containsKey(call.getPolicy())) {
            return Outcome.unknownPolicy(call.getPolicy(), policies.keySet());
        }
        if (Integer.compareUnsigned(call.getPayload(), payloads) >= 0) {
            String position = Integer.toUnsignedString(call.getPayload());
            String text = "the call is for payload " + position + ", the batch has " + payloads;
            return Outcome.error(Status.Code.INVALID_ARGUMENT, text);
        }
        if (call.getAfter() != 0 && before == null) {
            String text = "no earlier call of the batch has the id %s and the same payload";
            return Outcome.error(
                    Status.Code.INVALID_ARGUMENT, String.format(text, Long.toUnsignedString(call.getAfter())));
        }
        if (call.getParameters() != 0 && !parameters.containsKey(call.getParameters())) {
            String text = "the call has an id of parameters that this stream has not had";
            return Outcome.error(Status.Code.INVALID_ARGUMENT, text);
        }
        if (call.getTimeoutMillis() == 0) {
            return Outcome.TOO_LATE;
        }
        if (inFlight.size() >= MAX_IN_FLIGHT) {
            return TOO_MANY_CALLS;
        }
        return null;
    }

    /** Ends the stream after a violation by the gateway. */
    private void fail(String problem) {
        fail(Outcome.error(Status.Code.INVALID_ARGUMENT, problem));
    }

    /** Ends the stream with this error. */
    private void fail(Outcome outcome) {
        synchronized (this) {
            if (!over) {
                over = true;
                gateway.onError(outcome.status().asRuntimeException());
            }
        }
        cancelAll();
    }

    /** Tells the limits what this stream has; requires the lock. */
    private void count() {
        limits.parameters.set(keptPart, parameterBytes);
        limits.received.set(receivedPart, received + outbox.bytes());
    }

    /** Lets go of what a call has kept; requires the lock. */
    private void drop(StreamCall ended) {
        received -= --ended.message.calls == 0 ? ended.message.size : 0;
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
        while (!over && gateway.isReady()) {
            outbox.sent();
            if (outbox.isEmpty()) {
                break;
            }
            gateway.onNext(outbox.poll());
        }
        count();
        if (!outbox.isFull()) {
            release();
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

    private synchronized boolean mayAnswer(Runnable resume) {
        boolean may = over || !outbox.isFull();
        if (!may) {
            held.add(resume);
        }
        return may;
    }

    /** Has batches continue that wait for room; requires the lock. */
    private void release() {
        List<Runnable> released = List.copyOf(held);
        held.clear();
        released.forEach(Runnable::run);
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
            int left = call.leftBytes(outcome);
            call.message.size += left;
            received += left;
            drop(call);
            outbox.add(call.id, call.chained, outcome);
            count();
        }
    }

    /**
     * What a call of a batch leaves to the calls after it.
     *
     * @param payload the index of its payload
     * @param call the call that leaves the object; null if the object is the one that was sent
     * @param isCancelled whether the calls after it are cancelled too
     */
    private record Link(int payload, StreamCall call, boolean isCancelled) {}

    /** A message, which counts as received while a call of it is in flight. */
    private static final class Message {
        private final Client client;

        /** With the patches that calls leave to those after them. */
        private long size;

        private int calls;

        Message(Client client, int size) {
            this.client = client;
            this.size = size;
        }
    }

    private final class StreamCall extends Call {
        final long id;
        final Message message;
        final boolean chained;

        StreamCall(Worker.Call call, Message message, Policy policy, Review review) {
            super(policy, message.client, review);
            this.message = message;
            id = call.getId();
            chained = call.getAfter() != 0;
        }

        StreamCall(
                Worker.Call call,
                Message message,
                Policy policy,
                StreamCall before,
                long timeoutNanos,
                ByteString parameters) {
            super(policy, before, timeoutNanos, call.getTraceparent(), parameters);
            this.message = message;
            id = call.getId();
            chained = true;
        }

        @Override
        void answer(Outcome outcome) {
            answered(this, outcome);
        }

        @Override
        boolean mayAnswer(Runnable resume) {
            return ReviewStream.this.mayAnswer(resume);
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
