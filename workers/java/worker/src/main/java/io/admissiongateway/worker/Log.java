package io.admissiongateway.worker;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * The worker's log, written by a separate thread, so that no review waits for a blocked stderr. Records that do not
 * fit into the queue are dropped.
 *
 * <p>A record is one line with its time, and the stack trace in marked lines after it. No text can begin another one.
 */
final class Log {
    /** Begins each line of a stack trace; no record begins with it. */
    static final String CONTINUED = "    | ";

    /** Limit of each value in a record, and of a line of a stack trace. */
    private static final int MAX_CHARACTERS = 1000;

    private static final int MAX_STACK_LINES = 100;

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

    /**
     * Logs an error, and the stack trace of {@code problem} unless that is null.
     *
     * @param text a line, with values {@link #quoted}
     */
    static void error(String text, Throwable problem) {
        StringBuilder record = new StringBuilder(Instant.now().truncatedTo(ChronoUnit.MILLIS).toString());
        record.append(" ERROR worker: ").append(text);
        if (problem != null) {
            stackOf(problem)
                    .lines()
                    .limit(MAX_STACK_LINES)
                    .forEach(line -> record.append('\n').append(CONTINUED).append(escaped(line)));
        }
        WRITER.execute(() -> LOG.log(System.Logger.Level.ERROR, record.toString()));
    }

    /** Returns {@code text} in quotes, cut, and with its control characters escaped. */
    static String quoted(String text) {
        return '"' + escaped(text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n")) + '"';
    }

    /** Waits until what was logged is written, for {@code nanos} at most; returns whether it is. */
    static boolean flush(long nanos) throws InterruptedException {
        CountDownLatch written = new CountDownLatch(1);
        WRITER.execute(written::countDown);
        return written.await(nanos, TimeUnit.NANOSECONDS);
    }

    private static String escaped(String text) {
        StringBuilder escaped = new StringBuilder();
        Text.start(text, MAX_CHARACTERS)
                .codePoints()
                .forEach(
                        c -> {
                            switch (Character.getType(c)) {
                                case Character.CONTROL,
                                        Character.FORMAT,
                                        Character.LINE_SEPARATOR,
                                        Character.PARAGRAPH_SEPARATOR,
                                        Character.SURROGATE,
                                        Character.UNASSIGNED,
                                        Character.PRIVATE_USE ->
                                        escaped.append(c == '\t' ? " " : String.format("\\u%04x", c));
                                default -> escaped.appendCodePoint(c);
                            }
                        });
        return escaped.toString();
    }

    private static String stackOf(Throwable problem) {
        StringWriter text = new StringWriter();
        try {
            problem.printStackTrace(new PrintWriter(text));
        } catch (Throwable unreadable) { // the policy's own code
            text.write("the stack trace is not readable");
        }
        return text.toString();
    }
}
