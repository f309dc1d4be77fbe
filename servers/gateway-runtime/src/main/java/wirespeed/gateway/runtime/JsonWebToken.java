// Checks a signed token (RFC 7515, 7519) against a set of keys.
package wirespeed.gateway.runtime;

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.PublicKey;
import java.security.Signature;
import java.security.spec.MGF1ParameterSpec;
import java.security.spec.PSSParameterSpec;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import javax.crypto.Mac;

/**
 * The configuration names the algorithms, and the key decides which of them it is for: what a token says
 * of itself only chooses among those (RFC 8725 §3.1).
 */
final class JsonWebToken {
    static final int CHARS_MAX = 8192;
    /** An issuer or an audience that may be any. */
    static final String ANY = "*";

    /** Why a token is not taken; the message is for the log and the client. */
    static final class Invalid extends Exception {
        private static final long serialVersionUID = 1L;

        Invalid(String reason) {
            super(reason, null, false, false);
        }
    }

    /** No key of the set is for this token: another set may have one. */
    static final class UnknownKey extends Exception {
        private static final long serialVersionUID = 1L;

        UnknownKey() {
            super("no key is for it", null, false, false);
        }
    }

    /**
     * What a token must be.
     *
     * @param issuer iss; {@link #ANY} for any
     * @param audience one of aud; {@link #ANY} for any
     * @param leewaySeconds by which clocks may differ
     */
    record Rules(List<String> algorithms, String issuer, String audience, int leewaySeconds) {
    }

    /** Beyond it nothing is remembered; sums with it stay numbers. */
    private static final BigDecimal END_MAX = BigDecimal.valueOf(Long.MAX_VALUE / 2);

    private JsonWebToken() {
    }

    /** The claims of a good token. */
    static Map<String, Object> check(String token, List<JsonWebKeys.WebKey> keys, Rules rules,
            long nowSeconds) throws Invalid, UnknownKey {
        String[] parts = token.length() > CHARS_MAX ? new String[0] : token.split("\\.", -1);
        if (parts.length != 3 || parts[2].isEmpty()) {
            throw new Invalid("malformed");
        }
        Map<String, Object> head = object(parts[0]);
        if (!(head.get("alg") instanceof String algorithm) || !rules.algorithms().contains(algorithm)) {
            throw new Invalid("algorithm not allowed");
        }
        if (head.containsKey("crit") || head.containsKey("b64")) {
            throw new Invalid("extension not supported");
        }
        verify(algorithm, head.get("kid"), parts, keys);
        Map<String, Object> claims = object(parts[1]);
        checkTimes(claims, nowSeconds, rules.leewaySeconds());
        checkParties(claims, rules);
        return claims;
    }

    private static Map<String, Object> object(String part) throws Invalid {
        try {
            return Json.object(new String(decoded(part), StandardCharsets.UTF_8));
        } catch (IllegalArgumentException bad) {
            throw new Invalid("malformed");
        }
    }

    private static byte[] decoded(String part) throws Invalid {
        try {
            return Base64.getUrlDecoder().decode(part);
        } catch (IllegalArgumentException bad) {
            throw new Invalid("malformed");
        }
    }

    private static void verify(String algorithm, Object id, String[] parts,
            List<JsonWebKeys.WebKey> keys) throws Invalid, UnknownKey {
        byte[] signed = (parts[0] + '.' + parts[1]).getBytes(StandardCharsets.US_ASCII);
        byte[] signature = decoded(parts[2]);
        boolean isAnyFit = false;
        for (JsonWebKeys.WebKey key : keys) {
            boolean isNamed = id == null || id.equals(key.id());
            if (isNamed && isFit(key, algorithm)) {
                isAnyFit = true;
                if (isSigned(key, algorithm, signed, signature)) {
                    return;
                }
            }
        }
        if (!isAnyFit) {
            throw new UnknownKey();
        }
        throw new Invalid("wrong signature");
    }

    private static boolean isFit(JsonWebKeys.WebKey key, String algorithm) {
        boolean isKind = switch (algorithm) {
            case "RS256", "RS384", "RS512", "PS256", "PS384", "PS512" -> key.kind().equals("RSA");
            case "ES256" -> key.kind().equals("EC P-256");
            case "ES384" -> key.kind().equals("EC P-384");
            case "ES512" -> key.kind().equals("EC P-521");
            case "EdDSA" -> key.kind().equals("OKP Ed25519");
            case "HS256", "HS384", "HS512" -> key.kind().equals("oct")
                    && key.key().getEncoded().length * 8 >= Integer.parseInt(algorithm.substring(2));
            default -> false;
        };
        return isKind && (key.algorithm() == null || key.algorithm().equals(algorithm));
    }

    private static boolean isSigned(JsonWebKeys.WebKey key, String algorithm, byte[] signed,
            byte[] signature) {
        String bits = algorithm.substring(2);
        try {
            if (algorithm.startsWith("HS")) {
                Mac mac = Mac.getInstance("HmacSHA" + bits);
                mac.init(key.key());
                return MessageDigest.isEqual(mac.doFinal(signed), signature);
            }
            Signature verifier = Signature.getInstance(switch (algorithm.substring(0, 2)) {
                case "RS" -> "SHA" + bits + "withRSA";
                case "PS" -> "RSASSA-PSS";
                case "ES" -> "SHA" + bits + "withECDSAinP1363Format";
                default -> "Ed25519";
            });
            if (algorithm.startsWith("PS")) {
                verifier.setParameter(new PSSParameterSpec("SHA-" + bits, "MGF1",
                        new MGF1ParameterSpec("SHA-" + bits), Integer.parseInt(bits) / 8, 1));
            }
            verifier.initVerify((PublicKey) key.key());
            verifier.update(signed);
            return verifier.verify(signature);
        } catch (GeneralSecurityException notOne) {
            return false;
        }
    }

    /** A token without an end would be good for ever. */
    private static void checkTimes(Map<String, Object> claims, long now, int leeway) throws Invalid {
        if (!(claims.get("exp") instanceof BigDecimal end)) {
            throw new Invalid("no expiry");
        }
        if (end.compareTo(BigDecimal.valueOf(now - leeway)) <= 0) {
            throw new Invalid("expired");
        }
        Object begin = claims.get("nbf");
        if (begin != null && !(begin instanceof BigDecimal from
                && from.compareTo(BigDecimal.valueOf(now + leeway)) <= 0)) {
            throw new Invalid("not valid yet");
        }
    }

    private static void checkParties(Map<String, Object> claims, Rules rules) throws Invalid {
        if (!rules.issuer().equals(ANY) && !rules.issuer().equals(claims.get("iss"))) {
            throw new Invalid("other issuer");
        }
        Object audience = claims.get("aud");
        boolean isMeant = rules.audience().equals(ANY) || rules.audience().equals(audience)
                || audience instanceof List<?> all && all.contains(rules.audience());
        if (!isMeant) {
            throw new Invalid("other audience");
        }
    }

    /** Until when its claims may be remembered, in seconds. */
    static long end(Map<String, Object> claims) {
        return ((BigDecimal) claims.get("exp")).min(END_MAX).longValue();
    }
}
