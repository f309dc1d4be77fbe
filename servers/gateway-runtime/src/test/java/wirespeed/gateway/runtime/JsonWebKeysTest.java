// Key sets from issuers that do not answer as they should.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.TimeUnit;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.junit.jupiter.api.Test;

class JsonWebKeysTest {
    /** Sends a head and a part of its body, and then nothing until the other side ends. */
    private static void stall(ServerSocket issuer) {
        try (Socket socket = issuer.accept()) {
            socket.getOutputStream().write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"
                    .getBytes(StandardCharsets.US_ASCII));
            while (socket.getInputStream().read() >= 0) {
                continue;
            }
        } catch (IOException over) {
            // The other side has ended it.
        }
    }

    @Test
    void an_issuer_that_stalls_in_its_answer_holds_up_no_request_for_ever() throws Exception {
        try (ServerSocket issuer = new ServerSocket(0, 10, InetAddress.getLoopbackAddress())) {
            Thread thread = new Thread(() -> stall(issuer), "issuer");
            thread.setDaemon(true);
            thread.start();
            try (JsonWebKeys keys = new JsonWebKeys("http://127.0.0.1:" + issuer.getLocalPort() + "/",
                    Duration.ofMillis(500))) {
                assertEquals(List.of(), keys.fetch().get(60, TimeUnit.SECONDS));
                assertNull(keys.known());
            }
        }
    }

    @Test
    void a_short_secret_is_refused_by_its_name() {
        String set = "{\"keys\":[{\"kty\":\"oct\",\"kid\":\"mine\",\"k\":\"KEY\"}]}";
        IllegalArgumentException refused = assertThrows(IllegalArgumentException.class,
                () -> JsonWebKeys.read(set.replace("KEY", "c2VjcmV0")));
        assertEquals("key mine: an oct key of 48 bits; HS256 needs 256, HS384 384, HS512 512",
                refused.getMessage());
        assertEquals(1, JsonWebKeys.read(set.replace("KEY", "A".repeat(43))).size());
    }

    @Test
    void a_malformed_key_of_an_issuer_does_not_take_the_others_with_it() {
        String good = "{\"kty\":\"oct\",\"kid\":\"good\",\"k\":\"" + "A".repeat(43) + "\"}";
        for (String bad : List.of("{\"kty\":\"oct\",\"k\":\"c2VjcmV0\"}", "{\"kty\":\"RSA\",\"n\":\"AQAB\"}",
                "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"*\"}")) {
            String set = "{\"keys\":[" + bad + "," + good + "]}";
            assertEquals(List.of("good"), JsonWebKeys.read(set, true).stream()
                    .map(JsonWebKeys.WebKey::id).toList(), bad);
            assertThrows(IllegalArgumentException.class, () -> JsonWebKeys.read(set), bad);
            assertThrows(IllegalArgumentException.class, () -> JsonWebKeys.read("{\"keys\":[" + bad + "]}", true));
        }
    }

    @Test
    void a_secret_is_for_no_hash_that_is_longer() throws Exception {
        List<JsonWebKeys.WebKey> keys = JsonWebKeys.read("{\"keys\":[{\"kty\":\"oct\",\"k\":\""
                + "A".repeat(43) + "\"}]}");
        for (String bits : List.of("256", "384", "512")) {
            String text = part("{\"alg\":\"HS" + bits + "\"}") + "." + part("{\"exp\":100}");
            Mac mac = Mac.getInstance("HmacSHA" + bits);
            mac.init(new SecretKeySpec(new byte[32], "HMAC"));
            String token = text + "." + Base64.getUrlEncoder().withoutPadding().encodeToString(
                    mac.doFinal(text.getBytes(StandardCharsets.US_ASCII)));
            JsonWebToken.Rules rules = new JsonWebToken.Rules(List.of("HS" + bits), "*", "*", 0);
            if (bits.equals("256")) {
                assertEquals(1, JsonWebToken.check(token, keys, rules, 50).size());
            } else {
                assertThrows(JsonWebToken.UnknownKey.class,
                        () -> JsonWebToken.check(token, keys, rules, 50));
            }
        }
    }

    private static String part(String text) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(
                text.getBytes(StandardCharsets.US_ASCII));
    }

    @Test
    void an_address_that_cannot_be_asked_is_refused_at_the_start() {
        for (String bad : List.of("https://id example/keys", "http://", "https:///keys")) {
            assertThrows(IllegalArgumentException.class, () -> new JsonWebKeys(bad), bad);
        }
    }
}
