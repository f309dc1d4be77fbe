// Access by tokens, keys, networks and pages of other origins, on every carrier.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.MessageDigest;
import java.security.Signature;
import java.security.interfaces.ECPublicKey;
import java.security.spec.ECGenParameterSpec;
import java.security.spec.ECPoint;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.runtime.ConfigError;
import wirespeed.gateway.runtime.ShortSeconds;

abstract class AccessContract extends CarrierContract {
    private static final Base64.Encoder BASE64 = Base64.getUrlEncoder().withoutPadding();
    /** openssl passwd -6 -salt 'rounds=1000$pepper' sesam:öffne. */
    private static final String HASH = "$6$rounds=1000$pepper$4yUAsTlCAZJYC/R37GCKaJstqsWPOvF.sQZ1rkDX06pERD/IVfKob"
            + ".dvUxEfzHXOzQKle62jrwS9fInza4IKq0";
    @TempDir
    Path folder;

    private Carrier gateway(String more) {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n" + more);
    }

    private static RawClient.Answer ask(RawClient client, String fields) throws IOException {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n");
        return client.read();
    }

    /** For ES256: an RSA pair takes seconds of a core. */
    private static KeyPair pair() throws Exception {
        KeyPairGenerator generator = KeyPairGenerator.getInstance("EC");
        generator.initialize(new ECGenParameterSpec("secp256r1"));
        return generator.generateKeyPair();
    }

    private static String set(String id, KeyPair pair) {
        ECPoint point = ((ECPublicKey) pair.getPublic()).getW();
        return "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"" + id + "\",\"x\":\""
                + coordinate(point.getAffineX()) + "\",\"y\":\"" + coordinate(point.getAffineY()) + "\"}]}";
    }

    private static String coordinate(BigInteger number) {
        return BASE64.encodeToString(HexFormat.of().parseHex(String.format("%064x", number)));
    }

    private static String token(String id, KeyPair pair, long endSeconds) throws Exception {
        return token(id, pair, endSeconds, "");
    }

    private static String token(String id, KeyPair pair, long endSeconds, String claims)
            throws Exception {
        String text = BASE64.encodeToString(("{\"alg\":\"ES256\",\"kid\":\"" + id + "\"}").getBytes())
                + "." + BASE64.encodeToString(("{\"sub\":\"kim\",\"exp\":" + endSeconds + claims
                + "}").getBytes());
        Signature signature = Signature.getInstance("SHA256withECDSAinP1363Format");
        signature.initSign(pair.getPrivate());
        signature.update(text.getBytes(StandardCharsets.US_ASCII));
        return "Authorization: Bearer " + text + "." + BASE64.encodeToString(signature.sign()) + "\r\n";
    }

