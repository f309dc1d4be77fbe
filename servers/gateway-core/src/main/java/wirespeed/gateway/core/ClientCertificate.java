// The description of a client's certificate that an origin receives.
package wirespeed.gateway.core;

import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.cert.CertificateEncodingException;
import java.security.cert.X509Certificate;
import java.util.HexFormat;

/** In the form in which Envoy writes X-Forwarded-Client-Cert. */
public final class ClientCertificate {
    private ClientCertificate() {
    }

    /** Its fingerprint (SHA-256) and its subject (RFC 2253). */
    public static String describe(X509Certificate certificate) {
        try {
            String hash = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256")
                    .digest(certificate.getEncoded()));
            return "Hash=" + hash + ";Subject=\"" + quoted(
                    certificate.getSubjectX500Principal().getName()) + "\"";
        } catch (NoSuchAlgorithmException | CertificateEncodingException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** A name may hold any character, a field value may not. */
    private static String quoted(String name) {
        StringBuilder text = new StringBuilder(name.length());
        for (int i = 0; i < name.length(); i++) {
            char c = name.charAt(i);
            if (c == '"' || c == '\\') {
                text.append('\\');
            }
            text.append(c < ' ' || c > '~' ? '?' : c);
        }
        return text.toString();
    }
}
