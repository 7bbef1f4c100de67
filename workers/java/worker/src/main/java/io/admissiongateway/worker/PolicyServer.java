package io.admissiongateway.worker;

import java.io.IOException;
import java.time.Duration;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Stream;

/**
 * Serves policies to gateways.
 *
 * <p>Register functions with {@link #policy} and {@link #mutating}; then {@link #main} runs a program, or {@link
 * #start} and {@link #stop} a server within one.
 */
public final class PolicyServer implements AutoCloseable {
    static final String DEFAULT_LISTEN = "127.0.0.1:50051";

    /** The gateway's default drain time, and less than the 30 s of a pod's grace period. */
    static final Duration DEFAULT_GRACE = Duration.ofSeconds(10);

    private final Map<String, Policy> policies = new LinkedHashMap<>();
    private Serving serving;
    private Address metricsListen;
    private Metrics metrics;
    private MetricsServer metricsServer;

    /** A server without policies. */
    public PolicyServer() {}

    /**
     * Registers a policy that allows or denies.
     *
     * @param name what {@code clientConfig.worker.policy} names
     * @param description one line for ListPolicies
     * @param function the policy itself; called by several threads at the same time
     * @throws IllegalArgumentException if the name is empty, or taken by another policy
     */
    public PolicyServer policy(String name, String description, PolicyFunction function) {
        return policy(name, description, "", function);
    }

    /** As {@link #policy(String, String, PolicyFunction)}, with an opaque version of its code and settings. */
    public PolicyServer policy(String name, String description, String version, PolicyFunction function) {
        return register(new Policy(name, description, version, false, function), function);
    }

    /** As {@link #policy(String, String, PolicyFunction)}, with parameters. */
    public PolicyServer policy(String name, String description, Parameters parameters, PolicyFunction function) {
        return register(new Policy(name, description, "", false, parameters, function), function);
    }

    /** As {@link #mutating(String, String, PolicyFunction)}, with parameters. */
    public PolicyServer mutating(String name, String description, Parameters parameters, PolicyFunction function) {
        return register(new Policy(name, description, "", true, parameters, function), function);
    }

    /**
     * Registers a policy that may change the object: it changes {@link Review#object()} in place, sets another one,
     * or makes a {@link Review#patch()}.
     *
     * @param name what {@code clientConfig.worker.policy} names
     * @param description one line for ListPolicies
     * @param function the policy itself; called by several threads at the same time
     * @throws IllegalArgumentException if the name is empty, or taken by another policy
     */
    public PolicyServer mutating(String name, String description, PolicyFunction function) {
        return mutating(name, description, "", function);
    }

    /** As {@link #mutating(String, String, PolicyFunction)}, with an opaque version of its code and settings. */
    public PolicyServer mutating(String name, String description, String version, PolicyFunction function) {
        return register(new Policy(name, description, version, true, function), function);
    }

    /**
     * Serves metrics on this {@code HOST:PORT} from the start on, over plain HTTP at {@code /metrics}.
     *
     * @throws IllegalArgumentException if it is no address
     */
    public synchronized PolicyServer metricsListen(String address) {
        metricsListen = MetricsServer.parse(address);
        metrics = metrics == null ? new Metrics() : metrics;
        return this;
    }

    /** The {@code HOST:PORT} of the metrics, with the port in place of a 0; empty if they are not served. */
    public synchronized String metricsAddress() {
        return metricsServer == null ? "" : metricsServer.address();
    }

    /**
     * Serves on these addresses and returns them, with the port in place of a 0.
     *
     * @param listen {@code HOST:PORT}, {@code [IPV6]:PORT} or {@code unix:PATH}; 127.0.0.1:50051 where none is given
     * @throws StartException if an address cannot be used
     * @throws IllegalArgumentException if an address is none
     * @throws IllegalStateException if it is serving already, or has no policies
     */
    public List<String> start(String... listen) throws IOException {
        return start(null, listen);
    }

    /** As {@link #start(String...)}, with TLS on all of the addresses; null for none. */
    public synchronized List<String> start(Tls tls, String... listen) throws IOException {
        if (serving != null) {
            throw new IllegalStateException("the server is started already, on " + serving.addresses());
        }
        if (policies.isEmpty()) {
            throw new IllegalStateException("no policy is registered: call policy(name, description, function)");
        }
        Stream<String> wanted = listen.length == 0 ? Stream.of(DEFAULT_LISTEN) : Stream.of(listen);
        Serving starting = new Serving(Collections.unmodifiableMap(new LinkedHashMap<>(policies)));
        List<Address> addresses = wanted.map(Address::parse).toList();
        if (metricsListen != null) {
            metricsServer = new MetricsServer(metricsListen, metrics);
            policies.values().forEach(policy -> policy.measure(metrics));
        }
        try {
            starting.start(addresses, tls);
        } catch (IOException problem) {
            stopMetrics();
            throw problem;
        }
        serving = starting;
        return serving.addresses();
    }

    /**
     * Drains for at most {@code grace} and stops; does nothing if it is not serving.
     *
     * @return the number of threads that still run a policy despite the interrupt
     */
    public synchronized int stop(Duration grace) throws InterruptedException {
        Serving stopping = serving;
        serving = null;
        try {
            return stopping == null ? 0 : stopping.stop(grace);
        } finally {
            stopMetrics();
        }
    }

    private void stopMetrics() {
        if (metricsServer != null) {
            metricsServer.stop();
            metricsServer = null;
        }
    }

    /** Stops, with ten seconds for what is in flight. */
    @Override
    public void close() {
        try {
            stop(DEFAULT_GRACE);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /**
     * Serves as a program until SIGTERM or SIGINT, and exits: with status 0 after a stop, 1 if it could not start, 2
     * for bad usage. Does not return.
     */
    public void main(String... args) {
        Program.exit(Program.run(this, args));
    }

    /** Those of a started server. */
    synchronized Limits limits() {
        return serving.limits();
    }

    synchronized int size() {
        return policies.size();
    }

    private synchronized PolicyServer register(Policy policy, PolicyFunction function) {
        Objects.requireNonNull(function, "a policy is a function of one Review");
        boolean isPrintable = policy.name != null && policy.name.chars().noneMatch(Character::isISOControl);
        if (!isPrintable || policy.name.isBlank()) {
            throw new IllegalArgumentException(
                    "the name of a policy is some printable text, found \"" + policy.name + "\"");
        }
        if (serving != null) {
            throw new IllegalStateException("policy \"" + policy.name + "\" comes too late: the server is started");
        }
        if (policies.putIfAbsent(policy.name, policy) != null) {
            throw new IllegalArgumentException("policy \"" + policy.name + "\" is already registered");
        }
        return this;
    }
}
