// The public keys of an issuer of tokens (RFC 7517), from a file or an address.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.math.BigInteger;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.AlgorithmParameters;
import java.security.GeneralSecurityException;
import java.security.Key;
import java.security.KeyFactory;
import java.security.spec.ECGenParameterSpec;
import java.security.spec.ECParameterSpec;
import java.security.spec.ECPoint;
import java.security.spec.ECPublicKeySpec;
import java.security.spec.EdECPoint;
import java.security.spec.EdECPublicKeySpec;
import java.security.spec.NamedParameterSpec;
import java.security.spec.RSAPublicKeySpec;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import javax.crypto.spec.SecretKeySpec;

/**
 * A set that is fetched again when it is old, and when a token names a key that is not in it, but not
 * more often than every ten seconds. While the issuer does not answer, the last set stays.
 */
final class JsonWebKeys implements AutoCloseable {
    private static final int SET_BYTES_MAX = 1 << 20;
    private static final int SECRET_BITS_MIN = 256;
    private static final long OLD_NANOS = TimeUnit.MINUTES.toNanos(5);
    private static final int PAUSE_SECONDS = 10;
    private static final Duration PATIENCE = Duration.ofSeconds(5);

    /**
     * One key.
     *
     * @param id kid; null for none
     * @param algorithm the only one it is for; null for all of its kind
     * @param kind kty, with the curve where there is one: RSA, EC P-256, OKP Ed25519, oct
     */
    record WebKey(String id, String algorithm, String kind, Key key) {
    }

    private final String source;
    private final Duration patience;
    private final HttpClient http;
    /** Null where the set is a file. */
    private final HttpRequest request;
    private volatile List<WebKey> keys;
    private volatile long fetchedNanos;
    private CompletableFuture<List<WebKey>> underWay;
    private long askedNanos;

    /** A file is read now, an address when the first token comes. */
    JsonWebKeys(String source) {
        this(source, PATIENCE);
    }

    /**
     * As above.
     *
     * @param patience for the head of the issuer's answer, and for its body
     */
    JsonWebKeys(String source, Duration patience) {
        this.source = source;
        this.patience = patience;
        boolean isAddress = source.startsWith("http://") || source.startsWith("https://");
        try {
            request = isAddress ? HttpRequest.newBuilder(URI.create(source)).timeout(patience).build()
                    : null;
            keys = isAddress ? null : read(Files.readString(Path.of(source)));
        } catch (IOException | IllegalArgumentException bad) {
            throw new IllegalArgumentException("jwks \"" + source + "\" cannot be read: "
                    + bad.getMessage(), bad);
        }
        http = isAddress ? HttpClient.newBuilder().connectTimeout(patience).build() : null;
    }

    /** The set as it is known; null before it was fetched once. */
    List<WebKey> known() {
        if (http != null && keys != null && System.nanoTime() - fetchedNanos > OLD_NANOS) {
            fetch();
        }
        return keys;
    }

    /** Whether asking again could bring a key that is not in the set. */
    boolean mayChange() {
        return http != null && isDue();
    }

    private synchronized boolean isDue() {
        return underWay != null || keys == null || System.nanoTime() - askedNanos > pauseNanos();
    }

    private static long pauseNanos() {
        return PAUSE_SECONDS * Seconds.nanos;
    }

    /** The set as the issuer has it now; many who ask at one time share a request. */
    synchronized CompletableFuture<List<WebKey>> fetch() {
        if (underWay != null) {
            return underWay;
        }
        if (http == null || askedNanos != 0 && System.nanoTime() - askedNanos < pauseNanos()) {
            return CompletableFuture.completedFuture(keys == null ? List.of() : keys);
        }
        askedNanos = System.nanoTime();
        CompletableFuture<List<WebKey>> mine = new CompletableFuture<>();
        underWay = mine;
        http.sendAsync(request, HttpResponse.BodyHandlers.ofInputStream())
                .thenApply(answer -> read(BoundedBody.read(answer, SET_BYTES_MAX, patience), true))
                .whenComplete(this::fetched);
        return mine;
    }

    private void fetched(List<WebKey> fresh, Throwable failed) {
        CompletableFuture<List<WebKey>> waiting;
        synchronized (this) {
            waiting = underWay;
            underWay = null;
            if (failed == null) {
                // The same object while nothing changes: tokens checked with it need no other check.
                keys = fresh.equals(keys) ? keys : fresh;
                fetchedNanos = System.nanoTime();
            }
        }
        if (failed != null) {
            ThrottledLog.line("keys of " + source + " cannot be fetched: " + failed.getMessage());
        }
        waiting.complete(keys == null ? List.of() : keys);
    }

    /** Keys of a kind or for a use that is not known are passed over (RFC 7517 §5). */
    static List<WebKey> read(String text) {
        return read(text, false);
    }

