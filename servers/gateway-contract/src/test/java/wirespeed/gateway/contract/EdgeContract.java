// Header fields and bodies at their edges, as every carrier must treat them.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

abstract class EdgeContract extends CarrierContract {
    @TempDir
    Path folder;

    private Carrier gateway(String more) {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n" + more);
    }

    @Test
    void an_answer_without_a_body_stays_without_one_when_filters_change_bodies() throws Exception {
        origin.handler = (seen, out, socket) -> {
            String fields = "Content-Type: text/plain\r\n";
            if (seen.line().startsWith("HEAD")) {
                out.write(("HTTP/1.1 200 X\r\n" + fields + "Content-Length: 5000\r\n\r\n").getBytes());
            } else if (seen.line().contains("/304")) {
                out.write(("HTTP/1.1 304 X\r\n" + fields + "ETag: \"a\"\r\n\r\n").getBytes());
            } else {
                RecordingOrigin.respond(out, 200, fields, seen.line().contains("/empty") ? ""
                        : "c".repeat(5000));
            }
            return true;
        };
        for (String encoding : List.of("gzip", "br")) {
            Carrier gateway = gateway("[[filter]]\ntype = \"compress\"\nencodings = [\"" + encoding
                    + "\"]\nmin = \"0B\"\n");
            RawClient client = client(gateway);
            String fields = " HTTP/1.1\r\nHost: a\r\nAccept-Encoding: " + encoding + "\r\n\r\n";
            client.send("HEAD /head" + fields + "GET /304" + fields + "GET /empty" + fields
                    + "GET /full" + fields);
            assertEquals(200, client.read(true).status());
            assertEquals(304, client.read().status());
            assertEquals("", client.read().body());
            RawClient.Answer full = client.read();
            assertEquals(200, full.status());
            assertEquals(encoding, full.header("Content-Encoding"));
            assertTrue(full.isComplete() && !full.body().isEmpty());
        }
    }

    private static RawClient.Answer get(RawClient client, String path, String fields) throws IOException {
        client.send("GET " + path + " HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n");
        return client.read();
    }

    /** RFC 9110 §15.4.5: a 304 has the ETag and Vary of the 200 that it stands for. */
    @Test
    void a_304_is_about_the_compressed_response_that_the_client_has() throws Exception {
        origin.handler = (seen, out, socket) -> {
            String fields = "ETag: \"a\"\r\nCache-Control: max-age="
                    + (seen.line().contains("/stored") ? "60" : "0")
                    + (seen.line().contains("/as-it-is") ? ", no-transform\r\n" : "\r\n")
                    + (seen.line().contains("/typed") ? "Content-Type: text/plain\r\n" : "");
            if (String.valueOf(seen.header("If-None-Match")).contains("\"a\"")) {
                out.write(("HTTP/1.1 304 X\r\n" + fields + "\r\n").getBytes());
            } else if (seen.header("Range") != null) {
                RecordingOrigin.respond(out, 206, fields + "Content-Type: text/plain\r\n"
                        + "Content-Range: bytes 0-3/5000\r\n", "cccc");
            } else {
                RecordingOrigin.respond(out, 200, fields + (seen.line().contains("/typed") ? ""
                        : "Content-Type: text/plain\r\n"), "c".repeat(5000));
            }
            return true;
        };
        RawClient client = client(gateway("[cache]\nenabled = true\n[[filter]]\ntype = \"compress\"\n"));
        String gzip = "Accept-Encoding: gzip\r\n";
        for (String path : List.of("/asked", "/typed", "/stored")) {
            RawClient.Answer first = get(client, path, gzip);
            assertEquals("W/\"a\"", first.header("ETag"));
            assertEquals("Accept-Encoding", first.header("Vary"));
            RawClient.Answer same = get(client, path, gzip + "If-None-Match: " + first.header("ETag") + "\r\n");
            assertEquals(304, same.status(), path);
            assertEquals("W/\"a\"", same.header("ETag"), path);
            assertEquals("Accept-Encoding", same.header("Vary"), path);
            // Without compression the tag is the origin's.
            for (String fields : List.of("If-None-Match: W/\"a\"\r\n", gzip + "If-None-Match: \"a\"\r\n")) {
                RawClient.Answer plain = get(client, path, fields);
                assertEquals(304, plain.status(), path);
                assertEquals("\"a\"", plain.header("ETag"), path + fields);
                // Of an image, or of what is short, a 304 without a type says no more.
                boolean isCompressible = !path.equals("/asked") || fields.startsWith("If-None-Match: W/");
                assertEquals(isCompressible ? "Accept-Encoding" : null, plain.header("Vary"), path + fields);
            }
        }
        RawClient.Answer asItIs = get(client, "/as-it-is", gzip + "If-None-Match: W/\"a\"\r\n");
        assertEquals("\"a\"", asItIs.header("ETag"));
        assertNull(asItIs.header("Vary"));
        RawClient.Answer part = get(client, "/asked", gzip + "Range: bytes=0-3\r\n");
        assertEquals(206, part.status());
        assertEquals("\"a\"", part.header("ETag"));
        assertEquals("Accept-Encoding", part.header("Vary"));
    }

