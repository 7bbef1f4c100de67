package io.admissiongateway.worker;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Consumer;

/**
 * Lets those who wait go on while there is room, one client after another.
 *
 * <p>Source: protos/README.md, section Bounds of a worker.
 */
final class Turns {
    /** What there are turns of, with the share of each client in it. */
    enum Kind {
        /** Threads of the pool. */
        THREADS,
        /** Threads of slow policies. */
        THREADS_APART,
        /** Bytes of JSON that are evaluated. */
        EVALUATED
    }

    private final Kind kind;

    /** Whether a client gets at most half of the room that the others leave. */
    private final boolean isHalved;

    private int limit;
    private int used;

    /** Those with a waiter; the first one is next. */
    private final Set<Share> ring = new LinkedHashSet<>();

    private volatile boolean isWanted;

    Turns(Kind kind, int limit, boolean isHalved) {
        this.kind = kind;
        this.limit = limit;
        this.isHalved = isHalved;
    }

    /** Returns whether there is room now. Otherwise the waiter is told later. */
    synchronized boolean take(Waiter waiter) {
        Share share = shareOf(waiter);
        waiter.hasTurn = share.waiting.isEmpty() && fits(share, waiter.weight);
        if (waiter.hasTurn) {
            add(share, waiter.weight);
        } else {
            share.waiting.add(waiter);
            ring.add(share);
            isWanted = true;
        }
        return waiter.hasTurn;
    }

    /** Tells the waiter when there is room, or at once. */
    void await(Waiter waiter) {
        if (take(waiter)) {
            waiter.told.accept(waiter);
        }
    }

    /** Gives back the room of one who had a turn. */
    void give(Waiter ended) {
        synchronized (this) {
            add(shareOf(ended), -ended.weight);
        }
        tellNext();
    }

    /** Ends the wait, and tells the waiter; nothing happens if it has had its turn. */
    void giveUp(Waiter waiter) {
        synchronized (this) {
            Share share = shareOf(waiter);
            if (!share.waiting.remove(waiter)) {
                return;
            }
            if (share.waiting.isEmpty()) {
                ring.remove(share);
                isWanted = !ring.isEmpty();
            }
        }
        waiter.told.accept(waiter);
        tellNext();
    }

    void setLimit(int limit) {
        synchronized (this) {
            this.limit = limit;
        }
        tellNext();
    }

    /** Whether anybody waits. */
    boolean isWanted() {
        return isWanted;
    }

    synchronized int used() {
        return used;
    }

    synchronized int waiters() {
        return ring.stream().mapToInt(share -> share.waiting.size()).sum();
    }

    private Share shareOf(Waiter waiter) {
        return waiter.client.shares[kind.ordinal()];
    }

    private boolean fits(Share share, int weight) {
        int room = isHalved ? (limit - used + share.used) / 2 - share.used : limit - used;
        return used == 0 || weight <= room;
    }

    private void add(Share share, int weight) {
        used += weight;
        share.used += weight;
    }

    private void tellNext() {
        if (!isWanted) {
            return;
        }
        List<Waiter> next = new ArrayList<>();
        synchronized (this) {
            for (Waiter waiter = next(); waiter != null; waiter = next()) {
                next.add(waiter);
            }
            isWanted = !ring.isEmpty();
        }
        next.forEach(waiter -> waiter.told.accept(waiter));
    }

    /** Gives room to the first for whom there is enough; null for nobody. */
    private Waiter next() {
        for (Share share : ring) {
            Iterator<Waiter> waiting = share.waiting.iterator();
            Waiter first = waiting.next();
            if (fits(share, first.weight)) {
                waiting.remove();
                ring.remove(share);
                if (!share.waiting.isEmpty()) {
                    ring.add(share);
                }
                add(share, first.weight);
                first.hasTurn = true;
                return first;
            }
        }
        return null;
    }

    /** What one client uses and waits for. */
    static final class Share {
        private final Set<Waiter> waiting = new LinkedHashSet<>();
        private int used;
    }

    /** One who waits for a turn. */
    static final class Waiter {
        private final Client client;
        private final int weight;
        private final Consumer<Waiter> told;
        private boolean hasTurn;

        /** {@code told} is called, without a lock, when it has its turn or has given up. */
        Waiter(Client client, int weight, Consumer<Waiter> told) {
            this.client = client;
            this.weight = weight;
            this.told = told;
        }

        boolean hasTurn() {
            return hasTurn;
        }
    }
}
