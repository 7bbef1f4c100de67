package io.admissiongateway.worker;

/**
 * A policy: returns to allow and throws {@link Denied} to deny.
 *
 * <p>Anything else it throws is a failure of the webhook, for which the webhook's {@code failurePolicy} decides. It
 * may block; several threads call it at the same time.
 */
@FunctionalInterface
public interface PolicyFunction {
    /**
     * Looks at one admission request.
     *
     * @throws Exception a {@link Denied}, or whatever went wrong
     */
    void review(Review review) throws Exception;
}
