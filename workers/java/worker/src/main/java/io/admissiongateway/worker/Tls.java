package io.admissiongateway.worker;

import java.nio.file.Path;
import java.util.Objects;

/**
 * The PEM files to serve TLS with.
 *
 * @param cert the certificate chain
 * @param key its private key, without a password
 * @param clientCa CA of the required client certificates; null: no client certificates
 */
public record Tls(Path cert, Path key, Path clientCa) {
    /** Checks that certificate and key are there. */
    public Tls {
        Objects.requireNonNull(cert, "TLS needs a certificate");
        Objects.requireNonNull(key, "TLS needs a key");
    }

    /** TLS without client certificates. */
    public Tls(Path cert, Path key) {
        this(cert, key, null);
    }
}
