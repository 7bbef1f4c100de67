package io.admissiongateway.worker;

import com.google.protobuf.ByteString;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.MissingNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * One admission request for one policy.
 *
 * <p>Everything in it belongs to this one call: a policy may change what it finds, and no other policy sees it. It
 * is parsed when it is first looked at. To be used by one thread at a time, but for {@link #isCancelled()}.
 *
 * <p>Source: k8s.io/api admission/v1 types.go (AdmissionRequest); RFC 6902 (JSON Patch).
 */
public final class Review {
    /** The deadline of a call that has none. */
    static final long NEVER = Long.MAX_VALUE;

    private final Payload payload;
    private final boolean mutating;
    private final long deadline;
    private final String traceparent;
    private Typed typed = new Typed();
    private final List<String> warnings = new ArrayList<>(0);
    private final Map<String, String> annotations = new LinkedHashMap<>(0);

    /** What the calls of the payload share; kept while this one uses it. */
    private ObjectNode shared;

    private ObjectNode request;
    private JsonNode object;
    private JsonNode oldObject;
    private JsonNode namespaceObject;
    private Patch patch;
    private ByteString parametersJson = ByteString.EMPTY;
    private Object parameters;
    private volatile boolean cancelled;

    Review(Payload payload, boolean mutating, long deadline) {
        this(payload, mutating, deadline, "");
    }

    /** {@code traceparent} is that of the call, not validated; null for none. */
    Review(Payload payload, boolean mutating, long deadline, String traceparent) {
        this.payload = payload;
        this.mutating = mutating;
        this.deadline = deadline;
        this.traceparent = Traceparent.valid(traceparent);
    }

    /**
     * Returns a review for a unit test, of an AdmissionReview or the AdmissionRequest in it. It keeps track of
     * changes, so {@link #changes()} answers for mutating policies.
     *
     * @throws IllegalArgumentException if it is not a JSON object
     */
    public static Review fromJson(String json) {
        return fromJson(json, null, null);
    }

    /**
     * As {@link #fromJson(String)}, with the Namespace of the request and the time until the deadline; null
     * where there is none.
     */
    public static Review fromJson(String json, String namespaceObject, Duration timeout) {
        return fromJson(json, namespaceObject, timeout, null);
    }

    /** As {@link #fromJson(String, String, Duration)}, with the trace context; null for none. */
    public static Review fromJson(String json, String namespaceObject, Duration timeout, String traceparent) {
        ObjectNode document;
        try {
            document = Json.readObject("the review", json.getBytes(StandardCharsets.UTF_8));
        } catch (MalformedPayload problem) {
            throw new IllegalArgumentException(problem.getMessage(), problem);
        }
        JsonNode request = document.get("request") instanceof ObjectNode inner ? inner : document;
        Payload payload =
                new Payload(
                        ByteString.copyFrom(Json.MAPPER.writeValueAsBytes(request)),
                        ByteString.copyFromUtf8(namespaceObject == null ? "" : namespaceObject));
        long deadline = timeout == null ? NEVER : System.nanoTime() + timeout.toNanos();
        return new Review(payload, true, deadline, traceparent);
    }

    /** The same review with the JSON of the parameters of its call; empty for none. */
    Review withParametersJson(ByteString json) {
        parametersJson = json;
        return this;
    }

    ByteString parametersJson() {
        return parametersJson;
    }

    /** The same review with parameters as the policy prepares them; for unit tests. */
    public Review withParameters(Object prepared) {
        parameters = prepared;
        return this;
    }

    /**
     * The parameters of the webhook, as the policy prepared them ({@link Parameters}); null if it takes none. Calls
     * share them: they must not be changed.
     */
    public <T> T parameters(Class<T> type) {
        return type.cast(parameters);
    }

    /** The unchanged AdmissionRequest; {@code object} in it is {@link #object()}. */
    public ObjectNode request() {
        if (request == null) {
            if (isOwn()) {
                request = shared();
            } else {
                ObjectNode copy = shared().objectNode();
                for (Map.Entry<String, JsonNode> member : shared.properties()) {
                    JsonNode own =
                            switch (member.getKey()) {
                                case "object" -> object();
                                case "oldObject" -> oldObject();
                                default -> LazyCopy.of(member.getValue());
                            };
                    copy.set(member.getKey(), own.isMissingNode() ? copy.nullNode() : own);
                }
                request = copy;
            }
        }
        return request;
    }

    /** Whether the request has an object: all but DELETE do. For CONNECT it is options such as PodExecOptions. */
    public boolean hasObject() {
        return shared().path("object").isObject();
    }

    /** The object of the request; a missing node, which has no members, where there is none. */
    public JsonNode object() {
        if (object == null) {
            object = own("object");
        }
        return object;
    }

    /**
     * The object as a Java class that Jackson can read, such as {@code io.fabric8.kubernetes.api.model.Pod}; null
     * where there is none. Changes count once they are handed to {@link #setObject(Object)}.
     */
    public <T> T object(Class<T> type) {
        return object().isObject() ? typed.handOut(object(), type) : null;
    }

    /** Puts another object in place of the one in the request. */
    public void setObject(JsonNode object) {
        this.object = Objects.requireNonNull(object);
        if (request != null) {
            request.set("object", object);
        }
    }

    /**
     * Carries over to {@link #object()} what was changed in a typed object since {@link #object(Class)} gave it, or a
     * copy of it. Fields that the class does not know stay as they are.
     */
    public void setObject(Object changed) {
        setObject(typed.takeBack(object(), changed));
    }

    /** The stored object, for UPDATE and DELETE; otherwise a missing node. */
    public JsonNode oldObject() {
        if (oldObject == null) {
            oldObject = own("oldObject");
        }
        return oldObject;
    }

    /** The stored object as a Java class; null where there is none. */
    public <T> T oldObject(Class<T> type) {
        return oldObject().isObject() ? Typed.read(oldObject(), type) : null;
    }

    /** The Namespace of the request; a missing node if cluster-scoped or unknown to the gateway. */
    public JsonNode namespaceObject() {
        if (namespaceObject == null) {
            ObjectNode found = payload.namespace();
            namespaceObject = found == null ? MissingNode.getInstance() : found;
        }
        return namespaceObject;
    }

    /** CREATE, UPDATE, DELETE or CONNECT. */
    public String operation() {
        return text("operation");
    }

    /** Name of the object; empty for a CREATE with a generated name. */
    public String name() {
        return text("name");
    }

    /** Namespace of the request; empty for cluster-scoped resources. */
    public String namespace() {
        return text("namespace");
    }

    /** {@code group}, {@code version} and {@code kind} of the object. */
    public JsonNode kind() {
        return own("kind");
    }

    /** {@code group}, {@code version} and {@code resource} that the request is for. */
    public JsonNode resource() {
        return own("resource");
    }

    /** {@code status}, {@code scale} and the like; empty for the resource itself. */
    public String subResource() {
        return text("subResource");
    }

    /** The user of the request: {@code username}, {@code uid}, {@code groups} and {@code extra}. */
    public JsonNode userInfo() {
        return own("userInfo");
    }

    /** Whether the request will not be stored; a policy must have no side effects then. */
    public boolean isDryRun() {
        return shared().path("dryRun").booleanValue(false);
    }

    /** Unique id of this review; a repetition or reinvocation has another one. */
    public String uid() {
        return text("uid");
    }

    /** Time until the deadline, for calls that the policy makes; negative after it. */
    public Duration remaining() {
        return Duration.ofNanos(deadline == NEVER ? NEVER : deadline - System.nanoTime());
    }

    /**
     * Whether nobody waits for the answer any more: the deadline has passed, or the gateway does not want it. The
     * policy's thread is interrupted too. May be asked from any thread.
     */
    public boolean isCancelled() {
        return cancelled;
    }

    /** Adds a warning for the user, also sent with denials; the gateway cuts it to 256 characters. */
    public void warn(String text) {
        warnings.add(Text.clean(text));
    }

    /** Adds an audit annotation; it becomes {@code WEBHOOK.key}. A later value replaces an earlier one. */
    public void annotate(String key, String value) {
        annotations.put(Text.clean(key), Text.clean(value));
    }

    /** The warnings so far. */
    public List<String> warnings() {
        return List.copyOf(warnings);
    }

    /** The audit annotations so far. */
    public Map<String, String> annotations() {
        return Map.copyOf(annotations);
    }

    /** Begins a JSON Patch, or goes on with it. It then counts instead of what was changed in the object. */
    public Patch patch() {
        if (patch == null) {
            patch = new Patch();
        }
        return patch;
    }

    /**
     * Returns the JSON Patch of this call: the policy's own if it began one, else what it changed in the object.
     * Always empty for a policy that is not mutating.
     *
     * @throws IllegalStateException if the request has no object to change, or it was replaced by something else
     */
    public ArrayNode changes() {
        if (!mutating || (patch == null && object == null && request == null)) {
            return JsonNodeFactory.instance.arrayNode();
        }
        JsonNode before = shared().path("object");
        if (patch != null) {
            if (!patch.operations().isEmpty() && !before.isObject()) {
                throw new IllegalStateException("the policy made a patch, but the request has no object to patch");
            }
            return patch.operations().deepCopy();
        }
        JsonNode after = request == null ? object() : request.path("object");
        if (isNone(before)) {
            if (isNone(after)) {
                return JsonNodeFactory.instance.arrayNode();
            }
            throw new IllegalStateException("the policy set an object, but the request has none to change");
        }
        if (!after.isObject() && !Json.same(before, after)) {
            throw new IllegalStateException("the object is to stay a JSON object, found " + after.getNodeType());
        }
        return JsonDiff.diff(before, after);
    }

    long deadline() {
        return deadline;
    }

    Payload payload() {
        return payload;
    }

    int size() {
        return payload.size();
    }

    boolean hasMore() {
        return mutating || !warnings.isEmpty() || !annotations.isEmpty();
    }

    List<String> ownWarnings() {
        return warnings;
    }

    Map<String, String> ownAnnotations() {
        return annotations;
    }

    /**
     * The W3C Trace Context of the gateway's span for this call, with which a policy that traces continues the trace;
     * empty if there is none.
     */
    public String traceparent() {
        return traceparent;
    }

    void cancel() {
        cancelled = true;
    }

    /** Drops what this call has copied or changed: the other calls of its batch may keep it for long. */
    void forget() {
        typed = new Typed();
        shared = null;
        request = null;
        object = null;
        oldObject = null;
        namespaceObject = null;
        patch = null;
        warnings.clear();
        annotations.clear();
    }

    private ObjectNode shared() {
        if (shared == null) {
            shared = payload.request();
        }
        return shared;
    }

    /** Whether what was parsed may be handed out as it is: nobody else reads it, and it is not compared later. */
    private boolean isOwn() {
        return !mutating && payload.isSole();
    }

    private JsonNode own(String name) {
        JsonNode found = (request == null ? shared() : request).path(name);
        if (isNone(found)) {
            return MissingNode.getInstance();
        }
        return isOwn() || request != null ? found : LazyCopy.of(found);
    }

    private static boolean isNone(JsonNode node) {
        return node.isMissingNode() || node.isNull();
    }

    /** Returns the uid; empty if the request is malformed. */
    String loggedUid() {
        try {
            return text("uid");
        } catch (MalformedPayload problem) {
            return "";
        }
    }

    private String text(String name) {
        return shared().path(name).stringValue("");
    }
}
