package io.admissiongateway.worker;

import com.google.protobuf.ByteString;
import io.grpc.Status;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import tools.jackson.databind.node.ObjectNode;

/** A registered policy: its function, and run-time observations. */
final class Policy {
    /** Interval of logged failures for each policy: logging all failures would use too much CPU. */
    private static final long LOG_INTERVAL_NANOS = TimeUnit.SECONDS.toNanos(1);

    /** A run that ends within this waited for nothing. */
    private static final long QUICK_NANOS = TimeUnit.MILLISECONDS.toNanos(1);

    /** Quick runs in a row after which a policy counts as quick again; a JVM is slow at first. */
    private static final int QUICK_AGAIN = 32;

    /** Prepared values of a policy that are kept. */
    static final int MAX_PREPARED = 1024;

    /** Of their JSON together: the prepared values take several times as much, and a namespace can change its own. */
    static final int MAX_PREPARED_BYTES = 4 * 1024 * 1024;

    final String name;
    final String description;
    final String version;
    final boolean mutating;
    private final PolicyFunction function;

    /** Null: it takes none. */
    final Parameters parameters;

    /** By the JSON of the parameters, those that were used last. */
    private final Map<ByteString, Prepared> prepared = new LinkedHashMap<>(16, 0.75f, true);

    /** The length of the JSON of all. */
    private int preparedBytes;

    /** Whether a run has lately held up others, so that the next one gets a thread of its own. */
    private volatile boolean slow;

    private int quickRuns;
    /** Null without metrics. */
    private volatile Meter meter;

    private long quietUntil = System.nanoTime();
    private int unlogged;

    Policy(String name, String description, String version, boolean mutating, PolicyFunction function) {
        this(name, description, version, mutating, null, function);
    }

    Policy(
            String name,
            String description,
            String version,
            boolean mutating,
            Parameters parameters,
            PolicyFunction function) {
        this.parameters = parameters;
        this.name = name;
        this.description = description;
        this.version = version;
        this.mutating = mutating;
        this.function = function;
    }

    /**
     * Runs a policy that is nobody's, so that the first review does not wait for a second or so until the JVM has
     * loaded what every review needs.
     */
    static void warmUp() {
        ByteString request = ByteString.copyFromUtf8("{\"object\": {\"a\": [1, 0.5, \"\"]}}");
        Payload payload = new Payload(request, ByteString.EMPTY);
        PolicyFunction function = review -> ((ObjectNode) review.object()).put("b", review.operation());
        new Policy("", "", "", true, function).evaluate(new Review(payload.use(), true, Review.NEVER));
    }

    /** Runs the policy with its parameters and returns how it ended; never throws. */
    Outcome evaluate(Review review) {
        ByteString json = review.parametersJson();
        if (json.isEmpty() && parameters == null) {
            return decide(review);
        }
        Prepared given = preparedFor(json);
        String refusal = given.refusal(json);
        if (refusal != null) {
            Throwable unlogged = given.failure.getAndSet(null);
            if (unlogged != null) {
                logFailure(review, unlogged);
            }
            return Outcome.error(Status.Code.INVALID_ARGUMENT, refusal);
        }
        review.withParameters(given.value);
        Outcome outcome = decide(review);
        return json.isEmpty() ? outcome : outcome.withParameters();
    }

    /** Returns why no call can be evaluated with parameters that are not too long; null if calls can. Logs nothing. */
    String refusal(ByteString json) {
        return json.isEmpty() && parameters == null ? null : preparedFor(json).refusal(json);
    }

    /** Returns what is wrong with the length of parameters; null for nothing. */
    static String tooLong(ByteString json) {
        int size = json.size();
        return size <= ReviewStream.MAX_PARAMETERS_BYTES
                ? null
                : "the parameters have " + size + " bytes, expected at most " + ReviewStream.MAX_PARAMETERS_BYTES;
    }

    /** Returns the value of this JSON, and drops those whose last use is longest ago beyond the limits. */
    private Prepared preparedFor(ByteString json) {
        synchronized (prepared) {
            Prepared given = prepared.get(json);
            if (given == null) {
                given = new Prepared();
                prepared.put(json, given);
                preparedBytes += json.size();
                var oldest = prepared.keySet().iterator();
                while (prepared.size() > MAX_PREPARED || preparedBytes > MAX_PREPARED_BYTES) {
                    preparedBytes -= oldest.next().size();
                    oldest.remove();
                }
            }
            return given;
        }
    }

    /** How many values are prepared and kept. */
    int preparedCount() {
        synchronized (prepared) {
            return prepared.size();
        }
    }

    /** Parameters, prepared by the first who asks for the refusal. */
    private final class Prepared {
        /** What the policy made of them. */
        private Object value;

        private String refusal;
        private boolean isDone;

        /** Why they cannot be used, until a call has logged it. */
        private final AtomicReference<Throwable> failure = new AtomicReference<>();

        /** Returns why they cannot be used; null if they can. */
        synchronized String refusal(ByteString json) {
            if (!isDone) {
                refusal = prepare(json);
                isDone = true;
            }
            return refusal;
        }

        private String prepare(ByteString json) {
            if (parameters == null) {
                return "policy \"" + name + "\" takes no parameters";
            }
            ObjectNode given;
            try {
                given =
                        json.isEmpty()
                                ? Json.MAPPER.createObjectNode()
                                : Json.readObject("parameters", json.toByteArray());
            } catch (MalformedPayload problem) {
                return problem.getMessage();
            }
            try {
                value = parameters.prepare().prepare(given);
                return null;
            } catch (Throwable problem) { // as for the policy itself
                failure.set(problem);
                return "the parameters of policy \"" + name + "\" cannot be used: " + Outcome.describe(problem);
            }
        }
    }

    private Outcome decide(Review review) {
        try {
            function.review(review);
            return Outcome.returned(review);
        } catch (Throwable problem) { // an Error too: one broken policy does not end a worker
            Outcome outcome = Outcome.thrown(review, problem);
            if (outcome.isFailure() && !review.isCancelled()) {
                logFailure(review, problem);
            }
            return outcome;
        }
    }

    /** Returns what counts its calls; null without metrics. */
    Meter meter() {
        return meter;
    }

    /** Has its calls counted. */
    void measure(Metrics metrics) {
        meter = metrics.meter(name);
    }

    boolean isSlow() {
        return slow;
    }

    /** Notes that a run took long. */
    void markSlow() {
        slow = true;
    }

    /** Notes how long a run in a thread of its own took. */
    synchronized void ran(long nanos) {
        quickRuns = nanos < QUICK_NANOS ? quickRuns + 1 : 0;
        if (quickRuns >= QUICK_AGAIN) {
            quickRuns = 0;
            slow = false;
        }
    }

    private void logFailure(Review review, Throwable problem) {
        int more;
        synchronized (this) {
            long now = System.nanoTime();
            if (now - quietUntil < 0) {
                unlogged++;
                return;
            }
            quietUntil = now + LOG_INTERVAL_NANOS;
            more = unlogged;
            unlogged = 0;
        }
        String uid = review.loggedUid();
        String traceparent = review.traceparent();
        Log.error(
                "policy failed: policy="
                        + Log.quoted(name)
                        + (uid.isEmpty() ? "" : " uid=" + Log.quoted(uid))
                        + (traceparent.isEmpty() ? "" : " trace_id=" + Log.quoted(Traceparent.traceId(traceparent)))
                        + " error="
                        + Log.quoted(Outcome.describeFully(problem))
                        + (more == 0 ? "" : " dropped=" + more),
                problem);
    }
}
