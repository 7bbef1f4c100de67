package io.admissiongateway.worker;

/** The gateway has sent something other than a JSON object. */
final class MalformedPayload extends RuntimeException {
    private static final long serialVersionUID = 1L;

    MalformedPayload(String message) {
        super(message, null, false, false);
    }
}
