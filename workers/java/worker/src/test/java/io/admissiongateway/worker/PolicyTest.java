package io.admissiongateway.worker;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.grpc.Status;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.logging.Filter;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** How a policy ends, and what becomes of it. */
final class PolicyTest {
    private static final Logger LOG = Logger.getLogger("io.admissiongateway.worker");

    private final AtomicReference<LogRecord> logged = new AtomicReference<>();
    private final Handler handler =
            new Handler() {
                @Override
                public void publish(LogRecord entry) {
                    logged.set(entry);
                }

                @Override
                public void flush() {}

                @Override
                public void close() {}
            };

    @BeforeEach
    void listen() {
        LOG.setUseParentHandlers(false);
        LOG.addHandler(handler);
    }

    @AfterEach
    void hangUp() {
        LOG.removeHandler(handler);
        LOG.setUseParentHandlers(true);
    }

    @Test
    void anAllowWithoutAnythingIsShared() {
        assertEquals("allowed: true\n", evaluate(review -> {}).response().toString());
        assertEquals(evaluate(review -> {}), evaluate(review -> {}));
    }

    @Test
    void aDenialHasItsCodeReasonAndCauses() {
        var status =
                evaluate(
                                review -> {
                                    review.warn("w");
                                    review.annotate("k", "v");
                                    throw new Denied("no").code(409).reason("Conflict").field("spec.a");
                                })
                        .response();
        assertFalse(status.getAllowed());
        assertEquals(409, status.getStatus().getCode());
        assertEquals("Conflict", status.getStatus().getReason());
        assertEquals("no", status.getStatus().getMessage());
        assertEquals("FieldValueForbidden", status.getStatus().getCauses(0).getReason());
        assertEquals("spec.a", status.getStatus().getCauses(0).getField());
        assertEquals("no", status.getStatus().getCauses(0).getMessage());
        assertEquals(List.of("w"), status.getWarningsList());
        assertEquals("v", status.getAuditAnnotationsMap().get("k"));
    }

    @Test
    void aDenialWithAnOddCodeIsStillOne() {
        for (int code : new int[] {0, 200, 399, 600, -1}) {
            assertEquals(400, evaluate(review -> deny(code)).response().getStatus().getCode());
        }
        assertEquals(599, evaluate(review -> deny(599)).response().getStatus().getCode());
    }

    @Test
    void aDenialSaysWhatItIsAboutAndWhenToTryAgain() {
        Denied about = new Denied("no").retryAfterSeconds(30).name("web\ud83d").group("apps").kind("Deployment").uid("u");
        var status = evaluate(review -> failWith(about)).response().getStatus();
        assertEquals(30, status.getRetryAfterSeconds());
        assertEquals(
                List.of("web?", "apps", "Deployment", "u"),
                List.of(status.getName(), status.getGroup(), status.getKind(), status.getUid()));
        var plain = evaluate(review -> failWith(new Denied("no").retryAfterSeconds(-1))).response().getStatus();
        assertEquals(0, plain.getRetryAfterSeconds());
        assertEquals("", plain.getName() + plain.getGroup() + plain.getKind() + plain.getUid());
    }

    @Test
    void aDenialInAnotherThreadIsStillOne() {
        Outcome outcome =
                evaluate(
                        review ->
                                CompletableFuture.runAsync(
                                                () -> {
                                                    throw new Denied("there");
                                                })
                                        .join());
        assertEquals("there", outcome.response().getStatus().getMessage());
    }

    @Test
    void aDenialThatIsTooLargeShrinksToItsStatus() {
        String long4 = "\ud83d\ude00".repeat(3_000_000);
        var response = evaluate(review -> failWith(new Denied(long4).code(404).field("f").retryAfterSeconds(9))).response();
        assertEquals(404, response.getStatus().getCode());
        assertEquals(9, response.getStatus().getRetryAfterSeconds());
        assertEquals(4096, response.getStatus().getMessage().codePointCount(0, 8192));
        assertEquals(0, response.getStatus().getCausesCount());
    }

