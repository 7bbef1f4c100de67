package io.admissiongateway.worker;

/** What the gateway sent is not the JSON object that the contract asks for. */
final class MalformedPayload extends RuntimeException {
    private static final long serialVersionUID = 1L;

    MalformedPayload(String message) {
        super(message, null, false, false);
    }
}
