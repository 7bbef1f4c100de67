package io.admissiongateway.worker;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ByteChannel;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;

/** Passes one connection on to a unix socket, which gRPC's own client for Java reaches only on some systems. */
final class UnixProxy implements AutoCloseable {
    private final ServerSocketChannel listener = ServerSocketChannel.open();

    UnixProxy(Path socket) throws IOException {
        listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        start(
                () -> {
                    SocketChannel client = listener.accept();
                    SocketChannel worker = SocketChannel.open(UnixDomainSocketAddress.of(socket));
                    start(() -> copy(worker, client));
                    copy(client, worker);
                });
    }

    int port() {
        return listener.socket().getLocalPort();
    }

    @Override
    public void close() throws IOException {
        listener.close();
    }

    private static void copy(ByteChannel from, ByteChannel to) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate(64 * 1024);
        try (from;
                to) {
            while (from.read(buffer) >= 0) {
                buffer.flip();
                while (buffer.hasRemaining()) {
                    to.write(buffer);
                }
                buffer.clear();
            }
        }
    }

    private static void start(Work work) {
        Thread thread =
                new Thread(
                        () -> {
                            try {
                                work.run();
                            } catch (IOException closed) {
                                // The other side is gone: so is this one.
                            }
                        });
        thread.setDaemon(true);
        thread.start();
    }

    private interface Work {
        void run() throws IOException;
    }
}
