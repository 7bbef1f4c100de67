package io.admissiongateway.samples;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The samples as a process of their own: what it says, its signals and its exit status. */
@Timeout(120)
final class ProgramTest {
    private static final Pattern READY = Pattern.compile("worker: serving 12 policies on 127\\.0\\.0\\.1:(\\d+)(.*)");

    private final List<Process> started = new ArrayList<>();

    @AfterEach
    void end() {
        started.forEach(Process::destroyForcibly);
    }

    @Test
    void servesUntilItIsToldToStop(@TempDir Path folder) throws Exception {
        Path socket = folder.resolve("worker.sock");
        Process worker = start("--listen", "127.0.0.1:0", "--listen", "unix:" + socket);
        BufferedReader said = said(worker);
        Matcher ready = READY.matcher(said.readLine());
        assertTrue(ready.matches());
        assertEquals(", unix:" + socket, ready.group(2));
        assertTrue(Files.exists(socket));
        worker.toHandle().destroy();
        assertEquals(0, status(worker));
        assertFalse(Files.exists(socket));
        assertEquals(null, said.readLine());
    }

    @Test
    void aSecondSignalEndsItAtOnce() throws Exception {
        Process worker = start("--listen", "127.0.0.1:0", "--grace", "100");
        Matcher ready = READY.matcher(said(worker).readLine());
        assertTrue(ready.matches());
        try (OpenCall call = new OpenCall("127.0.0.1:" + ready.group(1))) {
            call.awaitInFlight();
            worker.toHandle().destroy();
            call.awaitDraining();
            assertTrue(worker.isAlive());
            worker.toHandle().destroy();
            assertEquals(128 + 15, status(worker));
        }
    }

    @Test
    void itEndsThoughNobodyReadsWhatItSays() throws Exception {
        // A failure that is longer than a pipe takes.
        List<String> format = List.of("-Djava.util.logging.SimpleFormatter.format=%5$200000s");
        Process worker = start(format, "--listen", "127.0.0.1:0");
        Matcher ready = READY.matcher(said(worker).readLine());
        assertTrue(ready.matches());
        try (OpenCall call = new OpenCall("127.0.0.1:" + ready.group(1))) {
            call.awaitInFlight();
        }
        worker.toHandle().destroy();
        assertEquals(0, status(worker));
    }

    @Test
    void badUsageIsStatus2() throws Exception {
        Process worker = start("--listen", "nowhere");
        assertTrue(said(worker).readLine().startsWith("worker: argument --listen: 'nowhere' is not an address"));
        assertEquals(2, status(worker));
    }

    @Test
    void anAddressInUseIsStatus1() throws Exception {
        try (ServerSocket taken = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            String address = "127.0.0.1:" + taken.getLocalPort();
            Process worker = start("--listen", address);
            assertEquals("worker: " + address + ": Address already in use", said(worker).readLine());
            assertEquals(1, status(worker));
        }
    }

    @Test
    void helpIsStatus0() throws Exception {
        Process worker = start("--help");
        assertEquals(0, status(worker));
        assertTrue(new String(worker.getInputStream().readAllBytes(), StandardCharsets.UTF_8).contains("--listen"));
    }

    private Process start(String... options) throws IOException {
        return start(List.of(), options);
    }

    private Process start(List<String> jvmOptions, String... options) throws IOException {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(jvmOptions);
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), Samples.class.getName()));
        command.addAll(List.of(options));
        Process worker = new ProcessBuilder(command).start();
        started.add(worker);
        return worker;
    }

    private static BufferedReader said(Process worker) {
        return worker.errorReader(StandardCharsets.UTF_8);
    }

    private static int status(Process worker) throws InterruptedException {
        assertTrue(worker.waitFor(60, TimeUnit.SECONDS));
        return worker.exitValue();
    }
}
