package io.admissiongateway.worker;

import io.grpc.netty.shaded.io.netty.channel.Channel;
import io.grpc.netty.shaded.io.netty.channel.ChannelFuture;
import io.grpc.netty.shaded.io.netty.channel.MultiThreadIoEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.ServerChannel;
import io.grpc.netty.shaded.io.netty.channel.nio.NioIoHandler;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * The event loops of a worker, which know its open connections. Beyond the limit, who arrives is served, and the
 * connection that is missed least is closed.
 *
 * <p>Source: protos/README.md, section Bounds of a worker.
 */
final class Connections extends MultiThreadIoEventLoopGroup {
    static final int MAX_CONNECTIONS = 1024;

    private final Map<Client, Optional<InetAddress>> open = new HashMap<>();

    Connections() {
        super(NioIoHandler.newFactory());
    }

    /** Called for each accepted connection, before anything is read from it. */
    @Override
    public ChannelFuture register(Channel channel) {
        if (!(channel instanceof ServerChannel)) {
            Client client = new Client();
            channel.pipeline().addFirst(client);
            channel.closeFuture().addListener(closed -> remove(client));
            boolean hasHost = channel.remoteAddress() instanceof InetSocketAddress;
            Client missedLeast =
                    add(client, hasHost ? ((InetSocketAddress) channel.remoteAddress()).getAddress() : null);
            if (missedLeast != null) {
                missedLeast.close();
            }
        }
        return super.register(channel);
    }

    /** Adds a connection of a host, null for a unix socket; returns the one that is to be closed, null for none. */
    synchronized Client add(Client client, InetAddress host) {
        Client missedLeast = open.size() < MAX_CONNECTIONS ? null : missedLeast();
        open.remove(missedLeast);
        open.put(client, Optional.ofNullable(host));
        return missedLeast;
    }

    synchronized void remove(Client client) {
        open.remove(client);
    }

    /** Of the host that has most: one without an RPC, or else the one that has sent nothing for longest. */
    private Client missedLeast() {
        Map<Optional<InetAddress>, Long> counts =
                open.values().stream().collect(Collectors.groupingBy(Function.identity(), Collectors.counting()));
        Comparator<Client> missed =
                Comparator.<Client>comparingLong(client -> -counts.get(open.get(client)))
                        .thenComparing(client -> client.rpcs.get() > 0)
                        .thenComparingLong(client -> client.lastRead);
        return open.keySet().stream().min(missed).orElseThrow();
    }
}
