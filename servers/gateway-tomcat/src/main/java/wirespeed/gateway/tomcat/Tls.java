// Encryption towards clients and towards origins, with the JDK's TLS.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.List;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.apache.hc.client5.http.ssl.ClientTlsStrategyBuilder;
import org.apache.hc.client5.http.ssl.TlsSocketStrategy;
import org.apache.tomcat.util.net.SSLHostConfig;
import org.apache.tomcat.util.net.SSLHostConfigCertificate;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.runtime.ServerCertificate;
import wirespeed.gateway.runtime.TlsRules;

/** Origins are always verified, their names too. */
final class Tls {
    static {
        // Before the first socket: an end without the alert of TLS is none (RFC 9112 §9.8), but
        // sockets of the JDK accept it as one without this property.
        System.setProperty("com.sun.net.ssl.requireCloseNotify", "true");
    }

    private Tls() {
    }

    /** How connections to origins are encrypted, when an origin asks for it. */
    static TlsSocketStrategy toOrigins(OptionValues options) {
        String file = options.text("origin-ca");
        try {
            SSLContext context = file.isEmpty() ? SSLContext.getDefault() : trusting(file);
            return ClientTlsStrategyBuilder.create().setSslContext(context)
                    .setTlsVersions("TLSv1.3", "TLSv1.2").buildClassic();
        } catch (GeneralSecurityException e) {
            throw new IllegalArgumentException("tls.origin-ca: " + e.getMessage(), e);
        }
    }

    private static SSLContext trusting(String file) throws GeneralSecurityException {
        KeyStore store = authorities("tls.origin-ca", file);
        TrustManagerFactory trust = TrustManagerFactory.getInstance(
                TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }

    /** The certificates for clients, the default one first; empty without TLS. */
    static List<SSLHostConfig> forClients(OptionValues options) {
        List<SSLHostConfig> hosts = new ArrayList<>();
        for (ServerCertificate one : ServerCertificate.of(options)) {
            List<String> names = hosts.isEmpty() ? List.of("_default_")
                    : one.names();
            names.forEach(name -> hosts.add(host(name, one, options)));
        }
        return hosts;
    }

    private static SSLHostConfig host(String name, ServerCertificate files, OptionValues options) {
        SSLHostConfig host = new SSLHostConfig();
        host.setHostName(name);
        TlsRules rules = TlsRules.of(options);
        host.setProtocols(String.join("+", rules.protocols()));
        host.setCiphers(String.join(",", rules.ciphers()));
        SSLHostConfigCertificate certificate = new SSLHostConfigCertificate(host,
                SSLHostConfigCertificate.Type.UNDEFINED);
        certificate.setCertificateFile(files.chain().toString());
        certificate.setCertificateKeyFile(files.key().toString());
        host.addCertificate(certificate);
        String asks = options.text("client-auth");
        if (!asks.equals("none")) {
            host.setCertificateVerification(asks);
            host.setTrustStore(authorities("tls.client-ca", options.text("client-ca")));
        }
        return host;
    }

    private static KeyStore authorities(String option, String file) {
        if (file.isEmpty()) {
            throw new IllegalArgumentException("tls.client-auth needs " + option);
        }
        try {
            KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
            store.load(null, null);
            int number = 0;
            for (X509Certificate one : ServerCertificate.certificates(option, file)) {
                store.setCertificateEntry("ca-" + number++, one);
            }
            return store;
        } catch (GeneralSecurityException | IOException e) {
            throw new IllegalArgumentException(option + ": " + e.getMessage(), e);
        }
    }
}
