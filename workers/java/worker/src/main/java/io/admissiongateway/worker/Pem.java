package io.admissiongateway.worker;

import io.grpc.ServerCredentials;
import io.grpc.TlsServerCredentials;
import io.grpc.TlsServerCredentials.ClientAuth;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.PrivateKey;
import java.security.PublicKey;
import java.security.Signature;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.HexFormat;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Reads the PEM files of TLS, and says what is wrong with them before anyone connects. Takes the forms of keys that
 * OpenSSL and cert-manager write, of which Java knows only PKCS #8.
 */
final class Pem {
    private static final Pattern KEY =
            Pattern.compile("-----BEGIN (RSA |EC |ENCRYPTED |)PRIVATE KEY-----([^-]*)-----END", Pattern.DOTALL);

    /** The algorithm of an RSA key in PKCS #8: SEQUENCE { rsaEncryption, NULL }. */
    private static final byte[] RSA = HexFormat.of().parseHex("300d06092a864886f70d0101010500");

    /** The object identifier ecPublicKey. */
    private static final byte[] EC = HexFormat.of().parseHex("06072a8648ce3d0201");

    private static final byte[] VERSION_0 = {2, 1, 0};

    private Pem() {}

    /** Returns the credentials of the files. */
    static ServerCredentials credentials(Tls tls) throws StartException {
        byte[] key = read(tls.key());
        byte[] cert = read(tls.cert());
        byte[] clientCa = tls.clientCa() == null ? null : read(tls.clientCa());
        try {
            byte[] pkcs8 = pkcs8(new String(key, StandardCharsets.ISO_8859_1));
            checkPair(certificates(cert).iterator().next(), pkcs8);
            TlsServerCredentials.Builder builder =
                    TlsServerCredentials.newBuilder()
                            .keyManager(new ByteArrayInputStream(cert), new ByteArrayInputStream(pem(pkcs8)));
            if (clientCa != null) {
                checkAuthority(tls.clientCa(), clientCa);
                builder.trustManager(new ByteArrayInputStream(clientCa)).clientAuth(ClientAuth.REQUIRE);
            }
            return builder.build();
        } catch (GeneralSecurityException | IllegalArgumentException | IOException problem) {
            if (problem instanceof StartException start) {
                throw start;
            }
            String text = "%s and %s are not a PEM certificate and its key: %s";
            throw new StartException(String.format(text, tls.cert(), tls.key(), problem.getMessage()));
        }
    }

    private static byte[] read(Path path) throws StartException {
        try {
            return Files.readAllBytes(path);
        } catch (NoSuchFileException problem) {
            throw new StartException(path + ": No such file or directory");
        } catch (IOException problem) {
            throw new StartException(path + ": " + problem.getMessage());
        }
    }

    private static Collection<? extends Certificate> certificates(byte[] pem) throws GeneralSecurityException {
        Collection<? extends Certificate> found =
                CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(pem));
        if (found.isEmpty()) {
            throw new GeneralSecurityException("there is no certificate");
        }
        return found;
    }

    private static void checkAuthority(Path path, byte[] pem) throws StartException {
        try {
            certificates(pem);
        } catch (GeneralSecurityException problem) {
            throw new StartException(path + " holds no PEM certificate: " + problem.getMessage());
        }
    }

    private static void checkPair(Certificate certificate, byte[] pkcs8) throws GeneralSecurityException {
        PublicKey known = certificate.getPublicKey();
        PrivateKey key = KeyFactory.getInstance(known.getAlgorithm()).generatePrivate(new PKCS8EncodedKeySpec(pkcs8));
        String algorithm =
                switch (known.getAlgorithm()) {
                    case "RSA" -> "SHA256withRSA";
                    case "EC" -> "SHA256withECDSA";
                    default -> key.getAlgorithm();
                };
        Signature signature = Signature.getInstance(algorithm);
        signature.initSign(key);
        byte[] signed = signature.sign();
        signature.initVerify(known);
        if (!signature.verify(signed)) {
            throw new GeneralSecurityException("the key is that of another certificate");
        }
    }

    private static byte[] pkcs8(String pem) throws GeneralSecurityException {
        Matcher found = KEY.matcher(pem);
        if (!found.find()) {
            throw new GeneralSecurityException("there is no private key");
        }
        if (found.group(1).startsWith("ENC") || found.group(2).contains("ENCRYPTED")) {
            throw new GeneralSecurityException("the key is encrypted; it is to be stored without a password");
        }
        byte[] der = Base64.getMimeDecoder().decode(found.group(2));
        return switch (found.group(1)) {
            case "RSA " -> der(0x30, VERSION_0, RSA, der(0x04, der));
            case "EC " -> der(0x30, VERSION_0, der(0x30, EC, curve(der)), der(0x04, der));
            default -> der;
        };
    }

    /** Returns the curve that an EC key names: the object identifier within its tag 0 (RFC 5915). */
    private static byte[] curve(byte[] key) throws GeneralSecurityException {
        for (int at = 0; at + 3 < key.length; at++) {
            boolean isTagged = (key[at] & 0xff) == 0xa0 && key[at + 2] == 0x06 && key[at + 1] == key[at + 3] + 2;
            if (isTagged && at + 2 + key[at + 1] <= key.length) {
                return Arrays.copyOfRange(key, at + 2, at + 2 + key[at + 1]);
            }
        }
        throw new GeneralSecurityException("the EC key does not name its curve");
    }

    /** Returns one element of DER (X.690) with these contents. */
    private static byte[] der(int tag, byte[]... contents) {
        int length = Arrays.stream(contents).mapToInt(content -> content.length).sum();
        ByteArrayOutputStream element = new ByteArrayOutputStream(length + 4);
        element.write(tag);
        if (length >= 0x80) {
            element.write(length <= 0xff ? 0x81 : 0x82);
        }
        if (length > 0xff) {
            element.write(length >> 8);
        }
        element.write(length);
        for (byte[] content : contents) {
            element.writeBytes(content);
        }
        return element.toByteArray();
    }

    private static byte[] pem(byte[] pkcs8) {
        String text = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(pkcs8);
        return ("-----BEGIN PRIVATE KEY-----\n" + text + "\n-----END PRIVATE KEY-----\n")
                .getBytes(StandardCharsets.US_ASCII);
    }
}
