// Whether a private key belongs to a certificate.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.PrivateKey;
import java.security.PublicKey;
import java.security.Signature;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The JDK's TLS takes any pair and fails each handshake. Chain and key are two files: one of them may
 * have been replaced and the other one not.
 */
final class KeyMatch {
    private static final Pattern PKCS8 = Pattern.compile(
            "-----BEGIN PRIVATE KEY-----([A-Za-z0-9+/=\\s]+)-----END PRIVATE KEY-----");
    private static final byte[] SIGNED = {1, 2, 3};

    private KeyMatch() {
    }

    /** False when it is another one's key; a form that is not read here is left to the carrier. */
    static boolean isPair(PublicKey certified, Path file) throws IOException {
        Matcher pem = PKCS8.matcher(Files.readString(file));
        String algorithm = signature(certified.getAlgorithm());
        if (!pem.find() || algorithm == null) {
            return true;
        }
        try {
            byte[] bytes = Base64.getMimeDecoder().decode(pem.group(1));
            PrivateKey key = KeyFactory.getInstance(certified.getAlgorithm())
                    .generatePrivate(new PKCS8EncodedKeySpec(bytes));
            Signature signature = Signature.getInstance(algorithm);
            signature.initSign(key);
            signature.update(SIGNED);
            byte[] signed = signature.sign();
            signature.initVerify(certified);
            signature.update(SIGNED);
            return signature.verify(signed);
        } catch (GeneralSecurityException ofAnotherKind) {
            return false;
        }
    }

    private static String signature(String key) {
        return switch (key) {
            case "RSA" -> "SHA256withRSA";
            case "EC" -> "SHA256withECDSA";
            case "EdDSA", "Ed25519" -> "EdDSA";
            default -> null;
        };
    }
}
