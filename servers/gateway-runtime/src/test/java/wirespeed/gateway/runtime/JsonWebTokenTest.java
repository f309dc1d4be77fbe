// Which signed tokens are taken: those of the issuer that are valid now, and no other.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.KeyFactory;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.Signature;
import java.security.interfaces.ECPublicKey;
import java.security.interfaces.EdECPublicKey;
import java.security.interfaces.RSAPrivateKey;
import java.security.interfaces.RSAPublicKey;
import java.security.spec.ECGenParameterSpec;
import java.security.spec.MGF1ParameterSpec;
import java.security.spec.PSSParameterSpec;
import java.security.spec.RSAPrivateKeySpec;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Random;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class JsonWebTokenTest {
    private static final long NOW = 1_800_000_000;
    private static final String CLAIMS = "{\"sub\":\"kim\",\"iss\":\"https://id\",\"aud\":[\"shop\",\"b\"],"
            + "\"exp\":" + (NOW + 60) + "}";
    private static KeyPair rsa;
    private static KeyPair otherRsa;
    private static KeyPair ec;
    private static KeyPair ed;
    private static List<JsonWebKeys.WebKey> keys;

    @BeforeAll
    static void make() throws Exception {
        KeyPairGenerator ofRsa = KeyPairGenerator.getInstance("RSA");
        ofRsa.initialize(2048);
        rsa = ofRsa.generateKeyPair();
        RSAPrivateKey secret = (RSAPrivateKey) rsa.getPrivate();
        // Another key of the same length; one that is generated takes seconds of a core.
        otherRsa = new KeyPair(rsa.getPublic(), KeyFactory.getInstance("RSA").generatePrivate(
                new RSAPrivateKeySpec(secret.getModulus(), secret.getPrivateExponent().add(BigInteger.TWO))));
        KeyPairGenerator ofEc = KeyPairGenerator.getInstance("EC");
        ofEc.initialize(new ECGenParameterSpec("secp256r1"));
        ec = ofEc.generateKeyPair();
        ed = KeyPairGenerator.getInstance("Ed25519").generateKeyPair();
        RSAPublicKey n = (RSAPublicKey) rsa.getPublic();
        ECPublicKey point = (ECPublicKey) ec.getPublic();
        keys = JsonWebKeys.read("{\"keys\":[{\"kty\":\"RSA\",\"kid\":\"r\",\"n\":\"" + url(n.getModulus(), 256)
                + "\",\"e\":\"AQAB\"},{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"e\",\"x\":\""
                + url(point.getW().getAffineX(), 32) + "\",\"y\":\"" + url(point.getW().getAffineY(), 32)
                + "\"},{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"o\",\"x\":\""
                + Base64.getUrlEncoder().withoutPadding().encodeToString(point((EdECPublicKey) ed.getPublic()))
                + "\"},{\"kty\":\"new\",\"kid\":\"n\"}]}");
    }

    private static byte[] point(EdECPublicKey key) {
        byte[] y = fixed(key.getPoint().getY(), 32);
        byte[] little = new byte[32];
        for (int i = 0; i < 32; i++) {
            little[i] = y[31 - i];
        }
        little[31] |= key.getPoint().isXOdd() ? (byte) 0x80 : 0;
        return little;
    }

    private static byte[] fixed(BigInteger number, int length) {
        byte[] bytes = number.toByteArray();
        byte[] fixed = new byte[length];
        int count = Math.min(length, bytes.length);
        System.arraycopy(bytes, bytes.length - count, fixed, length - count, count);
        return fixed;
    }

    private static String url(BigInteger number, int length) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(fixed(number, length));
    }

    private static String part(String text) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(
                text.getBytes(StandardCharsets.UTF_8));
    }

    private static String signed(String head, String claims, Signature signature) throws Exception {
        String text = part(head) + "." + part(claims);
        signature.update(text.getBytes(StandardCharsets.US_ASCII));
        return text + "." + Base64.getUrlEncoder().withoutPadding().encodeToString(signature.sign());
    }

    private static Signature rs(KeyPair pair) throws Exception {
        Signature signature = Signature.getInstance("SHA256withRSA");
        signature.initSign(pair.getPrivate());
        return signature;
    }

    private static String good(String claims) throws Exception {
        return signed("{\"alg\":\"RS256\",\"kid\":\"r\"}", claims, rs(rsa));
    }

    private static JsonWebToken.Rules rules(String... algorithms) {
        return new JsonWebToken.Rules(List.of(algorithms), "https://id", "shop", 30);
    }

    private static Map<String, Object> check(String token, String... algorithms) throws Exception {
        return JsonWebToken.check(token, keys, rules(algorithms), NOW);
    }

    private static void refused(String token, String... algorithms) {
        Exception no = assertThrows(Exception.class, () -> check(token, algorithms), token);
        assertEquals(true, no instanceof JsonWebToken.Invalid || no instanceof JsonWebToken.UnknownKey,
                no.toString());
    }

    @Test
    void good_tokens_of_each_kind_are_taken() throws Exception {
        assertEquals("kim", check(good(CLAIMS), "RS256").get("sub"));
        assertEquals("kim", check(signed("{\"alg\":\"RS256\"}", CLAIMS, rs(rsa)), "RS256").get("sub"));
        Signature es = Signature.getInstance("SHA256withECDSAinP1363Format");
        es.initSign(ec.getPrivate());
        check(signed("{\"alg\":\"ES256\",\"kid\":\"e\"}", CLAIMS, es), "RS256", "ES256");
        Signature edDsa = Signature.getInstance("Ed25519");
        edDsa.initSign(ed.getPrivate());
        check(signed("{\"alg\":\"EdDSA\",\"kid\":\"o\"}", CLAIMS, edDsa), "EdDSA");
        Signature ps = Signature.getInstance("RSASSA-PSS");
        ps.setParameter(new PSSParameterSpec("SHA-256", "MGF1", new MGF1ParameterSpec("SHA-256"), 32, 1));
        ps.initSign(rsa.getPrivate());
        check(signed("{\"alg\":\"PS256\",\"kid\":\"r\"}", CLAIMS, ps), "PS256");
    }

    @Test
    void what_a_token_says_of_itself_changes_no_rule() throws Exception {
        // The public key as the secret of a symmetric algorithm.
        String head = part("{\"alg\":\"HS256\",\"kid\":\"r\"}") + "." + part(CLAIMS);
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(rsa.getPublic().getEncoded(), "HMAC"));
        String confused = head + "." + Base64.getUrlEncoder().withoutPadding().encodeToString(
                mac.doFinal(head.getBytes(StandardCharsets.US_ASCII)));
        refused(confused, "RS256");
        refused(confused, "RS256", "HS256");
        for (String none : List.of("none", "None", "", "RS256 ", "rs256")) {
            refused(part("{\"alg\":\"" + none + "\"}") + "." + part(CLAIMS) + ".", "RS256");
            refused(part("{\"alg\":\"" + none + "\"}") + "." + part(CLAIMS) + ".AA", "RS256");
        }
        refused(good(CLAIMS), "ES256");
        refused(signed("{\"alg\":\"RS256\",\"kid\":\"r\"}", CLAIMS, rs(otherRsa)), "RS256");
        refused(signed("{\"alg\":\"RS256\",\"kid\":\"new\"}", CLAIMS, rs(rsa)), "RS256");
        refused(signed("{\"alg\":\"RS256\",\"kid\":\"e\"}", CLAIMS, rs(rsa)), "RS256");
        refused(signed("{\"alg\":\"RS256\",\"crit\":[\"b64\"],\"b64\":false}", CLAIMS, rs(rsa)),
                "RS256");
        refused(signed("{\"alg\":\"ES256\",\"alg\":\"RS256\"}", CLAIMS, rs(rsa)), "RS256");
    }

    @Test
    void claims_bound_a_token() throws Exception {
        String base = "\"iss\":\"https://id\",\"aud\":\"shop\"";
        check(good("{" + base + ",\"exp\":" + (NOW - 29) + "}"), "RS256");
        check(good("{" + base + ",\"exp\":" + (NOW + 9) + ",\"nbf\":" + (NOW + 29) + "}"), "RS256");
        check(good("{" + base + ",\"exp\":" + (NOW - 30) + ".5,\"nbf\":" + (NOW + 29) + ".5}"), "RS256");
        // Above 2^63: no number of them wraps around.
        check(good("{" + base + ",\"exp\":1e99}"), "RS256");
        check(good("{" + base + ",\"exp\":" + Long.MAX_VALUE + "}"), "RS256");
        for (String claims : List.of("{" + base + "}", "{" + base + ",\"exp\":\"" + NOW + 60 + "\"}",
                "{" + base + ",\"exp\":" + (NOW - 30) + "}", "{" + base + ",\"exp\":null}",
                "{" + base + ",\"exp\":" + (NOW + 60) + ",\"nbf\":" + (NOW + 31) + "}",
                "{" + base + ",\"exp\":" + (NOW + 60) + ",\"nbf\":" + (NOW + 30) + ".5}",
                "{" + base + ",\"exp\":" + (NOW + 60) + ",\"nbf\":18446744073709551616}",
                "{" + base + ",\"exp\":" + (NOW + 60) + ",\"nbf\":1e99}",
                "{" + base + ",\"exp\":-1e99}", "{" + base + ",\"exp\":true}",
                "{\"iss\":\"https://evil\",\"aud\":\"shop\",\"exp\":" + (NOW + 60) + "}",
                "{\"iss\":\"https://id\",\"aud\":\"other\",\"exp\":" + (NOW + 60) + "}",
                "{\"iss\":\"https://id\",\"exp\":" + (NOW + 60) + "}",
                "{" + base + ",\"exp\":1e99}x", "[]", "")) {
            refused(good(claims), "RS256");
        }
    }

    @Test
    void ten_thousand_broken_tokens_pass_never() throws Exception {
        String token = good(CLAIMS);
        String wrong = signed("{\"alg\":\"RS256\",\"kid\":\"r\"}", CLAIMS, rs(otherRsa));
        String expired = good(CLAIMS.replace("" + (NOW + 60), "" + (NOW - 3600)));
        String alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=";
        Random random = new Random(11);
        int passed = 0;
        int same = 0;
        for (int i = 0; i < 10_000; i++) {
            StringBuilder broken = new StringBuilder(switch (i % 4) {
                case 0 -> wrong;
                case 1 -> expired;
                default -> token;
            });
            for (int change = random.nextInt(3) + (i % 4 > 1 ? 1 : 0); change > 0; change--) {
                int at = random.nextInt(broken.length());
                if (random.nextInt(4) == 0) {
                    broken.deleteCharAt(at);
                } else {
                    broken.setCharAt(at, alphabet.charAt(random.nextInt(alphabet.length())));
                }
            }
            // The last character of base64 has bits that mean nothing.
            boolean isSame = decodedAlike(broken.toString(), token);
            same += isSame ? 1 : 0;
            try {
                check(broken.toString(), "RS256", "ES256");
                passed += isSame ? 0 : 1;
            } catch (JsonWebToken.Invalid | JsonWebToken.UnknownKey expected) {
                continue;
            }
        }
        assertEquals(0, passed, same + " were the good one");
    }

    private static boolean decodedAlike(String one, String other) {
        String[] a = one.split("\\.", -1);
        String[] b = other.split("\\.", -1);
        try {
            return a.length == 3 && a[0].equals(b[0]) && a[1].equals(b[1]) && java.util.Arrays.equals(
                    Base64.getUrlDecoder().decode(a[2]), Base64.getUrlDecoder().decode(b[2]));
        } catch (IllegalArgumentException malformed) {
            return false;
        }
    }

    @Test
    void a_json_text_has_one_meaning_or_none() {
        assertEquals(List.of(Map.of("a", "\u00e9\n"), new java.math.BigDecimal("-1.5e3"), true),
                Json.parse(" [ {\"a\" : \"\\u00e9\\n\"} , -1.5e3, true ] "));
        for (String bad : List.of("", "{", "{\"a\":1,\"a\":2}", "[1,]", "{\"a\"}", "01", "1.", "nul",
                "\"a", "\"\n\"", "[1] 2", "\"\\x\"", "\"\\u00g0\"", "1e999999999", "[".repeat(100),
                "NaN", "'a'")) {
            assertThrows(IllegalArgumentException.class, () -> Json.parse(bad), bad);
        }
    }
}
