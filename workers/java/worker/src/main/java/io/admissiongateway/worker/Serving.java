package io.admissiongateway.worker;

import io.grpc.InsecureServerCredentials;
import io.grpc.Server;
import io.grpc.ServerCredentials;
import io.grpc.health.v1.HealthCheckResponse.ServingStatus;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.netty.shaded.io.netty.bootstrap.ServerBootstrap;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioServerDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioServerSocketChannel;
import io.grpc.protobuf.services.HealthStatusManager;
import java.io.IOException;
import java.net.SocketAddress;
import java.net.UnixDomainSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * A server on some addresses, and its shutdown.
 *
 * <p>Shutdown: health becomes NOT_SERVING and every stream gets the drain notice, the ports close, calls in flight
 * finish within the grace period, and the rest (health watches, late calls) is aborted.
 */
final class Serving {
    /** Time for idle connections to close. */
    private static final long CLOSE_NANOS = TimeUnit.MILLISECONDS.toNanos(100);

    private static final int WINDOW_BYTES = 64 * 1024;

    /** Time for policies to end after the interrupt of their thread. */
    private static final long INTERRUPTED_NANOS = TimeUnit.SECONDS.toNanos(1);

    /** Warns at each connection to a unix socket that it cannot have TCP's keepalive, which nobody asked for. */
    private static final Logger BOOTSTRAP_LOG = Logger.getLogger(ServerBootstrap.class.getName());

    private final Evaluator evaluator = new Evaluator();
    private final HealthStatusManager health = new HealthStatusManager();
    private final Limits limits = new Limits(work -> evaluator.later(work, 0));
    private final WorkerService service;
    private final List<Server> servers = new ArrayList<>();
    private final List<String> addresses = new ArrayList<>();
    private final Map<Path, Object> socketFiles = new LinkedHashMap<>();
    private final Connections connections = new Connections();

    Serving(Map<String, Policy> policies) {
        service = new WorkerService(policies, evaluator, limits);
    }

    Limits limits() {
        return limits;
    }

    /** The bound addresses, with their ports. */
    List<String> addresses() {
        return List.copyOf(addresses);
    }

    /** Binds and serves. */
    void start(List<Address> wanted, Tls tls) throws StartException {
        try {
            ServerCredentials credentials = tls == null ? InsecureServerCredentials.create() : Pem.credentials(tls);
            Policy.warmUp();
            for (Address address : wanted) {
                bind(address, credentials);
            }
            health.setStatus(WorkerService.NAME, ServingStatus.SERVING);
        } catch (StartException problem) {
            removeSocketFiles();
            servers.forEach(Server::shutdownNow);
            close();
            throw problem;
        }
    }

    /** Drains for at most {@code grace}, then aborts the rest; returns the number of threads that still run. */
    int stop(Duration grace) throws InterruptedException {
        try {
            drain(TimeUnit.NANOSECONDS.convert(grace));
        } catch (InterruptedException hurry) {
            cutOff();
            throw hurry;
        }
        return cutOff();
    }

    private void drain(long nanos) throws InterruptedException {
        health.enterTerminalState();
        service.drain();
        removeSocketFiles();
        servers.forEach(Server::shutdown);
        service.awaitIdle(nanos);
        long end = System.nanoTime() + CLOSE_NANOS;
        for (Server server : servers) {
            server.awaitTermination(Math.max(0, end - System.nanoTime()), TimeUnit.NANOSECONDS);
        }
    }

    private int cutOff() throws InterruptedException {
        for (Server server : servers) {
            server.shutdownNow();
            server.awaitTermination(CLOSE_NANOS, TimeUnit.NANOSECONDS);
        }
        close();
        return evaluator.close(INTERRUPTED_NANOS);
    }

    private void bind(Address address, ServerCredentials credentials) throws StartException {
        SocketAddress target = address.claim();
        Path hidden = address.isUnix() ? address.hiddenPath() : null;
        if (hidden != null) {
            target = UnixDomainSocketAddress.of(hidden);
        }
        NettyServerBuilder builder =
                NettyServerBuilder.forAddress(target, credentials)
                        // The service never waits, and a second thread per message costs more than it does.
                        .directExecutor()
                        .maxInboundMessageSize(Outcome.MAX_MESSAGE_BYTES)
                        // The gateway pings every 30 s, also when no call is open; gRPC's default is to allow one
                        // ping in five minutes and to close the connection of a client that sends more.
                        .permitKeepAliveTime(10, TimeUnit.SECONDS)
                        .permitKeepAliveWithoutCalls(true)
                        // Detects a lost gateway, whose calls are then cancelled.
                        .keepAliveTime(30, TimeUnit.SECONDS)
                        .keepAliveTimeout(10, TimeUnit.SECONDS)
                        // What has arrived and was not looked at; more only helps on long lines.
                        .flowControlWindow(WINDOW_BYTES)
                        .maxConcurrentCallsPerConnection(Limits.MAX_CONNECTION_RPCS)
                        .channelType(
                                address.isUnix() ? NioServerDomainSocketChannel.class : NioServerSocketChannel.class)
                        .bossEventLoopGroup(connections)
                        .workerEventLoopGroup(connections)
                        .addStreamTracerFactory(Rpc.factory(limits))
                        .intercept(Rpc.INTERCEPTOR)
                        .addService(service.definition())
                        .addService(health.getHealthService());
        if (address.isUnix()) {
            BOOTSTRAP_LOG.setLevel(Level.SEVERE);
        }
        Server server = builder.build();
        try {
            server.start();
            servers.add(server);
            if (hidden != null) {
                // Who waits for the file to appear connects at once, and is to find somebody who listens.
                Files.move(hidden, address.path(), StandardCopyOption.ATOMIC_MOVE);
            }
            if (address.isUnix()) {
                socketFiles.put(address.path(), fileKey(address.path()));
            }
        } catch (IOException problem) {
            Throwable reason = problem.getCause() == null ? problem : problem.getCause();
            throw new StartException(address + ": " + reason.getMessage());
        }
        addresses.add((address.isUnix() ? address : address.withPort(server.getPort())).toString());
    }

    private void close() {
        connections.shutdownGracefully(0, CLOSE_NANOS, TimeUnit.NANOSECONDS);
    }

    /** Before the sockets close: from then on another worker may take the names. */
    private void removeSocketFiles() {
        socketFiles.forEach(
                (path, key) -> {
                    try {
                        // Unless another worker has replaced it.
                        if (Files.exists(path) && fileKey(path).equals(key)) {
                            Files.delete(path);
                        }
                    } catch (IOException alreadyGone) {
                        // All the better.
                    }
                });
        socketFiles.clear();
    }

    private static Object fileKey(Path path) throws IOException {
        return Files.getAttribute(path, "fileKey");
    }
}