    @Test
    void a_signed_token_passes_and_names_its_client() throws Exception {
        long end = System.currentTimeMillis() / 1000 + 600;
        KeyPair first = pair();
        KeyPair second = pair();
        RecordingOrigin issuer = closedLater(new RecordingOrigin());
        KeyPair[] current = {first};
        issuer.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "", set(current[0] == first ? "1" : "2", current[0]));
            return true;
        };
        Carrier gateway = gateway("[[filter]]\ntype = \"jwt\"\njwks = \"http://127.0.0.1:"
                + issuer.port() + "/keys\"\nissuer = \"*\"\naudience = \"*\"\n"
                + "claim-headers = { X-User = \"sub\" }\n");
        RawClient client = client(gateway);
        RawClient.Answer none = ask(client, "X-User: root\r\n");
        assertEquals(401, none.status());
        assertEquals("Bearer", none.header("WWW-Authenticate"));
        for (int i = 0; i < 3; i++) {
            assertEquals(200, ask(client, token("1", first, end) + "X_User: root\r\n").status());
            RecordingOrigin.Seen seen = origin.seen.get(i);
            assertEquals("kim", seen.header("X-User"));
            assertNull(seen.header("X_User"));
        }
        assertEquals(1, issuer.seen.size());
        assertEquals(401, ask(client, token("1", second, end)).status());
        assertEquals(401, ask(client, token("1", first, end - 1200)).status());
        assertEquals(401, ask(client, token("1", first, end) + token("1", first, end)).status());
        assertEquals(3, origin.seen.size());
        // The issuer has another key: found when a token names it.
        current[0] = second;
        closedLater(new ShortSeconds(100));
        long until = System.nanoTime() + 60_000_000_000L;
        while (ask(client, token("2", second, end)).status() != 200) {
            assertTrue(System.nanoTime() < until, "the new key was never fetched");
            Thread.sleep(50);
        }
        assertTrue(issuer.seen.size() <= 4, issuer.seen.size() + " fetches");
        // Its set has the first key no more, so that what was good before is not.
        assertEquals(401, ask(client, token("1", first, end)).status());
    }

    @Test
    void a_token_that_cannot_be_checked_yet_is_not_refused_for_good() throws Exception {
        RecordingOrigin issuer = closedLater(new RecordingOrigin());
        issuer.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 500, "", "");
            return true;
        };
        Carrier gateway = gateway("[[filter]]\ntype = \"jwt\"\njwks = \"http://127.0.0.1:"
                + issuer.port() + "/keys\"\nissuer = \"*\"\naudience = \"*\"\n");
        long end = System.currentTimeMillis() / 1000 + 600;
        assertEquals(503, ask(client(gateway), token("1", pair(), end)).status());
        assertEquals(0, origin.seen.size());
    }

    @Test
    void a_token_for_another_service_or_of_another_issuer_is_refused() throws Exception {
        KeyPair pair = pair();
        Path keys = Files.writeString(folder.resolve("keys.json"), set("1", pair));
        String jwt = "[[filter]]\ntype = \"jwt\"\njwks = \"" + keys + "\"\n";
        RawClient client = client(gateway(jwt + "issuer = \"https://id\"\naudience = \"shop\"\n"));
        long end = System.currentTimeMillis() / 1000 + 600;
        assertEquals(200, ask(client, token("1", pair, end,
                ",\"iss\":\"https://id\",\"aud\":[\"shop\"]")).status());
        for (String parties : new String[] {"", ",\"iss\":\"https://id\"", ",\"aud\":\"shop\"",
            ",\"iss\":\"https://evil\",\"aud\":\"shop\"", ",\"iss\":\"https://id\",\"aud\":\"bank\""}) {
            assertEquals(401, ask(client, token("1", pair, end, parties)).status(), parties);
        }
        for (String missing : new String[] {"issuer = \"*\"\n", "audience = \"*\"\n"}) {
            ConfigError refused = assertThrows(ConfigError.class, () -> gateway(jwt + missing));
            assertTrue(refused.getMessage().contains("jwt needs "), refused.getMessage());
        }
    }

    @Test
    void a_key_passes_and_names_its_program() throws Exception {
        Path keys = Files.writeString(folder.resolve("keys"), "# programs\nbilling "
                + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest("secret".getBytes()))
                + "\n");
        Carrier gateway = gateway("[[filter]]\ntype = \"api-key\"\nkeys-file = \"" + keys
                + "\"\nidentity-header = \"X-Program\"\n");
        RawClient client = client(gateway);
        assertEquals(200, ask(client, "X-API-Key: secret\r\nX-Program: root\r\n").status());
        assertEquals("billing", origin.seen.get(0).header("X-Program"));
        assertNull(origin.seen.get(0).header("X-API-Key"));
        for (String bad : new String[] {"", "X-API-Key: Secret\r\n", "X-API-Key: \r\n",
            "X_API_Key: secret\r\n", "X-API-Key: secret\r\nX-API-Key: secret\r\n"}) {
            assertEquals(401, ask(client(gateway), bad).status(), bad);
        }
        assertEquals(1, origin.seen.size());
    }

    @Test
    void a_page_for_one_client_is_stored_for_no_other_though_a_filter_takes_its_credentials_off()
            throws Exception {
        StringBuilder keys = new StringBuilder();
        StringBuilder users = new StringBuilder();
        for (String name : List.of("kim", "sam")) {
            keys.append(name).append(' ').append(HexFormat.of().formatHex(
                    MessageDigest.getInstance("SHA-256").digest(name.getBytes()))).append('\n');
            users.append(name).append(':').append(HASH).append('\n');
        }
        RecordingOrigin service = closedLater(new RecordingOrigin());
        service.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "X-User: " + seen.header("Cookie").substring(2) + "\r\n", "");
            return true;
        };
        isStoredForAllOnlyIfPublic("type = \"api-key\"\nkeys-file = \""
                + Files.writeString(folder.resolve("keys"), keys) + "\"\nidentity-header = \"X-User\"\n",
                name -> "X-API-Key: " + name + "\r\n");
        isStoredForAllOnlyIfPublic("type = \"basic\"\nusers-file = \""
                + Files.writeString(folder.resolve("users"), users) + "\"\nidentity-header = \"X-User\"\n",
                name -> basic(name + ":sesam:\u00f6ffne"));
        isStoredForAllOnlyIfPublic("type = \"external-auth\"\nurl = \"http://127.0.0.1:" + service.port()
                + "/\"\ncopy-headers = [\"X-User\"]\nsend-headers = [\"Cookie\"]\ntimeout = \"20s\"\n",
                name -> "Cookie: s=" + name + "\r\n");
    }

    private void isStoredForAllOnlyIfPublic(String filter, UnaryOperator<String> credentials)
            throws IOException {
        String[] control = {"max-age=60"};
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "Cache-Control: " + control[0] + "\r\n",
                    "page of " + seen.header("X-User"));
            return true;
        };
        Carrier gateway = gateway("[cache]\nenabled = true\n[[filter]]\n" + filter);
        String kim = credentials.apply("kim");
        String sam = credentials.apply("sam");
        for (int i = 0; i < 3; i++) {
            assertEquals("page of kim", ask(client(gateway), kim).body(), filter);
            assertEquals("page of sam", ask(client(gateway), sam).body(), filter);
        }
        control[0] = "max-age=60, public";
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!ask(client(gateway), kim).body().equals(ask(client(gateway), sam).body())) {
            assertTrue(System.nanoTime() < end, "nothing is stored: " + filter);
        }
    }

    private static String basic(String pair) {
        return "Authorization: Basic " + Base64.getEncoder().encodeToString(
                pair.getBytes(StandardCharsets.UTF_8)) + "\r\n";
    }

    @Test
    void a_name_and_its_password_pass() throws Exception {
        Path users = Files.writeString(folder.resolve("users"), "# people\nkim:" + HASH + "\n");
        Carrier gateway = gateway("[[filter]]\ntype = \"basic\"\nusers-file = \"" + users
                + "\"\nrealm = \"shop\"\nidentity-header = \"X-User\"\n");
        RawClient client = client(gateway);
        for (int i = 0; i < 3; i++) {
            assertEquals(200, ask(client, basic("kim:sesam:\u00f6ffne") + "X-User: root\r\n").status());
            assertEquals("kim", origin.seen.get(i).header("X-User"));
            assertNull(origin.seen.get(i).header("Authorization"));
        }
        for (String bad : new String[] {"", basic("kim:sesam"), basic("root:sesam:\u00f6ffne"), basic("kim"),
            basic(":"), "Authorization: Basic !\r\n", "Authorization: Bearer a\r\n",
            basic("kim:sesam:\u00f6ffne") + basic("kim:sesam:\u00f6ffne")}) {
            RawClient.Answer refused = ask(client(gateway), bad);
            assertEquals(401, refused.status(), bad);
            assertEquals("Basic realm=\"shop\", charset=\"UTF-8\"", refused.header("WWW-Authenticate"));
        }
        assertEquals(3, origin.seen.size());
        Files.writeString(users, "kim:sesam\n");
        ConfigError plain = assertThrows(ConfigError.class, () -> gateway("[[filter]]\ntype = \"basic\"\n"
                + "users-file = \"" + users + "\"\n"));
        assertTrue(plain.getMessage().contains("users-file, line 1"), plain.getMessage());
    }

    @Test
    void another_service_decides_and_lets_no_client_in_when_it_fails() throws Exception {
        RecordingOrigin service = closedLater(new RecordingOrigin());
        service.handler = (seen, out, socket) -> {
            String uri = String.valueOf(seen.header("X-Forwarded-Uri"));
            int status = uri.startsWith("/in") ? 200 : uri.startsWith("/login") ? 302
                    : uri.startsWith("/no") ? 403 : 500;
            RecordingOrigin.respond(out, status, "X-User: kim\r\nLocation: /sign-in\r\n"
                    + "X-Other: 1\r\n", "not for the client");
            return true;
        };
        Carrier gateway = gateway("[[filter]]\ntype = \"external-auth\"\nurl = \"http://127.0.0.1:"
                + service.port() + "/check\"\ncopy-headers = [\"X-User\"]\ntimeout = \"20s\"\n");
        RawClient client = client(gateway);
        client.send("POST /in?a=1 HTTP/1.1\r\nHost: shop\r\nCookie: s=1\r\nX-User: root\r\n"
                + "X_User: root\r\nX-Own: 1\r\nContent-Length: 2\r\n\r\nok");
        assertEquals(200, client.read().status());
        RecordingOrigin.Seen asked = service.seen.get(0);
        assertEquals("GET /check HTTP/1.1", asked.line());
        assertEquals("POST", asked.header("X-Forwarded-Method"));
        assertEquals("/in?a=1", asked.header("X-Forwarded-Uri"));
        assertEquals("shop", asked.header("X-Forwarded-Host"));
        assertEquals("127.0.0.1", asked.header("X-Forwarded-For"));
        assertEquals("s=1", asked.header("Cookie"));
        assertNull(asked.header("X-Own"));
        RecordingOrigin.Seen passed = origin.seen.get(0);
        assertEquals("kim", passed.header("X-User"));
        assertNull(passed.header("X_User"));
        assertNull(passed.header("X-Other"));
        assertEquals("ok", passed.body());
        RawClient.Answer login = client(gateway).get("/login");
        assertEquals(302, login.status());
        assertEquals("/sign-in", login.header("Location"));
        RawClient.Answer forbidden = client(gateway).get("/no");
        assertEquals(403, forbidden.status());
        assertEquals("403 Forbidden\n", forbidden.body());
        assertNull(forbidden.header("X-User"));
        assertEquals(503, client(gateway).get("/other").status());
        service.close();
        assertEquals(503, client(gateway).get("/in").status());
        assertEquals(1, origin.seen.size());
    }

    @Test
    void a_service_that_does_not_answer_holds_no_request() throws Exception {
        RecordingOrigin service = closedLater(new RecordingOrigin());
        service.handler = (seen, out, socket) -> {
            // A head in time, and a body that never comes.
            out.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".getBytes());
            out.flush();
            return true;
        };
        Carrier gateway = gateway("[[filter]]\ntype = \"external-auth\"\nurl = \"http://127.0.0.1:"
                + service.port() + "/check\"\ntimeout = \"300ms\"\n");
        assertEquals(503, client(gateway).get("/").status());
        assertEquals(0, origin.seen.size());
    }

    @Test
    void networks_are_allowed_and_denied() throws Exception {
        Carrier gateway = gateway("[server]\ntrusted-proxies = [\"127.0.0.1\"]\n[[filter]]\ntype ="
                + " \"ip\"\nallow = [\"10.0.0.0/8\", \"2001:db8::/32\"]\ndeny = [\"10.9.0.0/16\", \"::ffff:10.8.0.0/112\"]\n");
        RawClient client = client(gateway);
        assertEquals(200, ask(client, "X-Forwarded-For: 10.1.2.3\r\n").status());
        assertEquals(200, ask(client, "X-Forwarded-For: [2001:db8::5]:99\r\n").status());
        assertEquals(200, ask(client, "X-Forwarded-For: ::ffff:10.7.0.1\r\n").status());
        for (String from : new String[] {"10.9.1.1", "10.8.0.1", "::ffff:10.8.255.1", "[::ffff:a09:101]:9", "11.0.0.1", "2001:db9::1", "unknown"}) {
            assertEquals(403, ask(client(gateway), "X-Forwarded-For: " + from + "\r\n").status(), from);
        }
        assertEquals(403, ask(client(gateway), "").status());
        assertEquals(3, origin.seen.size());
        // Not IPv4 alone: a network of 8 bits holds a part of IPv6, too.
        assertThrows(ConfigError.class, () -> gateway("[[filter]]\ntype = \"ip\"\n"
                + "allow = [\"::ffff:10.0.0.0/8\"]\n"));
    }

    private static String from(String client, String more) {
        return "X-Forwarded-For: " + client + "\r\n" + more;
    }

    @Test
    void a_rate_is_limited_for_each_combination_of_a_key() throws Exception {
        RawClient client = client(gateway("[server]\ntrusted-proxies = [\"127.0.0.1\"]\n[[filter]]\n"
                + "type = \"rate-limit\"\nrate = 1\nburst = 1\nkey = [\"client\", \"route\","
                + " \"header:X-Plan\"]\nipv4-prefix = 24\nipv6-prefix = 48\n[[route]]\n"
                + "prefix = \"/a\"\norigins = [\"o\"]\n[[route]]\norigins = [\"o\"]\n"));
        int[] turn = {0};
        inTime(1000, () -> {
            String plan = "X-Plan: " + turn[0]++ + "\r\n";
            assertEquals(200, ask(client, from("10.1.2.3", plan)).status());
            assertEquals(429, ask(client, from("10.1.2.99", plan)).status());
        });
        inTime(1000, () -> {
            String plan = "X-Plan: " + turn[0]++ + "\r\n";
            assertEquals(200, ask(client, from("2001:db8:7:1::1", plan)).status());
            assertEquals(429, ask(client, from("2001:db8:7:2::1", plan)).status());
        });
        for (String other : new String[] {from("10.1.3.3", "X-Plan: a\r\n"),
            from("10.1.2.3", "X-Plan: b\r\n"), from("10.1.2.3", ""), from("2001:db8:8::1", "X-Plan: a\r\n"),
            from("10.1.2.3", "X-Plan: a\r\nX-Plan: b\r\n")}) {
            assertEquals(200, ask(client, other).status(), other);
        }
        // The same client with the same plan, on another route.
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n" + from("10.1.3.3", "X-Plan: a\r\n") + "\r\n");
        assertEquals(200, client.read().status());
    }

    @Test
    void a_rate_is_limited_by_what_a_token_says() throws Exception {
        KeyPair pair = pair();
        Path keys = Files.writeString(folder.resolve("keys.json"), set("1", pair));
        String limit = "[[filter]]\ntype = \"rate-limit\"\nname = \"a\"\norder = -5\nrate = 1\n"
                + "burst = 1\nkey = \"claim:tenant\"\n";
        RawClient client = client(gateway(limit + "[[filter]]\ntype = \"jwt\"\njwks = \"" + keys
                + "\"\nissuer = \"*\"\naudience = \"*\"\n"));
        long end = System.currentTimeMillis() / 1000 + 600;
        int[] turn = {0};
        inTime(1000, () -> {
            String tenant = ",\"tenant\":\"" + turn[0]++;
            String first = token("1", pair, end, tenant + "\"");
            String second = token("1", pair, end + 1, tenant + "\"");
            String other = token("1", pair, end, tenant + "x\"");
            assertEquals(200, ask(client, first).status());
            assertEquals(429, ask(client, second).status());
            assertEquals(200, ask(client, other).status());
        });
        // Who is refused by the token takes nothing from the bucket of its tenant.
        for (int i = 0; i < 3; i++) {
            assertEquals(401, ask(client, token("1", pair(), end, ",\"tenant\":\"last\"")).status());
        }
        assertEquals(200, ask(client, token("1", pair, end, ",\"tenant\":\"last\"")).status());
        ConfigError refused = assertThrows(ConfigError.class, () -> gateway(limit));
        assertTrue(refused.getMessage().contains("needs a filter of type jwt"), refused.getMessage());
    }

    @Test
    void a_question_of_a_browser_needs_no_credentials() throws Exception {
        Path keys = Files.writeString(folder.resolve("partners.keys"), "kim " + "0".repeat(64) + "\n");
        RawClient client = client(gateway("[[filter]]\ntype = \"api-key\"\nkeys-file = \"" + keys
                + "\"\n[[filter]]\ntype = \"cors\"\nallow-origins = [\"https://shop.example\"]\n"));
        String from = "Origin: https://shop.example\r\n";
        client.send("OPTIONS / HTTP/1.1\r\nHost: a\r\n" + from
                + "Access-Control-Request-Method: POST\r\n\r\n");
        RawClient.Answer preflight = client.read();
        assertEquals(204, preflight.status());
        assertEquals("https://shop.example", preflight.header("Access-Control-Allow-Origin"));
        RawClient.Answer refused = ask(client, from);
        assertEquals(401, refused.status());
        assertEquals("https://shop.example", refused.header("Access-Control-Allow-Origin"));
        assertEquals(0, origin.seen.size());
    }

    @Test
    void a_question_of_a_browser_comes_before_credentials_and_behind_networks() throws Exception {
        Path keys = Files.writeString(folder.resolve("partners.keys"), "kim " + "0".repeat(64) + "\n");
        String cors = "[[filter]]\ntype = \"cors\"\nallow-origins = [\"https://shop.example\"]\n";
        for (String order : List.of("", "order = 10\n", "order = -1000000\n")) {
            RawClient client = client(gateway("[server]\ntrusted-proxies = [\"127.0.0.1\"]\n[[filter]]\ntype = \"api-key\"\n"
                    + order + "keys-file = \"" + keys + "\"\n" + cors
                    + "[[filter]]\ntype = \"ip\"\ndeny = [\"10.9.0.0/16\"]\n"
                    + "[[filter]]\ntype = \"ip\"\nprefix = \"/own\"\nallow = [\"10.8.0.0/16\"]\n"));
            assertEquals(204, preflight(client, "/", "10.1.2.3"), order);
            assertEquals(403, preflight(client, "/", "10.9.2.3"), order);
            assertEquals(204, preflight(client, "/own", "10.8.2.3"), order);
            assertEquals(403, preflight(client, "/own", "10.1.2.3"), order);
        }
        // Where its order is given, that counts.
        RawClient client = client(gateway(cors + "order = 10\n[[filter]]\ntype = \"api-key\"\norder = 9\nkeys-file = \""
                + keys + "\"\n"));
        assertEquals(401, preflight(client, "/", "10.1.2.3"));
        assertEquals(0, origin.seen.size());
    }

    private static int preflight(RawClient client, String path, String from) throws Exception {
        client.send("OPTIONS " + path + " HTTP/1.1\r\nHost: a\r\nOrigin: https://shop.example\r\n"
                + "Access-Control-Request-Method: POST\r\nX-Forwarded-For: " + from + "\r\n\r\n");
        return client.read().status();
    }

    @Test
    void pages_of_named_origins_may_read() throws Exception {
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "Access-Control-Allow-Origin: *\r\n", "data");
            return true;
        };
        RawClient client = client(gateway("[[filter]]\ntype = \"cors\"\nallow-origins ="
                + " [\"https://shop.example\"]\nallow-headers = [\"X-Own\"]\ncredentials = true\n"
                + "expose-headers = [\"X-Total\"]\n"));
        RawClient.Answer good = ask(client, "Origin: https://shop.example\r\n");
        assertEquals("https://shop.example", good.header("Access-Control-Allow-Origin"));
        assertEquals("true", good.header("Access-Control-Allow-Credentials"));
        assertEquals("X-Total", good.header("Access-Control-Expose-Headers"));
        assertEquals("Origin", good.header("Vary"));
        RawClient.Answer other = ask(client, "Origin: https://evil.example\r\n");
        assertNull(other.header("Access-Control-Allow-Origin"));
        assertEquals("Origin", other.header("Vary"));
        client.send("OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: https://shop.example\r\n"
                + "Access-Control-Request-Method: POST\r\n\r\n");
        RawClient.Answer preflight = client.read();
        assertEquals(204, preflight.status());
        assertEquals("https://shop.example", preflight.header("Access-Control-Allow-Origin"));
        assertEquals("GET, HEAD, POST", preflight.header("Access-Control-Allow-Methods"));
        assertEquals("X-Own", preflight.header("Access-Control-Allow-Headers"));
        assertEquals("600", preflight.header("Access-Control-Max-Age"));
        assertEquals(2, origin.seen.size());
    }
}
