package io.admissiongateway.worker;

import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import java.lang.ref.WeakReference;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What calls leave behind that end badly. */
@Timeout(120)
final class EvaluatorTest {
    private static final int THREADS_APART = 256;

    private final CountDownLatch running = new CountDownLatch(THREADS_APART);
    private final CountDownLatch release = new CountDownLatch(1);
    private final Policy hangs = new Policy("hangs", "", "", false, review -> hang());
    private final Evaluator evaluator = new Evaluator();

    @AfterEach
    void close() throws Exception {
        release.countDown();
        evaluator.close(TimeUnit.SECONDS.toNanos(30));
    }

    private void hang() {
        running.countDown();
        boolean isReleased = false;
        while (!isReleased) {
            try {
                release.await();
                isReleased = true;
            } catch (InterruptedException unheeded) {
                // As a policy that waits for something which cannot be interrupted.
            }
        }
    }

    @Test
    void aCallThatNoThreadWasFreeForIsForgottenAtItsDeadline() throws Exception {
        hangs.markSlow();
        for (int index = 0; index < THREADS_APART; index++) {
            evaluator.run(new Batch(List.of(new TestCall(hangs, Review.NEVER))));
        }
        assertTrue(running.await(60, TimeUnit.SECONDS));
        WeakReference<Call> late = answeredTooLate();
        for (int attempt = 0; attempt < 100 && late.get() != null; attempt++) {
            System.gc();
            Thread.sleep(50);
        }
        assertNull(late.get());
    }

    private WeakReference<Call> answeredTooLate() throws InterruptedException {
        TestCall call = new TestCall(hangs, System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(50));
        evaluator.run(new Batch(List.of(call)));
        assertTrue(call.answered.await(30, TimeUnit.SECONDS));
        return new WeakReference<>(call);
    }

    @Test
    void deadlinesAreKeptAfterAMessageThatCouldNotBeSent() throws Exception {
        TestCall unsendable =
                new TestCall(hangs, Review.NEVER) {
                    @Override
                    void flush() {
                        failed.countDown();
                        throw new OutOfMemoryError("no room for the message");
                    }
                };
        evaluator.run(new Batch(List.of(unsendable)));
        assertTrue(unsendable.failed.await(30, TimeUnit.SECONDS));
        TestCall call = new TestCall(hangs, System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(200));
        evaluator.run(new Batch(List.of(call)));
        assertTrue(call.answered.await(30, TimeUnit.SECONDS));
    }

    private static class TestCall extends Call {
        final CountDownLatch answered = new CountDownLatch(1);
        final CountDownLatch failed = new CountDownLatch(1);

        TestCall(Policy policy, long deadline) {
            super(policy, new Review(new Payload(ByteString.EMPTY, ByteString.EMPTY), false, deadline));
        }

        @Override
        void answer(Outcome outcome) {
            answered.countDown();
        }

        @Override
        void flush() {}

        @Override
        void flushSoon() {}
    }
}
