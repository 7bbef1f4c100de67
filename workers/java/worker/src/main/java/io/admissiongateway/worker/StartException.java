package io.admissiongateway.worker;

import java.io.IOException;

/** The worker cannot start; the text has the reason. */
public final class StartException extends IOException {
    private static final long serialVersionUID = 1L;

    StartException(String message) {
        super(message);
    }
}
