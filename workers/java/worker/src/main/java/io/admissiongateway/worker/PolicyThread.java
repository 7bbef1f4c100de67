package io.admissiongateway.worker;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/** A thread that runs one call after the other, and is looked at every {@code Evaluator.TICK_NANOS}. */
final class PolicyThread extends Thread {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    /** Of CPU in one call; half of the time that it may take without having waited. */
    private static final long COMPUTES_NANOS = TimeUnit.MILLISECONDS.toNanos(25);

    /**
     * Looks after which a run counts as slow though it neither waited nor computed as far as can be seen, for each
     * {@code LARGE_REVIEW_BYTES}.
     */
    private static final int LONG_LOOKS = 10;

    /** Larger reviews take longer in any policy, because of parsing. */
    private static final int LARGE_REVIEW_BYTES = 64 * 1024;

    private final Set<PolicyThread> all;

    /** The call that runs; set by this thread only. */
    volatile Call current;

    private volatile Call seen;
    private volatile int looks;

    /** How much CPU it had used when its present call was first seen. */
    private long cpuNanos;

    PolicyThread(Runnable work, Set<PolicyThread> all) {
        super(work, "policy");
        setDaemon(true);
        this.all = all;
    }

    @Override
    public void run() {
        all.add(this);
        try {
            super.run();
        } finally {
            all.remove(this);
        }
    }

    /** Whether it has been in its present call since it was last looked at. */
    boolean isStuck() {
        Call call = current;
        return call != null && call == seen && looks > 0;
    }

    /**
     * Looks at it, and marks the policy in it as slow if it has been at it since the last look and was not merely
     * waiting for a CPU: on a busy machine the kernel takes that away for several milliseconds now and then.
     */
    void look() {
        Call call = current;
        if (call == null) {
            seen = null;
            return;
        }
        long cpu = THREADS.isThreadCpuTimeSupported() ? THREADS.getThreadCpuTime(getId()) : 0;
        if (call != seen) {
            looks = 0;
            seen = call;
            cpuNanos = cpu;
            return;
        }
        looks++;
        boolean computes = cpu - cpuNanos > COMPUTES_NANOS && call.size() <= LARGE_REVIEW_BYTES;
        int longLooks = LONG_LOOKS * (1 + call.size() / LARGE_REVIEW_BYTES);
        if (getState() != State.RUNNABLE || computes || looks >= longLooks) {
            call.policy.markSlow();
        }
    }
}