    /** W3C Trace Context §3.2 and §3.3, as its test suite asks for them. */
    @Test
    void a_trace_goes_on_with_its_state_or_begins_without_any() throws Exception {
        RawClient client = client(gateway("[[filter]]\ntype = \"request-id\"\n"));
        String id = "1234567890abcdef1234567890abcdef";
        String good = id + "-1234567890123456-01";
        String state = "tracestate: foo=1\r\n";
        for (String parent : List.of("00-" + good, "cc-" + good, "cc-" + good + "-what-comes-later", "01-" + good,
                "00-" + id + "-1234567890123456-03")) {
            RecordingOrigin.Seen seen = traced(client, "traceparent: " + parent + "\r\n" + state);
            String flags = parent.endsWith("-03") ? "03" : "01";
            assertTrue(seen.header("traceparent").matches("00-" + id + "-(?!1234567890123456)[0-9a-f]{16}-" + flags),
                    seen.head());
            assertEquals("foo=1", seen.header("tracestate"), parent);
        }
        assertTrue(traced(client, "traceparent: cc-" + good.replace("-01", "-ff") + "\r\n")
                .header("traceparent").endsWith("-03"));
        for (String parent : List.of("", "traceparent: ff-" + good + "\r\n", "traceparent: 00-" + good + "-x\r\n",
                "traceparent: cc-" + good + "x\r\n", "traceparent: 00-" + good.toUpperCase() + "\r\n",
                "traceparent: 00-" + good + "\r\ntraceparent: 00-" + good + "\r\n",
                "traceparent: 00-" + "0".repeat(32) + good.substring(32) + "\r\n",
                "traceparent: 00-" + id + "-0000000000000000-01\r\n")) {
            RecordingOrigin.Seen seen = traced(client, parent + state);
            assertTrue(seen.header("traceparent").matches("00-(?!" + id + ")[0-9a-f]{32}-[0-9a-f]{16}-01"),
                    seen.head());
            assertNull(seen.header("tracestate"), parent);
        }
    }

    private RecordingOrigin.Seen traced(RawClient client, String fields) throws IOException {
        assertEquals(200, get(client, "/", fields).status());
        return origin.seen.get(origin.seen.size() - 1);
    }

