package io.admissiongateway.worker;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * The program of a worker: command line, signals, exit status.
 *
 * <p>Errors are one line on stderr. The first SIGTERM or SIGINT drains, the second exits immediately.
 */
final class Program {
    private static final String LOG_FORMAT = "java.util.logging.SimpleFormatter.format";

    /** For what was logged to be written. */
    private static final long LOG_NANOS = TimeUnit.SECONDS.toNanos(1);

    private Program() {}

    /** Runs the worker and returns its exit status: 0 after a shutdown, 1 if the start fails, 2 after a usage error. */
    static int run(PolicyServer server, String... args) {
        Options options;
        try {
            options = Options.parse(args);
        } catch (IllegalArgumentException problem) {
            say(problem.getMessage());
            return 2;
        }
        if (options.isHelp()) {
            System.out.print(Options.USAGE);
            return 0;
        }
        if (System.getProperty(LOG_FORMAT) == null) {
            System.setProperty(LOG_FORMAT, "%5$s%n");
        }
        try {
            return serve(server, options);
        } catch (IOException | IllegalStateException problem) {
            say(problem.getMessage());
            return 1;
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            return 1;
        }
    }

    /** Exits, even if nobody reads stderr: the JVM's own way out waits for what is being logged. */
    static void exit(int status) {
        try {
            if (!Log.flush(LOG_NANOS)) {
                Runtime.getRuntime().halt(status);
            }
        } catch (InterruptedException hurry) {
            Thread.currentThread().interrupt();
        }
        System.exit(status);
    }

    private static int serve(PolicyServer server, Options options) throws IOException, InterruptedException {
        CountDownLatch stopping = new CountDownLatch(1);
        // Not a shutdown hook: within one a second signal would wait for the first.
        onSignal("TERM", 15, stopping);
        onSignal("INT", 2, stopping);
        if (options.metricsListen() != null) {
            server.metricsListen(options.metricsListen());
        }
        var addresses = server.start(options.tls(), options.listen().toArray(String[]::new));
        if (!server.metricsAddress().isEmpty()) {
            say("metrics on http://" + server.metricsAddress() + MetricsServer.PATH);
        }
        say("serving " + server.size() + " policies on " + String.join(", ", addresses));
        stopping.await();
        int busy = server.stop(options.grace());
        if (busy > 0) {
            Log.error(busy + " policies have not come back from their threads; leaving them", null);
        }
        return 0;
    }

    /**
     * Counts down at the first signal of that name and exits with 128 + its number at the second.
     *
     * <p>By reflection: {@code sun.misc.Signal} is the JDK's only word for this, supported and part of the module
     * jdk.unsupported, but compilers warn of it in a way that cannot be turned off.
     */
    private static void onSignal(String name, int number, CountDownLatch stopping) {
        try {
            Class<?> signal = Class.forName("sun.misc.Signal");
            Class<?> handler = Class.forName("sun.misc.SignalHandler");
            Object onSignal =
                    Proxy.newProxyInstance(
                            Program.class.getClassLoader(),
                            new Class<?>[] {handler},
                            (proxy, method, arguments) -> {
                                if (stopping.getCount() == 0) {
                                    Runtime.getRuntime().halt(128 + number);
                                }
                                stopping.countDown();
                                return null;
                            });
            Object handled = signal.getConstructor(String.class).newInstance(name);
            signal.getMethod("handle", signal, handler).invoke(null, handled, onSignal);
        } catch (ReflectiveOperationException unavailable) {
            boolean isReserved =
                    unavailable instanceof InvocationTargetException
                            && unavailable.getCause() instanceof IllegalArgumentException;
            if (!isReserved) { // reserved: the JVM was told to leave signals alone (-Xrs)
                throw new IllegalStateException("cannot listen to SIG" + name + ": " + unavailable, unavailable);
            }
        }
    }

    static void say(String text) {
        System.err.println("worker: " + text);
    }
}
