package io.admissiongateway.worker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.ChannelCredentials;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Base64;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(120)
final class TlsTest {
    @TempDir private static Path folder;

    private final PolicyServer server = new PolicyServer().policy("allows", "", review -> review.object());

    @BeforeEach
    void certificates() throws Exception {
        if (!Files.exists(folder.resolve("RSA.pem"))) {
            Certificates.write(folder, "RSA");
            Certificates.write(folder, "EC");
        }
    }

    @AfterEach
    void stop() throws Exception {
        server.stop(Duration.ZERO);
    }

    @ParameterizedTest
    @ValueSource(strings = {"RSA", "EC"})
    void servesTls(String algorithm) throws Exception {
        String address = server.start(tls(algorithm, algorithm + ".key", null), "127.0.0.1:0").get(0);
        try (Gateway gateway = new Gateway(address, trusting(algorithm).build())) {
            assertTrue(gateway.review("allows", "{}").getAllowed());
        }
        try (Gateway plain = new Gateway(address)) {
            assertUnavailable(plain);
        }
    }

    /** The forms that cert-manager and OpenSSL write unless told otherwise. */
    @ParameterizedTest
    @ValueSource(strings = {"RSA", "EC"})
    void takesKeysOfTheirOlderForm(String algorithm) throws Exception {
        Path older = folder.resolve(algorithm + ".older.key");
        Files.writeString(older, older(algorithm, Files.readString(folder.resolve(algorithm + ".key"))));
        String address = server.start(tls(algorithm, older.getFileName().toString(), null), "127.0.0.1:0").get(0);
        try (Gateway gateway = new Gateway(address, trusting(algorithm).build())) {
            assertTrue(gateway.review("allows", "{}").getAllowed());
        }
    }

    @Test
    void letsInOnlyClientsWithACertificate() throws Exception {
        String address = server.start(tls("EC", "EC.key", folder.resolve("RSA.pem")), "127.0.0.1:0").get(0);
        ChannelCredentials known =
                trusting("EC").keyManager(path("RSA.pem").toFile(), path("RSA.key").toFile()).build();
        try (Gateway gateway = new Gateway(address, known)) {
            assertTrue(gateway.review("allows", "{}").getAllowed());
        }
        try (Gateway nobody = new Gateway(address, trusting("EC").build())) {
            assertUnavailable(nobody);
        }
        ChannelCredentials stranger =
                trusting("EC").keyManager(path("EC.pem").toFile(), path("EC.key").toFile()).build();
        try (Gateway other = new Gateway(address, stranger)) {
            assertUnavailable(other);
        }
    }

    @Test
    void saysWhatIsWrongWithTheFiles() throws Exception {
        assertProblem(tls("none", "RSA.key", null), "none.pem: No such file or directory");
        assertProblem(tls("EC", "RSA.key", null), "are not a PEM certificate and its key: ");
        Certificates.write(Files.createDirectories(folder.resolve("other")), "RSA");
        assertProblem(tls("RSA", "other/RSA.key", null), "the key is that of another certificate");
        Files.writeString(path("empty.key"), "nothing");
        assertProblem(tls("RSA", "empty.key", null), "there is no private key");
        Files.writeString(
                path("locked.key"), "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA\n-----END ENCRYPTED PRIVATE KEY-----");
        assertProblem(tls("RSA", "locked.key", null), "the key is encrypted; it is to be stored without a password");
        assertProblem(tls("RSA", "RSA.key", path("empty.key")), "holds no PEM certificate: ");
    }

    private void assertProblem(Tls tls, String expected) {
        StartException problem = assertThrows(StartException.class, () -> server.start(tls, "127.0.0.1:0"));
        assertTrue(problem.getMessage().contains(expected), problem::getMessage);
    }

    private static void assertUnavailable(Gateway gateway) {
        StatusRuntimeException refused =
                assertThrows(StatusRuntimeException.class, () -> gateway.review("allows", "{}"));
        assertEquals(Status.Code.UNAVAILABLE, refused.getStatus().getCode());
    }

    private static Tls tls(String cert, String key, Path clientCa) {
        return new Tls(path(cert + ".pem"), path(key), clientCa);
    }

    private static Path path(String name) {
        return folder.resolve(name);
    }

    private static TlsChannelCredentials.Builder trusting(String name) throws IOException {
        return TlsChannelCredentials.newBuilder().trustManager(path(name + ".pem").toFile());
    }

    /** Returns the key within a key in PKCS #8, as PKCS #1 or SEC 1 with the curve named. */
    private static String older(String algorithm, String pem) {
        byte[] pkcs8 = Base64.getMimeDecoder().decode(pem.replaceAll("-----[^-]+-----", ""));
        // The last element: an OCTET STRING, whose contents begin with a SEQUENCE.
        for (int at = 7; ; at++) {
            int header = (pkcs8[at + 1] & 0xff) == 0x82 ? 4 : (pkcs8[at + 1] & 0xff) == 0x81 ? 3 : 2;
            int length =
                    switch (header) {
                        case 4 -> (pkcs8[at + 2] & 0xff) << 8 | pkcs8[at + 3] & 0xff;
                        case 3 -> pkcs8[at + 2] & 0xff;
                        default -> pkcs8[at + 1];
                    };
            if (pkcs8[at] == 4 && at + header + length == pkcs8.length) {
                byte[] inner = Arrays.copyOfRange(pkcs8, at + header, pkcs8.length);
                return algorithm.equals("RSA") ? armor("RSA ", inner) : armor("EC ", withCurve(inner));
            }
        }
    }

    private static byte[] withCurve(byte[] key) {
        // prime256v1 in tag 0, as OpenSSL writes it; Java leaves it out, since PKCS #8 names it outside.
        byte[] curve = java.util.HexFormat.of().parseHex("a00a06082a8648ce3d030107");
        int end = 2 + 3 + 2 + key[6];
        byte[] named = Arrays.copyOf(Arrays.copyOf(key, end), end + curve.length);
        System.arraycopy(curve, 0, named, end, curve.length);
        named[1] = (byte) (named.length - 2);
        return named;
    }

    private static String armor(String kind, byte[] der) {
        String text = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(der);
        return "-----BEGIN " + kind + "PRIVATE KEY-----\n" + text + "\n-----END " + kind + "PRIVATE KEY-----\n";
    }
}