    @Test
    void a_filter_that_appends_to_bodies_appends_nothing_to_a_head() throws Exception {
        Files.writeString(folder.resolve("Appends.java"), """
                import java.nio.ByteBuffer;
                import wirespeed.gateway.core.*;
                public class Appends implements Filter {
                    public Phase phase() { return Phase.POST; }
                    public int order() { return 5; }
                    public Step apply(Context context) {
                        context.response().transform(new BodyTransform() {
                            public ByteBuffer chunk(ByteBuffer piece) { return piece; }
                            public ByteBuffer end() { return ByteBuffer.wrap("end".getBytes()); }
                        });
                        return Step.NEXT;
                    }
                }
                """);
        origin.handler = (seen, out, socket) -> {
            if (seen.line().startsWith("HEAD")) {
                out.write("HTTP/1.1 200 X\r\nContent-Length: 5\r\n\r\n".getBytes());
                return true;
            }
            return RecordingOrigin.ordinary(seen, out, socket);
        };
        RawClient client = client(gateway("[filters]\nfolder = \"" + folder + "\"\n"));
        client.send("HEAD /h HTTP/1.1\r\nHost: a\r\n\r\nGET /g HTTP/1.1\r\nHost: a\r\n\r\n");
        assertEquals(200, client.read(true).status());
        assertEquals("GET /g HTTP/1.1|end", client.read().body());
    }

    @Test
    void fields_of_proxies_are_not_taken_from_clients_in_another_spelling()
            throws IOException {
        Carrier gateway = gateway("[[filter]]\ntype = \"headers\"\nrequest-set = { X-User ="
                + " \"guest\" }\nrequest-remove = [\"X-Role\"]\n");
        RawClient client = client(gateway);
        client.send("GET / HTTP/1.1\r\nHost: a\r\nX_Forwarded_For: 6.6.6.6\r\n"
                + "X_Forwarded-Proto: https\r\nX-Forwarded_Client_Cert: Hash=1\r\n"
                + "x_real_ip: 6.6.6.6\r\nTrue_Client_IP: 6.6.6.6\r\nFront-End-Https: on\r\n"
                + "Front_End_Https: on\r\nProxy: http://6.6.6.6\r\nContent_Length: 5\r\n"
                + "X_User: admin\r\nX_Role: admin\r\nX_Own: kept\r\nProxy_Authorization: b\r\n"
                + "\r\n");
        assertEquals(200, client.read().status());
        RecordingOrigin.Seen seen = origin.seen.get(0);
        String head = seen.head().toLowerCase();
        for (String name : List.of("x_forwarded", "x-forwarded_client", "x_real_ip", "true_client",
                "front-end-https", "front_end_https", "\r\nproxy", "content_length", "x_user",
                "x_role", "6.6.6.6")) {
            assertTrue(!head.contains(name), name + " in " + seen.head());
        }
        assertEquals("kept", seen.header("X_Own"));
        assertEquals("guest", seen.header("X-User"));
        assertEquals("127.0.0.1", seen.header("X-Forwarded-For"));
        assertNull(seen.header("X-Role"));
    }

    @Test
    void two_origins_of_one_host_keep_a_client_at_an_address_of_each() throws IOException {
        StringBuilder toml = new StringBuilder();
        RecordingOrigin[] origins = new RecordingOrigin[4];
        for (int i = 0; i < 4; i++) {
            origins[i] = closedLater(new RecordingOrigin());
        }
        for (int i = 0; i < 4; i += 2) {
            toml.append("[origins.\"").append(i == 0 ? "a" : "two words").append("\"]\naddresses = [\"127.0.0.1:")
                    .append(origins[i].port()).append("\", \"127.0.0.1:").append(origins[i + 1].port())
                    .append("\"]\npersistence = \"cookie\"\nbalance = \"round-robin\"\n");
        }
        RawClient client = client(start(toml + "[[route]]\nprefix = \"/a\"\norigins = [\"a\"]\n[[route]]\n"
                + "prefix = \"/b\"\norigins = [\"two words\"]\n"));
        Map<String, String> jar = new TreeMap<>();
        for (int i = 0; i < 20; i++) {
            client.send("GET " + (i % 2 == 0 ? "/a" : "/b") + " HTTP/1.1\r\nHost: a\r\nCookie: "
                    + String.join("; ", jar.values()) + "\r\n\r\n");
            String set = client.read().header("Set-Cookie");
            assertEquals(i < 2, set != null, i + ": " + set);
            if (set != null) {
                jar.put(set.substring(0, set.indexOf('=')), set.substring(0, set.indexOf(';')));
            }
        }
        for (RecordingOrigin one : origins) {
            assertTrue(one.seen.isEmpty() || one.seen.size() == 10, one.seen.size() + " requests");
        }
    }

