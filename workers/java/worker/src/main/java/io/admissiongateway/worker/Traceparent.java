package io.admissiongateway.worker;

import java.util.regex.Pattern;

/**
 * W3C Trace Context.
 *
 * <p>Source: https://www.w3.org/TR/trace-context/#traceparent-header-field-values.
 */
final class Traceparent {
    /** Of version 00. */
    private static final int LENGTH = 55;

    private static final Pattern FORM =
            Pattern.compile("(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}");

    private Traceparent() {}

    /** Returns {@code text} if it is a traceparent; otherwise, and for null, the empty string. */
    static String valid(String text) {
        return text != null && text.length() == LENGTH && FORM.matcher(text).matches() ? text : "";
    }

    /** Returns the trace id of a valid traceparent. */
    static String traceId(String traceparent) {
        return traceparent.substring(3, 35);
    }
}
