package io.admissiongateway.worker;

import java.util.concurrent.Executor;

/** The bounds of a worker, for all its connections together. */
final class Limits {
    /** Limit of the parameters that all streams keep. */
    static final long MAX_KEPT_PARAMETERS_BYTES = 64L * 1024 * 1024;

    /** Limit of what has arrived and is not answered. */
    static final long MAX_RECEIVED_BYTES = 256L * 1024 * 1024;

    final Store parameters;
    final Store received;

    Limits(Executor ender) {
        parameters = new Store("bytes of parameters", MAX_KEPT_PARAMETERS_BYTES, ender);
        received = new Store("bytes of requests", MAX_RECEIVED_BYTES, ender);
    }
}