    @Test
    void failuresSayTheirTypeWhereItSaysMore() {
        assertError("plain", new RuntimeException("plain"));
        assertError("plain", new Exception("plain"));
        assertError("NoSuchElementException: labels", new NoSuchElementException("labels"));
        assertError("NullPointerException", new NullPointerException());
        assertError("RuntimeException", new RuntimeException());
        assertError("StackOverflowError", new StackOverflowError());
        assertError("AssertionError: x", new AssertionError("x"));
    }

    @Test
    void longTextsAreCutBetweenCharacters() {
        String text = evaluate(review -> failWith(new RuntimeException("\u00e9".repeat(1500)))).error().getMessage();
        assertEquals(1999, ByteString.copyFromUtf8(text).size());
        assertTrue(text.endsWith("\u00e9..."));
        String fits = evaluate(review -> failWith(new RuntimeException("\u00e9".repeat(1000)))).error().getMessage();
        assertEquals("\u00e9".repeat(1000), fits);
    }

    @Test
    void anAnswerThatIsTooLargeIsAnError() {
        Outcome outcome =
                evaluate(
                        review -> {
                            for (int index = 0; index < 9; index++) {
                                review.warn("x".repeat(1024 * 1024));
                            }
                        });
        assertEquals(Status.Code.RESOURCE_EXHAUSTED.value(), outcome.error().getCode());
        assertEquals(
                "the answer has 9437222 bytes (0 of them patch), more than 8388480", outcome.error().getMessage());
    }

    @Test
    void whatIsNotJsonIsTheGatewaysFault() throws Exception {
        Policy policy = new Policy("p", "", "", false, Review::object);
        assertEquals(
                "admission_request is to be a JSON object, found array", outcomeOf(policy, "[]").error().getMessage());
        assertTrue(outcomeOf(policy, "{").error().getMessage().startsWith("admission_request is not JSON: "));
        assertTrue(outcomeOf(policy, "").error().getMessage().startsWith("admission_request is not JSON: "));
        assertTrue(outcomeOf(policy, "{} {}").error().getMessage().startsWith("admission_request is not JSON: "));
        assertEquals(Status.Code.INVALID_ARGUMENT.value(), outcomeOf(policy, "NaN").error().getCode());
        assertEquals(null, logged());
    }

    @Test
    void theLogShowsOneFailureASecond() throws Exception {
        Policy policy = new Policy("p", "", "", false, review -> failWith(new IllegalStateException("x")));
        outcomeOf(policy, "{}");
        LogRecord first = logged();
        String[] lines = first.getMessage().split("\n");
        assertTrue(
                lines[0].matches(
                        "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d{3})?Z ERROR worker: policy failed: "
                                + "policy=\"p\" error=\"IllegalStateException: x\""),
                lines[0]);
        assertTrue(lines.length > 2);
        assertTrue(Stream.of(lines).skip(1).allMatch(line -> line.startsWith(Log.CONTINUED)), first.getMessage());
        assertEquals(Level.SEVERE, first.getLevel());
        outcomeOf(policy, "{}");
        assertEquals(first, logged());
    }

    @Test
    void noTextBeginsAnotherRecord() throws Exception {
        String traceId = "0af7651916cd43dd8448eb211c80319c";
        String hostile = "bang\n2026-01-01T00:00:00.000Z ERROR forged \u001b[31m\u2028\"quoted\"";
        Policy policy = new Policy("p", "", "", false, review -> failWith(new RuntimeException(hostile)));
        String request = "{\"uid\": \"u\\n1\", \"object\": {\"data\": \"s3cret\"}}";
        policy.evaluate(Review.fromJson(request, null, null, "00-" + traceId + "-b7ad6b7169203331-01"));
        String[] lines = logged().getMessage().split("\n");
        String escaped = "bang\\n2026-01-01T00:00:00.000Z ERROR forged \\u001b[31m\\u2028\\\"quoted\\\"";
        String expected =
                "policy=\"p\" uid=\"u\\n1\" trace_id=\"" + traceId + "\" error=\"RuntimeException: " + escaped + "\"";
        assertTrue(lines[0].endsWith("policy failed: " + expected), lines[0]);
        for (String line : List.of(lines).subList(1, lines.length)) {
            assertTrue(line.startsWith(Log.CONTINUED) && line.codePoints().noneMatch(Character::isISOControl), line);
        }
    }

