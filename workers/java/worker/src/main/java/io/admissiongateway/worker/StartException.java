package io.admissiongateway.worker;

import java.io.IOException;

/** The worker cannot start as it was told to; the text says what to change. */
public final class StartException extends IOException {
    private static final long serialVersionUID = 1L;

    StartException(String message) {
        super(message);
    }
}
