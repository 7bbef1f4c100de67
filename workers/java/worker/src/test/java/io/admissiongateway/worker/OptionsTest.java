package io.admissiongateway.worker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

final class OptionsTest {
    @Test
    void nothingSaidIsLoopback() {
        Options options = Options.parse();
        assertEquals(List.of("127.0.0.1:50051"), options.listen());
        assertNull(options.tls());
        assertEquals(Duration.ofSeconds(10), options.grace());
    }

    @Test
    void readsAll() {
        Options options =
                Options.parse(
                        "--listen", "[::1]:0", "--listen=localhost:1", "--tls-cert", "c", "--tls-key", "k",
                        "--client-ca", "a", "--grace", "0.5");
        assertEquals(List.of("[::1]:0", "localhost:1"), options.listen());
        assertEquals(new Tls(Path.of("c"), Path.of("k"), Path.of("a")), options.tls());
        assertEquals(Duration.ofMillis(500), options.grace());
        assertTrue(Options.parse("--help").isHelp());
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "--port 1 | unrecognized arguments: --port",
                "--listen | argument --listen: expected one argument",
                "--listen nowhere | argument --listen: 'nowhere' is not an address: HOST:PORT, [IPV6]:PORT or"
                        + " unix:PATH is expected",
                "--grace -1 | argument --grace: '-1' is not a number of seconds",
                "--grace NaN | argument --grace: 'NaN' is not a number of seconds",
                "--tls-cert c | --tls-cert and --tls-key go together",
                "--client-ca c | --client-ca needs --tls-cert and --tls-key",
                "--listen unix:/s --tls-cert c --tls-key k | TLS is for HOST:PORT; a unix: socket is guarded by the"
                        + " permissions of its folder",
                "--listen a:1 --listen a:1 | --listen names the same address twice",
            })
    void saysWhatIsWrong(String args, String expected) {
        Exception problem =
                assertThrows(IllegalArgumentException.class, () -> Options.parse(args.trim().split(" ")));
        assertEquals(expected, problem.getMessage());
    }

    @ParameterizedTest
    @ValueSource(strings = {"127.0.0.1:0", "[::1]:65535", "worker.example:50051", "unix:/run/w.sock", "unix:w.sock"})
    void addressesAreWrittenAsTheyAreRead(String text) {
        assertEquals(text, Address.parse(text).toString());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "a", "a:", ":1", "a:65536", "::1:5", "unix:", "http://a:1", "a:-1"})
    void refusesWhatIsNoAddress(String text) {
        assertThrows(IllegalArgumentException.class, () -> Address.parse(text));
    }

    @Test
    void refusesASocketPathThatIsTooLong() {
        assertThrows(IllegalArgumentException.class, () -> Address.parse("unix:/" + "a".repeat(107)));
        assertEquals("unix:/a", Address.parse("unix:///a").toString());
    }
}
