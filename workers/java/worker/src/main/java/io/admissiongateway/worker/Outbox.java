package io.admissiongateway.worker;

import admissiongateway.worker.v1.Worker.Verdict;
import admissiongateway.worker.v1.Worker.VerdictBatch;
import java.util.ArrayDeque;
import java.util.Deque;

/** Unsent verdicts, as messages within the size limit. The stream's lock guards it. */
final class Outbox {
    /** Upper bound of a verdict's size without its outcome: tags, lengths and a 64-bit id. */
    private static final int VERDICT_BYTES = 64;

    private record Sealed(VerdictBatch message, long bytes) {}

    private final Deque<Sealed> full = new ArrayDeque<>();
    private VerdictBatch.Builder next = VerdictBatch.newBuilder();
    private long nextBytes;

    /** Of all verdicts, and of those that the connection has taken, but not sent. */
    private long bytes;

    private long takenBytes;

    /** Adds a verdict to the next message. */
    void add(long id, boolean chained, Outcome outcome) {
        int size = VERDICT_BYTES + outcome.size();
        if (nextBytes + size > Outcome.MAX_MESSAGE_BYTES) {
            seal();
        }
        nextBytes += size;
        bytes += size;
        Verdict.Builder verdict = next.addVerdictsBuilder().setId(id).setChained(chained);
        if (outcome.error() != null) {
            verdict.setError(outcome.error());
        } else {
            verdict.setResponse(outcome.response());
        }
    }

    /** Adds the drain notice to the next message. */
    void addDraining() {
        next.setDraining(true);
    }

    boolean isEmpty() {
        return full.isEmpty() && next.getVerdictsCount() == 0 && !next.getDraining();
    }

    /** The size of what is not sent. */
    long bytes() {
        return bytes;
    }

    /** Notes that the connection has sent what it has taken, so that it is ready for more. */
    void sent() {
        bytes -= takenBytes;
        takenBytes = 0;
    }

    /** Whether about one full message waits. */
    boolean isFull() {
        return !full.isEmpty();
    }

    /** Returns and removes the next message, which must not be empty. */
    VerdictBatch poll() {
        if (full.isEmpty()) {
            seal();
        }
        Sealed first = full.poll();
        takenBytes += first.bytes();
        return first.message();
    }

    void clear() {
        full.clear();
        next = VerdictBatch.newBuilder();
        nextBytes = 0;
        bytes = 0;
        takenBytes = 0;
    }

    private void seal() {
        full.add(new Sealed(next.build(), nextBytes));
        next = VerdictBatch.newBuilder();
        nextBytes = 0;
    }
}
