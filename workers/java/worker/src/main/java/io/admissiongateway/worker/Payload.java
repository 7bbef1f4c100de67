package io.admissiongateway.worker;

import com.google.protobuf.ByteString;
import tools.jackson.databind.node.ObjectNode;

/**
 * One request as the gateway sent it, parsed on first use.
 *
 * <p>The calls of a batch share the request and its parsed form, so neither is changed: a review returns copies.
 */
final class Payload {
    private final ByteString admissionRequest;
    private final ByteString namespaceObject;
    private ObjectNode request;
    private ObjectNode namespace;
    private int uses;

    Payload(ByteString admissionRequest, ByteString namespaceObject) {
        this.admissionRequest = admissionRequest;
        this.namespaceObject = namespaceObject;
    }

    /** Counts one more review of this payload; to be called before any of them looks at it. */
    Payload use() {
        uses++;
        return this;
    }

    /** Whether only one review uses it. */
    boolean isSole() {
        return uses <= 1;
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
        if (namespace == null && !namespaceObject.isEmpty()) {
            namespace = Json.readObject("namespace_object", namespaceObject.toByteArray());
        }
        return namespace;
    }
}
