package io.admissiongateway.worker;

import com.sun.management.UnixOperatingSystemMXBean;
import java.io.IOException;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.math.BigDecimal;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * The metrics of a worker over HTTP, in Prometheus' text format: one request on each connection.
 *
 * <p>The format is written here, because the usual library would be further dependencies of each worker. The server is
 * not the one of the JDK, which has no limit for the time of a request.
 */
final class MetricsServer {
    static final String PATH = "/metrics";

    /** Version 0.0.4 of the text format. */
    private static final String TYPE = "text/plain; version=0.0.4; charset=utf-8";

    private static final long REQUEST_SECONDS = 5;
    private static final int MAX_CONNECTIONS = 16;
    private static final int MAX_HEAD_BYTES = 8192;
    private static final int BACKLOG = 64;

    private final Collection<Policy> policies;
    private final ServerSocket listener;
    private final String address;
    private final ThreadPoolExecutor threads =
            new ThreadPoolExecutor(
                    0,
                    MAX_CONNECTIONS,
                    1,
                    TimeUnit.SECONDS,
                    new SynchronousQueue<>(),
                    work -> Evaluator.daemon(work, "policy-metrics"));
    private final ScheduledThreadPoolExecutor clock =
            new ScheduledThreadPoolExecutor(1, work -> Evaluator.daemon(work, "policy-metrics-clock"));

    /** Listens, and counts the calls of the policies from now on. */
    MetricsServer(Address wanted, Collection<Policy> policies) throws StartException {
        this.policies = policies;
        try {
            listener = new ServerSocket(wanted.port(), BACKLOG, InetAddress.getByName(wanted.host()));
        } catch (IOException problem) {
            throw new StartException("--metrics-listen: " + wanted + ": " + problem.getMessage());
        }
        clock.setRemoveOnCancelPolicy(true);
        address = wanted.withPort(((InetSocketAddress) listener.getLocalSocketAddress()).getPort()).toString();
        policies.forEach(Policy::measure);
        Evaluator.daemon(this::accept, "policy-metrics-listener").start();
    }

    /**
     * Returns the address that {@code --metrics-listen} names.
     *
     * @throws IllegalArgumentException if it is not HOST:PORT
     */
    static Address parse(String text) {
        Address address = Address.parse(text);
        if (address.isUnix()) {
            throw new IllegalArgumentException("HOST:PORT is expected");
        }
        return address;
    }

    String address() {
        return address;
    }

    void stop() {
        close(listener);
        threads.shutdownNow();
        clock.shutdownNow();
    }

    private void accept() {
        while (!listener.isClosed()) {
            Socket accepted = null;
            try {
                accepted = listener.accept();
                Socket socket = accepted;
                threads.execute(() -> serve(socket));
            } catch (IOException | RejectedExecutionException refused) {
                close(accepted);
                pause();
            }
        }
    }

    private void serve(Socket socket) {
        try (socket) {
            // Bounds reading and writing together.
            var timeout = clock.schedule(() -> close(socket), REQUEST_SECONDS, TimeUnit.SECONDS);
            try {
                socket.getOutputStream().write(answer(head(socket.getInputStream())));
                socket.shutdownOutput();
            } finally {
                timeout.cancel(false);
            }
        } catch (IOException | RejectedExecutionException gone) {
            // There is nobody to answer.
        }
    }

    /** Returns the request line, after the end of the head. */
    private static String head(InputStream input) throws IOException {
        StringBuilder head = new StringBuilder();
        while (head.indexOf("\r\n\r\n") < 0) {
            byte[] read = new byte[1024];
            int count = input.read(read);
            if (count < 0 || head.length() + count > MAX_HEAD_BYTES) {
                throw new IOException("no request");
            }
            head.append(new String(read, 0, count, StandardCharsets.ISO_8859_1));
        }
        return head.substring(0, head.indexOf("\r\n"));
    }

    private byte[] answer(String requestLine) {
        String[] parts = requestLine.split("[ ?]");
        String status = "200 OK";
        String body;
        if (parts.length < 2 || !parts[1].equals(PATH)) {
            status = "404 Not Found";
            body = "the metrics are at " + PATH + "\n";
        } else if (!parts[0].equals("GET") && !parts[0].equals("HEAD")) {
            status = "405 Method Not Allowed";
            body = "only GET and HEAD are served\n";
        } else {
            body = exposition();
        }
        byte[] encoded = body.getBytes(StandardCharsets.UTF_8);
        String type = status.startsWith("200") ? TYPE : "text/plain; charset=utf-8";
        String head =
                String.join(
                        "\r\n",
                        "HTTP/1.1 " + status,
                        "content-type: " + type,
                        "content-length: " + encoded.length,
                        "connection: close",
                        "",
                        "");
        return (head + (parts[0].equals("HEAD") ? "" : body)).getBytes(StandardCharsets.UTF_8);
    }

