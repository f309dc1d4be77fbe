// Stands for a text of any length that a client chose, in tables that must not grow with it.
package wirespeed.gateway.runtime;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.SecureRandom;

/**
 * 128 bits of SHA-256 over a secret of this process and the text: no client can search for two
 * texts with the same hash.
 */
record KeyHash(long high, long low) {
    private static final byte[] SECRET = new byte[32];

    static {
        new SecureRandom().nextBytes(SECRET);
    }

    static KeyHash of(String text) {
        try {
            MessageDigest sha = MessageDigest.getInstance("SHA-256");
            sha.update(SECRET);
            ByteBuffer hash = ByteBuffer.wrap(
                    sha.digest(text.getBytes(StandardCharsets.UTF_8)));
            return new KeyHash(hash.getLong(), hash.getLong());
        } catch (NoSuchAlgorithmException missing) {
            throw new IllegalStateException("every Java platform has SHA-256", missing);
        }
    }
}
