// Hashes of passwords as `openssl passwd -6` writes them: SHA-512 crypt.
package wirespeed.gateway.runtime;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * "Unix crypt using SHA-256 and SHA-512", U. Drepper, 2008. Some milliseconds by design: nothing for an
 * event loop.
 *
 * @param rounds how often the hash is hashed
 * @param salt up to 16 characters
 * @param hash in the alphabet of crypt
 */
record CryptHash(int rounds, String salt, String hash) {
    private static final Pattern FORM = Pattern.compile(
            "\\$6\\$(?:rounds=(\\d{1,9})\\$)?([^$]{1,16})\\$([./0-9A-Za-z]{86})");
    private static final int ROUNDS = 5000;
    private static final int ROUNDS_MIN = 1000;
    /** Half a second; more would let few wrong passwords keep all others waiting. */
    private static final int ROUNDS_MAX = 500_000;
    private static final int DIGEST_BYTES = 64;
    private static final String ALPHABET =
            "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

    /** Reads "$6$SALT$HASH" or "$6$rounds=N$SALT$HASH"; null for anything else. */
    static CryptHash parse(String text) {
        Matcher parts = FORM.matcher(text);
        if (!parts.matches()) {
            return null;
        }
        int rounds = parts.group(1) == null ? ROUNDS
                : Math.max(ROUNDS_MIN, Integer.parseInt(parts.group(1)));
        return rounds > ROUNDS_MAX ? null : new CryptHash(rounds, parts.group(2), parts.group(3));
    }

    /** Whether this is the hash of a password. */
    boolean isOf(String password) {
        byte[] found = hash(password.getBytes(StandardCharsets.UTF_8)).getBytes(
                StandardCharsets.US_ASCII);
        return MessageDigest.isEqual(found, hash.getBytes(StandardCharsets.US_ASCII));
    }

    private String hash(byte[] password) {
        byte[] salted = salt.getBytes(StandardCharsets.UTF_8);
        MessageDigest sha = sha();
        byte[] digest = first(sha, password, salted);
        for (int i = 0; i < password.length; i++) {
            sha.update(password);
        }
        byte[] p = repeated(sha.digest(), password.length);
        for (int i = 0; i < 16 + (digest[0] & 0xff); i++) {
            sha.update(salted);
        }
        byte[] s = repeated(sha.digest(), salted.length);
        for (int round = 0; round < rounds; round++) {
            boolean isOdd = (round & 1) != 0;
            sha.update(isOdd ? p : digest);
            if (round % 3 != 0) {
                sha.update(s);
            }
            if (round % 7 != 0) {
                sha.update(p);
            }
            sha.update(isOdd ? digest : p);
            digest = sha.digest();
        }
        return encoded(digest);
    }

    private static MessageDigest sha() {
        try {
            return MessageDigest.getInstance("SHA-512");
        } catch (NoSuchAlgorithmException missing) {
            throw new IllegalStateException("every Java platform has SHA-512", missing);
        }
    }

    /** Steps 1 to 12 of the specification. */
    private static byte[] first(MessageDigest sha, byte[] password, byte[] salt) {
        sha.update(password);
        sha.update(salt);
        sha.update(password);
        byte[] inner = sha.digest();
        sha.update(password);
        sha.update(salt);
        sha.update(repeated(inner, password.length));
        for (int bits = password.length; bits > 0; bits >>= 1) {
            sha.update((bits & 1) != 0 ? inner : password);
        }
        return sha.digest();
    }

    private static byte[] repeated(byte[] digest, int length) {
        byte[] bytes = new byte[length];
        for (int at = 0; at < length; at += DIGEST_BYTES) {
            System.arraycopy(digest, 0, bytes, at, Math.min(DIGEST_BYTES, length - at));
        }
        return bytes;
    }

    /** Three bytes a group, which begin 21 apart and turn; the last byte is alone. */
    private static String encoded(byte[] digest) {
        StringBuilder text = new StringBuilder(86);
        int[] at = {0, 21, 42};
        for (int group = 0; group < 21; group++) {
            append(text, digest[at[0]] << 16 & 0xff0000 | digest[at[1]] << 8 & 0xff00
                    | digest[at[2]] & 0xff, 4);
            at = new int[] {at[1] + 1, at[2] + 1, at[0] + 1};
        }
        append(text, digest[DIGEST_BYTES - 1] & 0xff, 2);
        return text.toString();
    }

    private static void append(StringBuilder text, int bits, int characters) {
        for (int i = 0; i < characters; i++, bits >>= 6) {
            text.append(ALPHABET.charAt(bits & 63));
        }
    }

    /** Not shown by accident in a log. */
    @Override
    public String toString() {
        return "$6$…";
    }
}
