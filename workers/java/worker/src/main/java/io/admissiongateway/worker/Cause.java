package io.admissiongateway.worker;

/**
 * One entry of {@code status.details.causes}: what is wrong with one field.
 *
 * @param message what is wrong, in words
 * @param field a path such as {@code spec.containers[0].image}; empty for the whole object
 * @param reason one of Kubernetes' CauseTypes (FieldValueRequired, FieldValueInvalid, FieldValueForbidden, ...)
 */
public record Cause(String message, String field, String reason) {
    /** Kubernetes' CauseType for a value that is well-formed but that a policy does not permit. */
    public static final String FORBIDDEN = "FieldValueForbidden";

    /** A cause with the reason {@link #FORBIDDEN}. */
    public Cause(String message, String field) {
        this(message, field, FORBIDDEN);
    }
}
