package io.admissiongateway.worker;

import io.grpc.Status;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executor;
import java.util.function.Consumer;

/**
 * Bounds what all clients together make the worker keep. Beyond the limit, the client that has most loses its largest
 * part, whoever has come last.
 *
 * <p>Source: protos/README.md, section Bounds of a worker.
 */
final class Store {
    private final String what;
    private long limit;
    private final Executor ender;
    private final Map<Client, Holding> clients = new HashMap<>();
    private long total;

    /** {@code what} is in the text of the error; {@code ender} ends parts, without a lock of the caller. */
    Store(String what, long limit, Executor ender) {
        this.what = what;
        this.limit = limit;
        this.ender = ender;
    }

    /** Changes the size of a part; 0 removes it. */
    synchronized void set(Part part, long size) {
        if (part.ended || part.size == size) {
            return;
        }
        change(part, size);
        while (total > limit) {
            endLargest();
        }
    }

    /** For tests. */
    synchronized void setLimit(long limit) {
        this.limit = limit;
    }

    synchronized long total() {
        return total;
    }

    private void change(Part part, long size) {
        Holding holding = clients.computeIfAbsent(part.client, client -> new Holding());
        total += size - part.size;
        holding.size += size - part.size;
        part.size = size;
        if (size > 0) {
            holding.parts.add(part);
            return;
        }
        holding.parts.remove(part);
        if (holding.parts.isEmpty()) {
            clients.remove(part.client);
        }
    }

    private void endLargest() {
        Holding most = new Holding();
        for (Holding holding : clients.values()) {
            most = holding.size > most.size ? holding : most;
        }
        Part largest = null;
        for (Part part : most.parts) {
            largest = largest == null || part.size > largest.size ? part : largest;
        }
        Part ended = largest;
        change(ended, 0);
        ended.ended = true;
        String text = "there are more than " + limit + " " + what + ", most of them of this client";
        ender.execute(() -> ended.end.accept(Outcome.error(Status.Code.RESOURCE_EXHAUSTED, text)));
    }

    private static final class Holding {
        private final Set<Part> parts = new HashSet<>();
        private long size;
    }

    /** What one stream or call has in a store, whose lock guards it. */
    static final class Part {
        private final Client client;
        private final Consumer<Outcome> end;
        private long size;
        private boolean ended;

        /** {@code end} is called at most once. */
        Part(Client client, Consumer<Outcome> end) {
            this.client = client;
            this.end = end;
        }
    }
}
