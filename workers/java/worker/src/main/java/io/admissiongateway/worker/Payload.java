package io.admissiongateway.worker;

import com.google.protobuf.ByteString;
import java.lang.ref.WeakReference;
import java.util.ArrayDeque;
import java.util.Deque;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * One request as the gateway sent it, or as an earlier call of a chain leaves it, parsed on first use.
 *
 * <p>The calls of a batch share the request and its parsed form, so neither is changed: a review returns copies. Only
 * reviews keep the parsed form, which takes several times as much as the request: between two calls it may go.
 */
final class Payload {
    private final ByteString admissionRequest;
    private final ByteString namespaceObject;

    /** The version that the patch changes into this one; null: it is as it was sent. */
    private final Payload before;

    private final ByteString patch;
    private final int size;
    private WeakReference<ObjectNode> request = new WeakReference<>(null);
    private int uses;

    Payload(ByteString admissionRequest, ByteString namespaceObject) {
        this(admissionRequest, namespaceObject, null, ByteString.EMPTY);
    }

    private Payload(ByteString admissionRequest, ByteString namespaceObject, Payload before, ByteString patch) {
        this.admissionRequest = admissionRequest;
        this.namespaceObject = namespaceObject;
        this.before = before;
        this.patch = patch;
        size = before == null ? admissionRequest.size() + namespaceObject.size() : before.size + patch.size();
    }

    /**
     * Returns the payload that a call with this patch leaves. Values are parsed from the patch, so that they are what
     * the gateway would send, whatever nodes the policy made. It is unchanged if the patch does not apply.
     */
    Payload after(ByteString patch) {
        return new Payload(admissionRequest, namespaceObject, this, patch);
    }

    /** Counts one more review of this payload; to be called before any of them looks at it. */
    Payload use() {
        uses++;
        return this;
    }

    /** Whether only one review uses it, and no call follows that one. */
    boolean isSole() {
        return before == null && uses <= 1;
    }

    /** Length of the JSON, with that of the patches. */
    int size() {
        return size;
    }

    /** The AdmissionRequest; throws MalformedPayload if it is none. */
    synchronized ObjectNode request() {
        ObjectNode found = request.get();
        if (found == null) {
            found = parse();
            request = new WeakReference<>(found);
        }
        return found;
    }

    /** The Namespace, or null; throws MalformedPayload if it is none. */
    ObjectNode namespace() {
        return namespaceObject.isEmpty() ? null : Json.readObject("namespace_object", namespaceObject.toByteArray());
    }

    private synchronized ObjectNode parsed() {
        return request.get();
    }

    /** Applies the patches since the last version that is still parsed. */
    private ObjectNode parse() {
        Deque<ByteString> patches = new ArrayDeque<>();
        Payload version = this;
        ObjectNode start = null;
        for (; version.before != null && start == null; version = version.before) {
            patches.push(version.patch);
            start = version.before.parsed();
        }
        if (start == null) {
            start = Json.readObject("admission_request", admissionRequest.toByteArray());
        }
        JsonNode object = start.path("object");
        for (ByteString each : patches) {
            object = patched(object, each);
        }
        if (object == start.path("object")) {
            return start;
        }
        ObjectNode changed = start.objectNode();
        changed.setAll(start);
        changed.set("object", object);
        return changed;
    }

    private static JsonNode patched(JsonNode object, ByteString patch) {
        try {
            return JsonPatch.apply(object.deepCopy(), Json.MAPPER.readTree(patch.toByteArray()));
        } catch (IllegalArgumentException | JacksonException doesNotApply) {
            return object;
        }
    }
}
