package io.admissiongateway.worker;

import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.Base64;
import java.util.concurrent.TimeUnit;

/** Certificates for 127.0.0.1 that sign themselves, made by the JDK's keytool. */
final class Certificates {
    private static final String PASSWORD = "changeit";

    private Certificates() {}

    /** Writes {@code NAME.pem} and {@code NAME.key} for this algorithm, whose name they have. */
    static void write(Path folder, String algorithm) throws Exception {
        Path store = folder.resolve(algorithm + ".p12");
        String keytool = Path.of(System.getProperty("java.home"), "bin", "keytool").toString();
        Process process =
                new ProcessBuilder(
                                keytool, "-genkeypair", "-keyalg", algorithm, "-alias", "own", "-dname",
                                "CN=worker", "-validity", "2", "-ext", "san=ip:127.0.0.1", "-ext",
                                "bc:critical=ca:true",
                                "-keystore", store.toString(), "-storetype", "PKCS12", "-storepass", PASSWORD)
                        .inheritIO()
                        .start();
        if (!process.waitFor(60, TimeUnit.SECONDS) || process.exitValue() != 0) {
            throw new IllegalStateException("keytool failed");
        }
        KeyStore keys = KeyStore.getInstance("PKCS12");
        try (InputStream file = Files.newInputStream(store)) {
            keys.load(file, PASSWORD.toCharArray());
        }
        pem(folder.resolve(algorithm + ".pem"), "CERTIFICATE", keys.getCertificate("own").getEncoded());
        byte[] key = keys.getKey("own", PASSWORD.toCharArray()).getEncoded();
        pem(folder.resolve(algorithm + ".key"), "PRIVATE KEY", key);
    }

    private static void pem(Path path, String kind, byte[] der) throws Exception {
        String text = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(der);
        Files.writeString(path, "-----BEGIN " + kind + "-----\n" + text + "\n-----END " + kind + "-----\n");
    }
}
