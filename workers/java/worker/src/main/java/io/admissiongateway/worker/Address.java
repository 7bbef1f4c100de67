package io.admissiongateway.worker;

import java.io.IOException;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.net.UnknownHostException;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A listening address, checked before gRPC uses it, because gRPC has other error messages.
 *
 * @param host without brackets; empty for a unix socket
 * @param port 0 for any free one
 * @param path the unix socket; null for a host
 */
record Address(String host, int port, Path path) {
    /** Size of sun_path on Linux, 108, less the terminating zero. */
    private static final int MAX_UNIX_PATH_BYTES = 107;

    private static final Pattern HOST_PORT =
            Pattern.compile("(?:\\[([\\w.%]*:[\\w.%:]*)\\]|([\\w.-]+)):([0-9]{1,5})");

    /**
     * Returns the address that {@code --listen} names: {@code HOST:PORT}, {@code [IPV6]:PORT} or {@code unix:PATH}.
     *
     * @throws IllegalArgumentException if it is none of these
     */
    static Address parse(String text) {
        if (text.startsWith("unix:")) {
            String path = text.substring("unix:".length()).replaceFirst("^//+", "/");
            if (path.isEmpty()) {
                throw new IllegalArgumentException("'" + text + "' has no path: unix:PATH is expected");
            }
            if (path.getBytes(StandardCharsets.UTF_8).length > MAX_UNIX_PATH_BYTES) {
                throw new IllegalArgumentException(
                        String.format(
                                "'%s' is too long: a unix socket's path has at most %d bytes",
                                text, MAX_UNIX_PATH_BYTES));
            }
            return new Address("", 0, Path.of(path));
        }
        Matcher found = HOST_PORT.matcher(text);
        if (!found.matches() || Integer.parseInt(found.group(3)) > 65535) {
            throw new IllegalArgumentException(
                    "'" + text + "' is not an address: HOST:PORT, [IPV6]:PORT or unix:PATH is expected");
        }
        String host = found.group(1) != null ? found.group(1) : found.group(2);
        return new Address(host, Integer.parseInt(found.group(3)), null);
    }

    boolean isUnix() {
        return path != null;
    }

    Address withPort(int chosen) {
        return new Address(host, chosen, path);
    }

    @Override
    public String toString() {
        if (isUnix()) {
            return "unix:" + path;
        }
        return (host.contains(":") ? "[" + host + "]" : host) + ":" + port;
    }

    /** Makes sure that it can be bound, and returns it as gRPC takes it; removes a stale socket file. */
    SocketAddress claim() throws StartException {
        return isUnix() ? claimPath() : claimPort();
    }

    /** Returns another path in the same folder, to bind before it gets its own name; null if that would be too long. */
    Path hiddenPath() throws StartException {
        Path hidden = Path.of(path + "~");
        if (hidden.toString().getBytes(StandardCharsets.UTF_8).length > MAX_UNIX_PATH_BYTES) {
            return null;
        }
        try {
            Files.deleteIfExists(hidden);
        } catch (IOException problem) {
            throw new StartException(this + ": " + hidden + ": " + problem.getMessage());
        }
        return hidden;
    }

    private SocketAddress claimPort() throws StartException {
        InetSocketAddress target;
        try {
            target = new InetSocketAddress(InetAddress.getByName(host), port);
        } catch (UnknownHostException problem) {
            throw new StartException(this + ": Name or service not known");
        }
        try (ServerSocket probe = new ServerSocket()) {
            probe.setReuseAddress(true);
            probe.bind(target);
        } catch (IOException problem) {
            throw new StartException(this + ": " + problem.getMessage());
        }
        return target;
    }

    private SocketAddress claimPath() throws StartException {
        Path folder = path.toAbsolutePath().getParent();
        if (!Files.isDirectory(folder)) {
            throw new StartException(this + ": there is no folder " + folder);
        }
        UnixDomainSocketAddress target = UnixDomainSocketAddress.of(path);
        if (!Files.exists(path, LinkOption.NOFOLLOW_LINKS)) {
            return target;
        }
        try {
            // java.nio has no word for a socket, but that it is nothing else.
            if (!Files.readAttributes(path, "isOther").get("isOther").equals(true)) {
                throw new StartException(this + ": the file exists and is not a socket");
            }
            try (SocketChannel probe = SocketChannel.open(StandardProtocolFamily.UNIX)) {
                probe.connect(target);
            } catch (ConnectException unused) {
                Files.deleteIfExists(path);
                return target;
            }
        } catch (StartException problem) {
            throw problem;
        } catch (IOException problem) {
            throw new StartException(this + ": " + problem.getMessage());
        }
        throw new StartException(this + ": Address already in use");
    }
}
