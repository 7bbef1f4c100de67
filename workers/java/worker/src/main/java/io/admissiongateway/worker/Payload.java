package io.admissiongateway.worker;

import com.google.protobuf.ByteString;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * One request as the gateway sent it, parsed on first use, or as an earlier call of a chain leaves it.
 *
 * <p>The calls of a batch share the request and its parsed form, so neither is changed: a review returns copies.
 */
final class Payload {
    private final ByteString admissionRequest;
    private final ByteString namespaceObject;
    private ObjectNode request;
    private ObjectNode namespace;
    private int uses;

    /** The payload that was sent; null if this is it. */
    private final Payload sent;

    Payload(ByteString admissionRequest, ByteString namespaceObject) {
        this.admissionRequest = admissionRequest;
        this.namespaceObject = namespaceObject;
        this.sent = null;
    }

    private Payload(Payload sent, ObjectNode request) {
        admissionRequest = sent.admissionRequest;
        namespaceObject = sent.namespaceObject;
        this.sent = sent;
        this.request = request;
    }

    /**
     * Returns the payload that a call with this patch leaves. Values are parsed from the patch, so that they are what
     * the gateway would send, whatever nodes the policy made. It is unchanged if the patch does not apply.
     */
    Payload after(ByteString patch) {
        ObjectNode before = request();
        JsonNode object;
        try {
            JsonNode operations = Json.MAPPER.readTree(patch.toByteArray());
            object = JsonPatch.apply(before.path("object").deepCopy(), operations);
        } catch (IllegalArgumentException | JacksonException doesNotApply) {
            return this;
        }
        ObjectNode changed = before.objectNode();
        changed.setAll(before);
        changed.set("object", object);
        return new Payload(sent == null ? this : sent, changed);
    }

    /** Counts one more review of this payload; to be called before any of them looks at it. */
    Payload use() {
        uses++;
        return this;
    }

    /** Whether only one review uses it, and no call follows that one. */
    boolean isSole() {
        return sent == null && uses <= 1;
    }

    int size() {
        return admissionRequest.size();
    }

    /** The AdmissionRequest; throws MalformedPayload if it is none. */
    synchronized ObjectNode request() {
        if (request == null) {
            request = Json.readObject("admission_request", admissionRequest.toByteArray());
        }
        return request;
    }

    /** The Namespace, or null; throws MalformedPayload if it is none. */
    synchronized ObjectNode namespace() {
        if (sent != null) {
            return sent.namespace();
        }
        if (namespace == null && !namespaceObject.isEmpty()) {
            namespace = Json.readObject("namespace_object", namespaceObject.toByteArray());
        }
        return namespace;
    }
}
