// A self-signed certificate for 127.0.0.1, made by the JDK's keytool for one test run.
package wirespeed.gateway.contract;

import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.Base64;
import java.util.List;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** As PEM files for the gateway, and as contexts for the JDK's own client and server. */
final class Certificate {
    final Path certificate;
    final Path key;
    private final KeyStore store = KeyStore.getInstance("PKCS12");

    Certificate(Path folder) throws Exception {
        this(folder, "localhost", "SAN=ip:127.0.0.1,dns:localhost");
    }

    /** Its files are those of any other one in that folder, and overwrite them. */
    Certificate(Path folder, String name, String names) throws Exception {
        Files.createDirectories(folder);
        Path file = folder.resolve("store.p12");
        Files.deleteIfExists(file);
        Process keytool = new ProcessBuilder(List.of(
                Path.of(System.getProperty("java.home"), "bin", "keytool").toString(),
                "-genkeypair", "-keystore", file.toString(), "-storetype", "PKCS12", "-storepass",
                "secret", "-alias", "a", "-keyalg", "EC", "-groupname", "secp256r1", "-dname",
                "CN=" + name, "-ext", names, "-validity", "30"))
                .redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
        if (keytool.waitFor() != 0) {
            throw new IllegalStateException("keytool failed");
        }
        try (InputStream in = Files.newInputStream(file)) {
            store.load(in, "secret".toCharArray());
        }
        certificate = pem(folder.resolve("cert.pem"), "CERTIFICATE",
                store.getCertificate("a").getEncoded());
        key = pem(folder.resolve("key.pem"), "PRIVATE KEY",
                store.getKey("a", "secret".toCharArray()).getEncoded());
    }

    private static Path pem(Path file, String what, byte[] bytes) throws Exception {
        return Files.writeString(file, "-----BEGIN " + what + "-----\n"
                + Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(bytes)
                + "\n-----END " + what + "-----\n");
    }

    /** For a client that shows it. */
    javax.net.ssl.KeyManager[] keys() throws Exception {
        KeyManagerFactory keys = KeyManagerFactory.getInstance("PKIX");
        keys.init(store, "secret".toCharArray());
        return keys.getKeyManagers();
    }

    /** Serves with the certificate, and trusts nothing else. */
    SSLContext context() throws Exception {
        KeyManagerFactory keys = KeyManagerFactory.getInstance("PKIX");
        keys.init(store, "secret".toCharArray());
        KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, null);
        trusted.setCertificateEntry("a", store.getCertificate("a"));
        TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
        trust.init(trusted);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }
}