    /** A server that two origins have, with other bounds, holds a session for both. */
    @Test
    void two_origins_with_the_same_addresses_and_cookie_keep_a_client_at_one_address() throws IOException {
        RecordingOrigin other = closedLater(new RecordingOrigin());
        String shared = "addresses = [\"127.0.0.1:" + origin.port() + "\", \"127.0.0.1:" + other.port()
                + "\"]\npersistence = \"cookie\"\npersistence-name = \"session\"\nbalance = \"round-robin\"\n";
        Carrier gateway = start("[origins.app]\n" + shared + "[origins.slow]\n" + shared
                + "response = \"10m\"\n[[route]]\norigins = [\"app\"]\n[[route]]\n"
                + "prefix = \"/export\"\norigins = [\"slow\"]\n");
        for (int i = 0; i < 4; i++) {
            RawClient client = client(gateway);
            String set = get(client, "/" + i, "").header("Set-Cookie");
            assertTrue(set.startsWith("session="), set);
            RawClient.Answer export = get(client, "/export/" + i,
                    "Cookie: " + set.substring(0, set.indexOf(';')) + "\r\n");
            assertEquals(200, export.status());
            assertNull(export.header("Set-Cookie"));
        }
        assertEquals(8, origin.seen.size() + other.seen.size());
        for (RecordingOrigin one : List.of(origin, other)) {
            for (RecordingOrigin.Seen first : one.seen) {
                String path = first.line().replace("/export", "");
                assertEquals(2, one.seen.stream().filter(seen ->
                        seen.line().replace("/export", "").equals(path)).count(), path);
            }
        }
    }

    @Test
    void a_stripped_prefix_is_passed_to_the_origin_and_restored_in_its_answers() throws IOException {
        origin.handler = (seen, out, socket) -> {
            String place = switch (seen.line().split(" ")[1]) {
                case "/host" -> "http://shop.example/x";
                case "/self" -> "http://127.0.0.1:" + origin.port() + "/x?y";
                case "/other" -> "https://elsewhere.example/x";
                case "/known" -> "/api/x";
                default -> "/x";
            };
            RecordingOrigin.respond(out, 302, "Location: " + place + "\r\nSet-Cookie: a=b; Path=/;"
                    + " HttpOnly\r\nSet-Cookie: c=d; path=/cart\r\n", "");
            return true;
        };
        RawClient client = client(gateway("[[route]]\nprefix = \"/api\"\norigins = [\"o\"]\n"
                + "strip-prefix = true\nrestore-prefix = true\n"));
        List<String> places = List.of("plain", "/api/x", "host", "http://shop.example/api/x", "self",
                "/api/x?y", "other", "https://elsewhere.example/x", "known", "/api/x");
        for (int i = 0; i < places.size(); i += 2) {
            client.send("GET /api/" + places.get(i) + " HTTP/1.1\r\nHost: shop.example\r\n"
                    + "X-Forwarded-Prefix: /evil\r\n\r\n");
            RawClient.Answer answer = client.read();
            assertEquals(places.get(i + 1), answer.header("Location"), places.get(i));
            assertTrue(answer.head().contains("Set-Cookie: a=b; Path=/api; HttpOnly\r\n"), answer.head());
            assertTrue(answer.head().contains("Set-Cookie: c=d; Path=/api/cart\r\n"), answer.head());
        }
        assertEquals("/api", origin.seen.get(0).header("X-Forwarded-Prefix"));
        assertEquals("GET /plain HTTP/1.1", origin.seen.get(0).line());
    }
}