    @Test
    void policiesHaveNamesOfTheirOwn() {
        PolicyServer server = new PolicyServer().policy("a", "", review -> {});
        assertEquals(
                "policy \"a\" is already registered",
                assertThrows(IllegalArgumentException.class, () -> server.mutating("a", "", review -> {}))
                        .getMessage());
        assertThrows(IllegalArgumentException.class, () -> server.policy(" ", "", review -> {}));
        assertThrows(IllegalArgumentException.class, () -> server.policy("a\n", "", review -> {}));
        assertThrows(IllegalStateException.class, () -> new PolicyServer().start("127.0.0.1:0"));
    }

    @Test
    void aLogThatNobodyReadsHoldsUpNoReview() {
        CountDownLatch read = new CountDownLatch(1);
        Filter blocking =
                entry -> {
                    assertDoesNotThrow(() -> read.await());
                    return true;
                };
        LOG.setFilter(blocking);
        try {
            assertTimeoutPreemptively(
                    Duration.ofSeconds(30), () -> assertError("plain", new RuntimeException("plain")));
        } finally {
            read.countDown();
            LOG.setFilter(null);
        }
    }

    /** Who checks gets the text; the first call that fails by it is logged. */
    @Test
    void theFirstCallWithParametersThatCannotBeUsedIsLogged() throws Exception {
        Parameters parameters =
                Parameters.of(
                        "{}",
                        given -> {
                            throw new IllegalStateException("no wine");
                        });
        Policy policy = new Policy("p", "", "", false, parameters, review -> {});
        String problem = "the parameters of policy \"p\" cannot be used: IllegalStateException: no wine";
        assertEquals(problem, policy.refusal(ByteString.EMPTY));
        assertNull(logged());
        assertEquals(problem, policy.evaluate(Review.fromJson("{}")).error().getMessage());
        assertTrue(logged().getMessage().contains("no wine"));
        logged.set(null);
        policy.evaluate(Review.fromJson("{}"));
        assertNull(logged());
    }

    private LogRecord logged() throws InterruptedException {
        assertTrue(Log.flush(TimeUnit.SECONDS.toNanos(30)));
        return logged.get();
    }

    private static void deny(int code) {
        throw new Denied("no").code(code);
    }

    private static void assertError(String expected, Throwable problem) {
        Outcome outcome = evaluate(review -> failWith(problem));
        assertEquals(expected, outcome.error().getMessage());
        assertEquals(Status.Code.INTERNAL.value(), outcome.error().getCode());
    }

    private static void failWith(Throwable problem) throws Exception {
        if (problem instanceof Error error) {
            throw error;
        }
        throw (Exception) problem;
    }

    @Test
    void whatCannotEvenBeReadIsAFailureToo() {
        Outcome outcome =
                evaluate(
                        review -> {
                            throw new Unreadable();
                        });
        assertEquals(Status.Code.INTERNAL.value(), outcome.error().getCode());
        assertEquals("Unreadable", outcome.error().getMessage());
    }

    @Test
    void numbersAreWrittenTheSameWayEverywhere() {
        Locale here = Locale.getDefault();
        Locale.setDefault(Locale.forLanguageTag("ar-EG-u-nu-arab"));
        try {
            Outcome outcome = evaluate(review -> review.warn("x".repeat(9 * 1024 * 1024)));
            assertTrue(outcome.error().getMessage().endsWith(", more than 8388480"), outcome.error().getMessage());
        } finally {
            Locale.setDefault(here);
        }
    }

    private static Outcome evaluate(PolicyFunction function) {
        return outcomeOf(new Policy("p", "", "", false, function), "{}");
    }

    private static Outcome outcomeOf(Policy policy, String request) {
        Payload payload = new Payload(ByteString.copyFromUtf8(request), ByteString.EMPTY);
        return policy.evaluate(new Review(payload, policy.mutating, Review.NEVER));
    }

    private static final class Unreadable extends RuntimeException {
        private static final long serialVersionUID = 1L;

        @Override
        public String getMessage() {
            throw new IllegalStateException("not even that");
        }
    }
}
