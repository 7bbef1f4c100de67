package io.admissiongateway.worker;

import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * The worker's log, written by a separate thread, so that no review waits for a blocked stderr. Lines that do not
 * fit into the queue are dropped.
 */
final class Log {
    private static final System.Logger LOG = System.getLogger("io.admissiongateway.worker");

    private static final ThreadPoolExecutor WRITER =
            new ThreadPoolExecutor(
                    0,
                    1,
                    1,
                    TimeUnit.SECONDS,
                    new ArrayBlockingQueue<>(64),
                    work -> Evaluator.daemon(work, "policy-log"),
                    new ThreadPoolExecutor.DiscardPolicy());

    private Log() {}

    /** Logs an error, and the stack trace of {@code problem} unless that is null. */
    static void error(String text, Throwable problem) {
        WRITER.execute(() -> LOG.log(System.Logger.Level.ERROR, text, problem));
    }

    /** Waits until what was logged is written, for {@code nanos} at most; returns whether it is. */
    static boolean flush(long nanos) throws InterruptedException {
        CountDownLatch written = new CountDownLatch(1);
        WRITER.execute(written::countDown);
        return written.await(nanos, TimeUnit.NANOSECONDS);
    }
}
