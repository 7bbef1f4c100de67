package io.admissiongateway.worker;

import io.grpc.netty.shaded.io.netty.channel.ChannelHandlerContext;
import io.grpc.netty.shaded.io.netty.channel.ChannelInboundHandlerAdapter;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;

/** One connection, from when it was accepted, by which the bounds of a worker count. */
final class Client extends ChannelInboundHandlerAdapter {
    /** The client whose bytes this thread is reading: the library tells no RPC its connection. */
    private static final ThreadLocal<Client> READING = new ThreadLocal<>();

    /** By the ordinals of {@link Turns.Kind}, whose locks guard them. */
    final Turns.Share[] shares =
            Stream.generate(Turns.Share::new).limit(Turns.Kind.values().length).toArray(Turns.Share[]::new);

    /** How many RPCs are open. */
    final AtomicInteger rpcs = new AtomicInteger();

    /** When something has come in, by {@link System#nanoTime()}. */
    volatile long lastRead = System.nanoTime();

    private volatile ChannelHandlerContext connection;

    /** Returns the client of the RPC that begins in this thread; a new one in a test without a connection. */
    static Client reading() {
        Client reading = READING.get();
        return reading == null ? new Client() : reading;
    }

    /** Returns the client of the present call. */
    static Client current() {
        return Rpc.current().client;
    }

    @Override
    public void handlerAdded(ChannelHandlerContext context) {
        connection = context;
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object bytes) {
        lastRead = System.nanoTime();
        READING.set(this);
        try {
            context.fireChannelRead(bytes);
        } finally {
            READING.remove();
        }
    }

    /** Closes the connection at once; this is its first handler, so no other one can delay that. */
    void close() {
        connection.close();
    }
}
