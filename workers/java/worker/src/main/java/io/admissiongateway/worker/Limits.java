package io.admissiongateway.worker;

import java.util.concurrent.Executor;

/** The bounds of a worker, for all its connections together. */
final class Limits {
    /** Limit of the parameters that all streams keep. */
    static final long MAX_KEPT_PARAMETERS_BYTES = 64L * 1024 * 1024;

    /** Limit of what has arrived and is not answered. */
    static final long MAX_RECEIVED_BYTES = 256L * 1024 * 1024;

    /** Limit of open RPCs, and of those of one connection. A gateway has a stream, and calls up to its maxInFlight. */
    static final int MAX_RPCS = 16_384;

    static final int MAX_CONNECTION_RPCS = 4096;

    final Store parameters;
    final Store received;
    final Store rpcs;

    Limits(Executor ender) {
        parameters = new Store("bytes of parameters", MAX_KEPT_PARAMETERS_BYTES, ender);
        received = new Store("bytes of requests", MAX_RECEIVED_BYTES, ender);
        rpcs = new Store("open calls", MAX_RPCS, ender);
    }
}
