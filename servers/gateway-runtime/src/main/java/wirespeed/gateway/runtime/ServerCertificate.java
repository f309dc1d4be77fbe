// The certificates that clients are shown, with the names that choose among them.
package wirespeed.gateway.runtime;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import wirespeed.gateway.core.OptionValues;

/**
 * One chain and its key.
 *
 * @param names DNS names that the certificate is for; of the default one they do not matter
 */
public record ServerCertificate(File chain, File key, List<String> names) {
    private static final int DNS_NAME = 2;

    /** The default one first; empty when clients are not served over TLS. */
    public static List<ServerCertificate> of(OptionValues tls) {
        List<ServerCertificate> all = named(tls);
        for (ServerCertificate one : all) {
            String key = one.key().toString();
            try {
                String chain = one.chain().toString();
                if (!KeyMatch.isPair(certificates("tls.certificate", chain).get(0).getPublicKey(),
                        one.key().toPath())) {
                    throw new IllegalArgumentException("\"" + key + "\" is not the key of the"
                            + " certificate in \"" + chain + "\"");
                }
            } catch (IOException unreadable) {
                throw new IllegalArgumentException("\"" + key + "\" cannot be read: "
                        + unreadable.getMessage(), unreadable);
            }
        }
        return all;
    }

    private static List<ServerCertificate> named(OptionValues tls) {
        if (tls.text("certificate").isEmpty()) {
            if (!tls.text("key").isEmpty() || !tls.texts("more-certificates").isEmpty()) {
                throw new IllegalArgumentException("tls.certificate is missing: tls.key and"
                        + " tls.more-certificates have no effect without it");
            }
            return List.of();
        }
        List<ServerCertificate> all = new ArrayList<>();
        all.add(read("tls.certificate", tls.text("certificate"), "tls.key", tls.text("key")));
        for (String pair : tls.texts("more-certificates")) {
            String[] files = pair.trim().split("\\s+");
            if (files.length != 2) {
                throw new IllegalArgumentException("tls.more-certificates: \"" + pair
                        + "\" is not CHAIN.pem KEY.pem");
            }
            all.add(read("tls.more-certificates", files[0], "tls.more-certificates", files[1]));
        }
        return all;
    }

    /** The certificates in a PEM file. */
    public static List<X509Certificate> certificates(String option, String file) {
        try (InputStream in = Files.newInputStream(new File(file).toPath())) {
            Collection<? extends Certificate> all =
                    CertificateFactory.getInstance("X.509").generateCertificates(in);
            if (all.isEmpty()) {
                throw new IllegalArgumentException(option + ": \"" + file
                        + "\" holds no certificate");
            }
            return all.stream().map(X509Certificate.class::cast).toList();
        } catch (IOException | CertificateException bad) {
            throw new IllegalArgumentException(option + ": \"" + file + "\" cannot be read: "
                    + bad.getMessage(), bad);
        }
    }

    private static ServerCertificate read(String chainOption, String chain, String keyOption,
            String key) {
        if (!Files.isReadable(new File(key).toPath())) {
            throw new IllegalArgumentException(keyOption + ": \"" + key + "\" cannot be read");
        }
        return new ServerCertificate(new File(chain).getAbsoluteFile(),
                new File(key).getAbsoluteFile(), names(certificates(chainOption, chain).get(0)));
    }

    private static List<String> names(X509Certificate certificate) {
        List<String> names = new ArrayList<>();
        try {
            Collection<List<?>> all = certificate.getSubjectAlternativeNames();
            for (List<?> name : all == null ? List.<List<?>>of() : all) {
                if (name.get(0).equals(DNS_NAME)) {
                    names.add((String) name.get(1));
                }
            }
        } catch (CertificateException unreadable) {
            throw new IllegalArgumentException("names of a certificate: "
                    + unreadable.getMessage(), unreadable);
        }
        return names;
    }

    /** The files whose change means that certificates have to be read again. */
    static List<File> files(OptionValues tls) {
        List<File> files = new ArrayList<>();
        for (ServerCertificate one : named(tls)) {
            files.add(one.chain());
            files.add(one.key());
        }
        if (!tls.text("client-ca").isEmpty()) {
            files.add(new File(tls.text("client-ca")));
        }
        return files;
    }
}
