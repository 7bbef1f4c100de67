package io.admissiongateway.worker;

import java.nio.charset.StandardCharsets;

/** Texts that leave the worker. */
final class Text {
    /**
     * Limit of an Error's text in bytes. In a unary answer it is percent-encoded, up to three times as long, in the
     * trailers, which gRPC limits to 8 KiB.
     */
    static final int MAX_ERROR_BYTES = 2000;

    private Text() {}

    /** Returns {@code text} with question marks in place of unpaired surrogates, which UTF-8 cannot say. */
    static String clean(String text) {
        String given = String.valueOf(text);
        for (int index = 0; index < given.length(); index++) {
            if (Character.isSurrogate(given.charAt(index))) {
                return new String(given.getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8);
            }
        }
        return given;
    }

    /** Returns {@code text}, cut to {@code MAX_ERROR_BYTES}. */
    static String shorten(String text) {
        byte[] encoded = text.getBytes(StandardCharsets.UTF_8);
        if (encoded.length <= MAX_ERROR_BYTES) {
            return clean(text);
        }
        int end = MAX_ERROR_BYTES - 3;
        while ((encoded[end] & 0xC0) == 0x80) {
            end--; // in the middle of a character
        }
        return new String(encoded, 0, end, StandardCharsets.UTF_8) + "...";
    }

    /** Returns the first {@code length} code points of {@code text}. */
    static String start(String text, int length) {
        return text.codePointCount(0, text.length()) <= length
                ? text
                : text.substring(0, text.offsetByCodePoints(0, length));
    }
}