    private String exposition() {
        StringBuilder text = new StringBuilder();

        String build = "admission_gateway_worker_build_info";
        family(text, build, "gauge", "The SDK of the worker.");
        String version = MetricsServer.class.getPackage().getImplementationVersion();
        String labels =
                String.format(
                        "sdk=\"java\",version=%s,runtime=%s",
                        label(version == null ? "devel" : version), label(System.getProperty("java.version")));
        sample(text, build, labels, "1");

        String reviews = "admission_gateway_worker_policy_reviews_total";
        family(text, reviews, "counter", "Reviews by outcome; error: the policy failed or exceeded its deadline.");
        for (Policy policy : policies) {
            Meter meter = policy.meter();
            Map.of("allowed", meter.allowed, "denied", meter.denied, "error", meter.error).entrySet().stream()
                    .sorted(Map.Entry.comparingByKey())
                    .forEach(
                            count -> {
                                String outcome = ",outcome=\"" + count.getKey() + "\"";
                                sample(text, reviews, of(policy) + outcome, count.getValue().toString());
                            });
        }

        String inFlight = "admission_gateway_worker_policy_in_flight";
        family(text, inFlight, "gauge", "Reviews whose policy has begun and that have no answer yet.");
        policies.forEach(policy -> sample(text, inFlight, of(policy), policy.meter().inFlight.toString()));

        String duration = "admission_gateway_worker_policy_duration_seconds";
        family(text, duration, "histogram", "Time from the begin of a policy to its answer.");
        for (Policy policy : policies) {
            long total = 0;
            for (int index = 0; index <= Meter.BOUNDS_MICROS.length; index++) {
                total += policy.meter().durations[index].sum();
                boolean isLast = index == Meter.BOUNDS_MICROS.length;
                String bound = isLast ? "+Inf" : seconds(Meter.BOUNDS_MICROS[index]);
                sample(text, duration + "_bucket", of(policy) + ",le=\"" + bound + "\"", String.valueOf(total));
            }
            sample(text, duration + "_sum", of(policy), String.valueOf(policy.meter().nanos.sum() / 1e9));
            sample(text, duration + "_count", of(policy), String.valueOf(total));
        }
        process(text);
        return text.toString();
    }

    private static void process(StringBuilder text) {
        Map<String, Double> gauges = new TreeMap<>();
        gauges.put("process_start_time_seconds", ManagementFactory.getRuntimeMXBean().getStartTime() / 1e3);
        double resident = residentBytes();
        if (resident > 0) {
            gauges.put("process_resident_memory_bytes", resident);
        }
        if (ManagementFactory.getOperatingSystemMXBean() instanceof UnixOperatingSystemMXBean system) {
            gauges.put("process_open_fds", (double) system.getOpenFileDescriptorCount());
            String cpu = "process_cpu_seconds_total";
            family(text, cpu, "counter", "CPU time of the process in seconds.");
            text.append(cpu).append(' ').append(system.getProcessCpuTime() / 1e9).append('\n');
        }
        Map<String, String> help =
                Map.of(
                        "process_start_time_seconds", "Start of the process in seconds since 1970.",
                        "process_resident_memory_bytes", "Resident memory of the process in bytes.",
                        "process_open_fds", "Open file descriptors of the process.");
        gauges.forEach(
                (name, value) -> {
                    family(text, name, "gauge", help.get(name));
                    text.append(name).append(' ').append(value).append('\n');
                });
    }

    private static void family(StringBuilder text, String name, String kind, String help) {
        text.append(String.format("# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind));
    }

    private static void sample(StringBuilder text, String name, String labels, String value) {
        text.append(name).append('{').append(labels).append("} ").append(value).append('\n');
    }

    private static String of(Policy policy) {
        return "policy=" + label(policy.name);
    }

    /** Returns a value for a label, escaped as the text format requires. */
    private static String label(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\n", "\\n").replace("\"", "\\\"") + '"';
    }

    /** Returns the number as other languages write it: 0.00025, not 2.5E-4. */
    private static String seconds(long micros) {
        return BigDecimal.valueOf(micros, 6).stripTrailingZeros().toPlainString();
    }

    /** Returns the resident memory; 0 where there is no /proc. */
    private static double residentBytes() {
        try (var lines = Files.lines(Path.of("/proc/self/status"))) {
            return lines.filter(line -> line.startsWith("VmRSS:"))
                    .mapToDouble(line -> Double.parseDouble(line.replaceAll("[^0-9]", "")) * 1024)
                    .findFirst()
                    .orElse(0);
        } catch (IOException absent) {
            return 0;
        }
    }

    private static void close(AutoCloseable closeable) {
        try {
            if (closeable != null) {
                closeable.close();
            }
        } catch (Exception gone) {
            // It is closed, then.
        }
    }

    /** For when there are no threads or file descriptors left. */
    private static void pause() {
        try {
            TimeUnit.MILLISECONDS.sleep(10);
        } catch (InterruptedException never) {
            Thread.currentThread().interrupt();
        }
    }
}
