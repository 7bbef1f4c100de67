package io.admissiongateway.worker;

/**
 * One entry of {@code status.details.causes}: the problem of one field.
 *
 * @param message the problem
 * @param field a path such as {@code spec.containers[0].image}; empty for the whole object
 * @param reason one of Kubernetes' CauseTypes (FieldValueRequired, FieldValueInvalid, FieldValueForbidden, ...)
 */
public record Cause(String message, String field, String reason) {
    /** CauseType of Kubernetes for a well-formed value that a policy does not permit. */
    public static final String FORBIDDEN = "FieldValueForbidden";

    /** A cause with the reason {@link #FORBIDDEN}. */
    public Cause(String message, String field) {
        this(message, field, FORBIDDEN);
    }
}
