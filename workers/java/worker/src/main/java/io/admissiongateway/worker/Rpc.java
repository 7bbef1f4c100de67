package io.admissiongateway.worker;

import io.grpc.Context;
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerStreamTracer;
import io.grpc.Status;

/**
 * One open RPC: it counts, as do the bytes of its message that has not arrived completely, which the library keeps
 * and shows to tracers only.
 */
final class Rpc extends ServerStreamTracer {
    /** Lets RPCs be ended by the limits. */
    static final ServerInterceptor INTERCEPTOR =
            new ServerInterceptor() {
                @Override
                public <Q, A> ServerCall.Listener<Q> interceptCall(
                        ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
                    return next.startCall(current().endable(call), headers);
                }
            };

    /** What the library keeps for each part that arrives, beside its bytes. */
    private static final int PART_BYTES = 256;

    /** Less is not counted: most messages arrive in one part. */
    private static final int SMALL_BYTES = 4 * 1024;

    private static final Context.Key<Rpc> CONTEXT = Context.key("rpc");

    final Client client = Client.reading();
    private final Limits limits;
    private final Store.Part open = new Store.Part(client, this::end);
    private final Store.Part arriving = new Store.Part(client, this::end);
    private long arrived;
    private EndableCall<?, ?> call;

    /** Why it has ended; null if the limits have not ended it. */
    private Status end;

    private Rpc(Limits limits) {
        this.limits = limits;
        client.rpcs.incrementAndGet();
        limits.rpcs.set(open, 1);
    }

    static ServerStreamTracer.Factory factory(Limits limits) {
        return new ServerStreamTracer.Factory() {
            @Override
            public ServerStreamTracer newServerStreamTracer(String method, Metadata headers) {
                return new Rpc(limits);
            }
        };
    }

    /** Returns the present RPC. */
    static Rpc current() {
        return CONTEXT.get();
    }

    @Override
    public Context filterContext(Context context) {
        return context.withValue(CONTEXT, this);
    }

    @Override
    public void inboundWireSize(long bytes) {
        arrived += bytes + PART_BYTES;
        if (arrived > SMALL_BYTES) {
            limits.received.set(arriving, arrived);
        }
    }

    @Override
    public void inboundMessageRead(int number, long wireSize, long uncompressedSize) {
        if (arrived > SMALL_BYTES) {
            limits.received.set(arriving, 0);
        }
        arrived = 0;
    }

    @Override
    public void streamClosed(Status status) {
        client.rpcs.decrementAndGet();
        limits.rpcs.set(open, 0);
        limits.received.set(arriving, 0);
    }

    private synchronized <Q, A> ServerCall<Q, A> endable(ServerCall<Q, A> started) {
        EndableCall<Q, A> made = new EndableCall<>(started);
        call = made;
        if (end != null) {
            made.end(end);
        }
        return made;
    }

    private synchronized void end(Outcome outcome) {
        end = outcome.status();
        if (call != null) {
            call.end(end);
        }
    }

    /** A call that another thread can end; what the service does with it then has no effect. */
    private static final class EndableCall<Q, A> extends SimpleForwardingServerCall<Q, A> {
        private boolean hasEnded;

        EndableCall(ServerCall<Q, A> call) {
            super(call);
        }

        synchronized void end(Status status) {
            close(status, new Metadata());
        }

        @Override
        public synchronized void sendHeaders(Metadata headers) {
            if (!hasEnded) {
                super.sendHeaders(headers);
            }
        }

        @Override
        public synchronized void sendMessage(A message) {
            if (!hasEnded) {
                super.sendMessage(message);
            }
        }

        @Override
        public synchronized void close(Status status, Metadata trailers) {
            if (!hasEnded) {
                hasEnded = true;
                super.close(status, trailers);
            }
        }
    }
}
