// Encryption towards clients and towards origins, with the JDK's TLS.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.apache.hc.client5.http.ssl.ClientTlsStrategyBuilder;
import org.apache.hc.client5.http.ssl.TlsSocketStrategy;
import org.apache.tomcat.util.net.SSLHostConfig;
import org.apache.tomcat.util.net.SSLHostConfigCertificate;
import wirespeed.gateway.core.OptionValues;

/** Origins are always verified, their names too. */
final class Tls {
    private Tls() {
    }

    /** How connections to origins are encrypted, when an origin asks for it. */
    static TlsSocketStrategy toOrigins(OptionValues options) {
        String file = options.text("origin-ca");
        try {
            SSLContext context = file.isEmpty() ? SSLContext.getDefault() : trusting(file);
            return ClientTlsStrategyBuilder.create().setSslContext(context)
                    .setTlsVersions("TLSv1.3", "TLSv1.2").buildClassic();
        } catch (GeneralSecurityException | IOException e) {
            throw new IllegalArgumentException("tls.origin-ca: " + e.getMessage(), e);
        }
    }

    private static SSLContext trusting(String file) throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream in = Files.newInputStream(Path.of(file))) {
            int number = 0;
            for (Certificate one : CertificateFactory.getInstance("X.509")
                    .generateCertificates(in)) {
                store.setCertificateEntry("ca-" + number++, one);
            }
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(
                TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }

    /** The certificate for clients, or null when they are not served over TLS. */
    static SSLHostConfig forClients(OptionValues options) {
        if (options.text("certificate").isEmpty()) {
            return null;
        }
        SSLHostConfig host = new SSLHostConfig();
        host.setProtocols("TLSv1.3+TLSv1.2");
        SSLHostConfigCertificate certificate = new SSLHostConfigCertificate(host,
                SSLHostConfigCertificate.Type.UNDEFINED);
        certificate.setCertificateFile(readable(options, "certificate"));
        certificate.setCertificateKeyFile(readable(options, "key"));
        host.addCertificate(certificate);
        return host;
    }

    private static String readable(OptionValues options, String name) {
        String file = options.text(name);
        if (!Files.isReadable(Path.of(file))) {
            throw new IllegalArgumentException("tls." + name + ": \"" + file
                    + "\" cannot be read");
        }
        return Path.of(file).toAbsolutePath().toString();
    }
}
