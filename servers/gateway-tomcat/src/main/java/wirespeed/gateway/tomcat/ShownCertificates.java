// The certificates of the gateway and their keys, read once for all of its listeners.
package wirespeed.gateway.tomcat;

import java.io.File;
import java.io.IOException;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.List;
import org.apache.tomcat.util.net.SSLHostConfig;
import org.apache.tomcat.util.net.SSLHostConfigCertificate;
import org.apache.tomcat.util.net.jsse.PEMFile;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.runtime.ServerCertificate;
import wirespeed.gateway.runtime.TlsRules;

/** Given the files, Tomcat would read them again for each listener, and they may change meanwhile. */
final class ShownCertificates {
    /** It protects nothing: the store never leaves this process. */
    private static final String PASSWORD = "none";

    /** A certificate with its key, and the name for which it is shown. */
    private record Shown(String host, KeyStore keys) {
    }

    private final List<Shown> all = new ArrayList<>();
    private final TlsRules rules;
    private final String asks;
    /** Null where clients are not asked for a certificate. */
    private final KeyStore clientAuthorities;

    /** Reads the files, of which each mistake is refused here; without TLS there are none. */
    ShownCertificates(OptionValues options) {
        rules = TlsRules.of(options);
        asks = options.text("client-auth");
        for (ServerCertificate one : ServerCertificate.of(options)) {
            List<String> names = all.isEmpty() ? List.of("_default_") : one.names();
            KeyStore keys = read(one);
            names.forEach(name -> all.add(new Shown(name, keys)));
        }
        clientAuthorities = all.isEmpty() || asks.equals("none") ? null
                : clientAuthorities(options.text("client-ca"));
    }

    private static KeyStore clientAuthorities(String file) {
        if (file.isEmpty()) {
            throw new IllegalArgumentException("tls.client-auth needs tls.client-ca");
        }
        return Tls.authorities("tls.client-ca", file);
    }

    private static KeyStore read(ServerCertificate files) {
        File file = files.chain();
        try {
            List<X509Certificate> chain = new PEMFile(file.toString()).getCertificates();
            if (chain.isEmpty()) {
                throw new IllegalArgumentException("\"" + file + "\" holds no certificate as PEM");
            }
            file = files.key();
            KeyStore store = KeyStore.getInstance("JKS");
            store.load(null, null);
            store.setKeyEntry("tomcat", new PEMFile(file.toString()).getPrivateKey(),
                    PASSWORD.toCharArray(), chain.toArray(X509Certificate[]::new));
            return store;
        } catch (GeneralSecurityException | IOException bad) {
            throw new IllegalArgumentException("\"" + file + "\" cannot be read: " + bad.getMessage(), bad);
        }
    }

    /** Of its own for each listener, which changes what it takes; the default one first. */
    List<SSLHostConfig> hosts() {
        return all.stream().map(this::host).toList();
    }

    private SSLHostConfig host(Shown shown) {
        SSLHostConfig host = new SSLHostConfig();
        host.setHostName(shown.host());
        host.setProtocols(String.join("+", rules.protocols()));
        host.setCiphers(String.join(",", rules.ciphers()));
        SSLHostConfigCertificate certificate = new SSLHostConfigCertificate(host,
                SSLHostConfigCertificate.Type.UNDEFINED);
        certificate.setCertificateKeystore(shown.keys());
        certificate.setCertificateKeyPassword(PASSWORD);
        host.addCertificate(certificate);
        if (clientAuthorities != null) {
            host.setCertificateVerification(asks);
            host.setTrustStore(clientAuthorities);
        }
        return host;
    }
}
