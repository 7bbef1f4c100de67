package io.admissiongateway.worker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What calls leave behind that end badly. */
@Timeout(120)
final class EvaluatorTest {
    /** Of one client, which gets half of all. */
    private static final int THREADS_APART = Evaluator.MAX_APART / 2;

    private final Semaphore running = new Semaphore(0);
    private final CountDownLatch release = new CountDownLatch(1);
    private final Policy allows = new Policy("allows", "", "", false, review -> {});
    private final Policy hangs = new Policy("hangs", "", "", false, review -> hang());
    private final Evaluator evaluator = new Evaluator();
    private final Client client = new Client();

    @AfterEach
    void close() throws Exception {
        release.countDown();
        evaluator.close(TimeUnit.SECONDS.toNanos(30));
    }

    private void hang() {
        running.release();
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
            evaluator.run(new Batch(List.of(new TestCall(hangs, client, "", Review.NEVER))));
        }
        assertTrue(running.tryAcquire(THREADS_APART, 60, TimeUnit.SECONDS));
        assertForgotten(answeredTooLate(""));
    }

    @Test
    void aCallThatThereWasNoRoomForIsForgottenAtItsDeadline() throws Exception {
        String half = "x".repeat(Evaluator.MAX_EVALUATED_BYTES / 2);
        evaluator.run(new Batch(List.of(new TestCall(hangs, client, half, Review.NEVER))));
        assertTrue(running.tryAcquire(60, TimeUnit.SECONDS));
        assertForgotten(answeredTooLate("x"));
        TestCall other = new TestCall(allows, new Client(), "x", Review.NEVER);
        evaluator.run(new Batch(List.of(other)));
        assertTrue(other.answered.await(30, TimeUnit.SECONDS));
    }

    @Test
    void aBatchWaitsForRoomForItsAnswers() throws Exception {
        List<Runnable> held = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch isHeld = new CountDownLatch(1);
        TestCall first = new TestCall(allows, client, "x", Review.NEVER);
        TestCall second =
                new TestCall(allows, client, "x", Review.NEVER) {
                    @Override
                    boolean mayAnswer(Runnable resume) {
                        if (held.isEmpty()) {
                            held.add(resume);
                            isHeld.countDown();
                            return false;
                        }
                        return true;
                    }
                };
        evaluator.run(new Batch(List.of(first, second)));
        assertTrue(isHeld.await(30, TimeUnit.SECONDS));
        assertTrue(first.answered.await(30, TimeUnit.SECONDS));
        assertEquals(1, second.answered.getCount());
        held.get(0).run();
        assertTrue(second.answered.await(30, TimeUnit.SECONDS));
    }

    /** One call after the other holds up a thread for a millisecond, until the other client is answered. */
    @Test
    void anotherClientHasItsTurnBetweenTheCallsOfABatch() throws Exception {
        TestCall other = new TestCall(allows, new Client(), "x", Review.NEVER);
        CountDownLatch began = new CountDownLatch(1);
        List<List<TestCall>> greedy = new ArrayList<>();
        List<List<Integer>> begun = new ArrayList<>();
        for (int number = 0; number < 2 * Runtime.getRuntime().availableProcessors(); number++) {
            List<TestCall> calls = new ArrayList<>();
            List<Integer> order = Collections.synchronizedList(new ArrayList<>());
            for (int index = 0; index < 4096; index++) {
                int position = index;
                PolicyFunction spins =
                        review -> {
                            order.add(position);
                            began.countDown();
                            long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(1);
                            while (other.answered.getCount() > 0 && System.nanoTime() < end) {
                                Thread.onSpinWait();
                            }
                        };
                calls.add(new TestCall(new Policy("spins", "", "", false, spins), client, "x", Review.NEVER));
            }
            greedy.add(calls);
            begun.add(order);
            evaluator.run(new Batch(calls));
        }
        assertTrue(began.await(30, TimeUnit.SECONDS));
        evaluator.run(new Batch(List.of(other)));
        assertTrue(other.answered.await(30, TimeUnit.SECONDS));
        List<TestCall> last = greedy.get(greedy.size() - 1);
        assertTrue(last.get(last.size() - 1).answered.getCount() > 0, "the other client came last");
        for (List<TestCall> calls : greedy) {
            for (TestCall call : calls) {
                assertTrue(call.answered.await(30, TimeUnit.SECONDS));
            }
        }
        for (List<Integer> order : begun) {
            assertEquals(4096, order.size());
            assertEquals(4096, Set.copyOf(order).size());
        }
    }

    private void assertForgotten(WeakReference<Call> late) throws InterruptedException {
        for (int attempt = 0; attempt < 100 && late.get() != null; attempt++) {
            System.gc();
            Thread.sleep(50);
        }
        assertNull(late.get());
    }

    private WeakReference<Call> answeredTooLate(String request) throws InterruptedException {
        TestCall call = new TestCall(hangs, client, request, System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(50));
        evaluator.run(new Batch(List.of(call)));
        assertTrue(call.answered.await(30, TimeUnit.SECONDS));
        return new WeakReference<>(call);
    }

    @Test
    void deadlinesAreKeptAfterAMessageThatCouldNotBeSent() throws Exception {
        TestCall unsendable =
                new TestCall(hangs, client, "", Review.NEVER) {
                    @Override
                    void flush() {
                        failed.countDown();
                        throw new OutOfMemoryError("no room for the message");
                    }
                };
        evaluator.run(new Batch(List.of(unsendable)));
        assertTrue(unsendable.failed.await(30, TimeUnit.SECONDS));
        TestCall call = new TestCall(hangs, client, "", System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(200));
        evaluator.run(new Batch(List.of(call)));
        assertTrue(call.answered.await(30, TimeUnit.SECONDS));
    }

    private static class TestCall extends Call {
        final CountDownLatch answered = new CountDownLatch(1);
        final CountDownLatch failed = new CountDownLatch(1);

        TestCall(Policy policy, Client client, String request, long deadline) {
            super(
                    policy,
                    client,
                    new Review(new Payload(ByteString.copyFromUtf8(request), ByteString.EMPTY), false, deadline));
        }

        @Override
        void answer(Outcome outcome) {
            answered.countDown();
        }

        @Override
        boolean mayAnswer(Runnable resume) {
            return true;
        }

        @Override
        void flush() {}

        @Override
        void flushSoon() {}
    }
}