    /**
     * As above.
     *
     * @param isFetched whether an issuer sent it: a malformed key is left out while there are others, so
     *     that tokens of the others pass (RFC 7517 §5); in a file it is a mistake
     */
    static List<WebKey> read(String text, boolean isFetched) {
        if (!(Json.object(text).get("keys") instanceof List<?> all)) {
            throw new IllegalArgumentException("a key set has a list \"keys\"");
        }
        List<WebKey> keys = new ArrayList<>();
        IllegalArgumentException malformed = null;
        for (Object one : all) {
            if (one instanceof Map<?, ?> fields && !"enc".equals(fields.get("use"))) {
                try {
                    WebKey key = key(fields);
                    if (key != null) {
                        keys.add(key);
                    }
                } catch (GeneralSecurityException bad) {
                    malformed = new IllegalArgumentException("key " + fields.get("kid") + ": "
                            + bad.getMessage(), bad);
                    if (!isFetched) {
                        throw malformed;
                    }
                    ThrottledLog.line("a key of a fetched set is left out: " + malformed.getMessage());
                }
            }
        }
        if (malformed != null && keys.isEmpty()) {
            throw malformed;
        }
        return List.copyOf(keys);
    }

    private static WebKey key(Map<?, ?> fields) throws GeneralSecurityException {
        String kind = text(fields, "kty");
        String curve = text(fields, "crv");
        Key key = switch (String.valueOf(kind)) {
            case "RSA" -> rsa(fields);
            case "EC" -> ec(curve, fields);
            case "OKP" -> "Ed25519".equals(curve) ? ed25519(bytes(fields, "x")) : null;
            case "oct" -> secret(bytes(fields, "k"));
            default -> null;
        };
        return key == null ? null : new WebKey(text(fields, "kid"), text(fields, "alg"),
                curve == null ? kind : kind + " " + curve, key);
    }

    /** RFC 7518 §3.2: as long as the hash at least, or it can be found by trying. */
    private static Key secret(byte[] bytes) throws GeneralSecurityException {
        if (bytes.length * 8 < SECRET_BITS_MIN) {
            throw new GeneralSecurityException("an oct key of " + bytes.length * 8
                    + " bits; HS256 needs 256, HS384 384, HS512 512");
        }
        return new SecretKeySpec(bytes, "HMAC");
    }

    private static Key rsa(Map<?, ?> fields) throws GeneralSecurityException {
        BigInteger modulus = new BigInteger(1, bytes(fields, "n"));
        if (modulus.bitLength() < 2048) {
            throw new GeneralSecurityException("an RSA key of less than 2048 bits");
        }
        return KeyFactory.getInstance("RSA").generatePublic(new RSAPublicKeySpec(modulus,
                new BigInteger(1, bytes(fields, "e"))));
    }

    private static Key ec(String curve, Map<?, ?> fields) throws GeneralSecurityException {
        String name = switch (String.valueOf(curve)) {
            case "P-256" -> "secp256r1";
            case "P-384" -> "secp384r1";
            case "P-521" -> "secp521r1";
            default -> null;
        };
        if (name == null) {
            return null;
        }
        AlgorithmParameters parameters = AlgorithmParameters.getInstance("EC");
        parameters.init(new ECGenParameterSpec(name));
        return KeyFactory.getInstance("EC").generatePublic(new ECPublicKeySpec(new ECPoint(
                new BigInteger(1, bytes(fields, "x")), new BigInteger(1, bytes(fields, "y"))),
                parameters.getParameterSpec(ECParameterSpec.class)));
    }

    /** RFC 8032 §5.1.2: little-endian, and the highest bit is the sign of the other coordinate. */
    private static Key ed25519(byte[] encoded) throws GeneralSecurityException {
        byte[] number = new byte[encoded.length];
        for (int i = 0; i < encoded.length; i++) {
            number[i] = encoded[encoded.length - 1 - i];
        }
        boolean isOdd = number.length > 0 && number[0] < 0;
        if (isOdd) {
            number[0] &= 0x7f;
        }
        return KeyFactory.getInstance("Ed25519").generatePublic(new EdECPublicKeySpec(
                NamedParameterSpec.ED25519, new EdECPoint(isOdd, new BigInteger(1, number))));
    }

    private static String text(Map<?, ?> fields, String name) {
        return fields.get(name) instanceof String text ? text : null;
    }

    private static byte[] bytes(Map<?, ?> fields, String name) throws GeneralSecurityException {
        String text = text(fields, name);
        if (text == null || text.isEmpty()) {
            throw new GeneralSecurityException("there is no \"" + name + "\"");
        }
        try {
            return Base64.getUrlDecoder().decode(text);
        } catch (IllegalArgumentException bad) {
            throw new GeneralSecurityException("\"" + name + "\" is not base64url", bad);
        }
    }

    @Override
    public void close() {
        // The client's threads end when it is collected.
    }
}
