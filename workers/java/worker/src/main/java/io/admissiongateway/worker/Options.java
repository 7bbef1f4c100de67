package io.admissiongateway.worker;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** The command line of a worker. */
record Options(List<String> listen, Tls tls, String metricsListen, Duration grace, boolean isHelp) {
    static final String USAGE =
            """
            Serves admission policies over gRPC.

              --listen ADDRESS   HOST:PORT or unix:PATH, repeatable; default 127.0.0.1:50051, port 0 chooses one
              --tls-cert FILE    PEM certificate chain to serve with
              --tls-key FILE     its private key
              --client-ca FILE   let in only clients that it signed
              --metrics-listen HOST:PORT
                                 serve Prometheus metrics over plain HTTP; off by default
              --grace SECONDS    for calls in flight when told to stop; default 10
              --help             print this and exit
            """;

    private static final Set<String> NAMES =
            Set.of("--listen", "--tls-cert", "--tls-key", "--client-ca", "--metrics-listen", "--grace");

    /** Above any use, and well below where arithmetic on nanoseconds overflows. */
    private static final double MAX_GRACE_S = 1e9;

    /**
     * Returns what the arguments say.
     *
     * @throws IllegalArgumentException for bad usage, in words for the user
     */
    static Options parse(String... args) {
        List<String> listen = new ArrayList<>();
        Map<String, String> values = new HashMap<>();
        for (int index = 0; index < args.length; index++) {
            String name = args[index];
            if (name.equals("--help") || name.equals("-h")) {
                return new Options(List.of(), null, null, Duration.ZERO, true);
            }
            String value = null;
            int equals = name.indexOf('=');
            if (equals > 0) {
                value = name.substring(equals + 1);
                name = name.substring(0, equals);
            }
            if (!NAMES.contains(name)) {
                throw new IllegalArgumentException("unrecognized arguments: " + args[index]);
            }
            if (value == null) {
                if (++index == args.length || args[index].startsWith("--")) {
                    throw new IllegalArgumentException("argument " + name + ": expected one argument");
                }
                value = args[index];
            }
            if (name.equals("--listen")) {
                listen.add(address(value));
            } else {
                values.put(name, value);
            }
        }
        if (listen.isEmpty()) {
            listen.add(PolicyServer.DEFAULT_LISTEN);
        }
        Tls tls = tls(values, listen.stream().anyMatch(text -> text.startsWith("unix:")));
        if (new HashSet<>(listen).size() < listen.size()) {
            throw new IllegalArgumentException("--listen names the same address twice");
        }
        String metricsListen = metricsAddress(values.get("--metrics-listen"));
        return new Options(List.copyOf(listen), tls, metricsListen, grace(values.get("--grace")), false);
    }

    private static Tls tls(Map<String, String> values, boolean hasUnix) {
        String cert = values.get("--tls-cert");
        String key = values.get("--tls-key");
        String clientCa = values.get("--client-ca");
        if ((cert == null) != (key == null)) {
            throw new IllegalArgumentException("--tls-cert and --tls-key go together");
        }
        if (clientCa != null && cert == null) {
            throw new IllegalArgumentException("--client-ca needs --tls-cert and --tls-key");
        }
        if (cert == null) {
            return null;
        }
        if (hasUnix) {
            throw new IllegalArgumentException(
                    "TLS is for HOST:PORT; a unix: socket is guarded by the permissions of its folder");
        }
        return new Tls(Path.of(cert), Path.of(key), clientCa == null ? null : Path.of(clientCa));
    }

    private static String address(String text) {
        try {
            Address.parse(text);
            return text;
        } catch (IllegalArgumentException problem) {
            throw new IllegalArgumentException("argument --listen: " + problem.getMessage(), problem);
        }
    }

    private static String metricsAddress(String text) {
        try {
            return text == null ? null : MetricsServer.parse(text).toString();
        } catch (IllegalArgumentException problem) {
            throw new IllegalArgumentException("argument --metrics-listen: " + problem.getMessage(), problem);
        }
    }

    private static Duration grace(String text) {
        if (text == null) {
            return PolicyServer.DEFAULT_GRACE;
        }
        double seconds;
        try {
            seconds = Double.parseDouble(text);
        } catch (NumberFormatException problem) {
            seconds = Double.NaN;
        }
        if (!(seconds >= 0 && seconds <= MAX_GRACE_S)) {
            throw new IllegalArgumentException("argument --grace: '" + text + "' is not a number of seconds");
        }
        return Duration.ofNanos((long) (seconds * 1e9));
    }
}
