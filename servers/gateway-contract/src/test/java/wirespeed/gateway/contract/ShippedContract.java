// For which requests shipped filters are, and what they say of answers that no origin gave.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

abstract class ShippedContract extends CarrierContract {
    private static final String PAGE = "Origin: https://shop.example\r\n";
    private static final String CORS = "[[filter]]\ntype = \"cors\"\nallow-origins = [\"https://shop.example\"]\n"
            + "credentials = true\n";
    private static final String BALANCER = "[server]\ntrusted-proxies = [\"127.0.0.1\"]\n";
    private static final String SECURE = "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: https, http\r\n"
            + "X-Forwarded-Host: shop.example, edge.internal\r\n";
    @TempDir
    Path folder;

    private Carrier gateway(String more) {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n" + more);
    }

    /** A filter that refuses every client. */
    private String locked(String more) throws IOException {
        Path keys = Files.writeString(folder.resolve("keys"), "kim " + "0".repeat(64) + "\n");
        return "[[filter]]\ntype = \"api-key\"\nkeys-file = \"" + keys + "\"\n" + more;
    }

    private static RawClient.Answer ask(RawClient client, String line, String host, String fields)
            throws IOException {
        client.send(line + " HTTP/1.1\r\nHost: " + host + "\r\n" + fields + "\r\n");
        return client.read();
    }

    @Test
    void a_filter_for_a_suffix_is_for_each_host_below_it() throws Exception {
        Carrier gateway = gateway(locked("host = \"*.example.com\"\nprefix = \"/admin\"\n"));
        for (String host : List.of("a.example.com", "A.b.Example.COM.:8443")) {
            assertEquals(401, ask(client(gateway), "GET /admin/x", host, "").status(), host);
            assertEquals(200, ask(client(gateway), "GET /administer", host, "").status(), host);
        }
        for (String host : List.of("example.com", "notexample.com", "a.example.com.evil")) {
            assertEquals(200, ask(client(gateway), "GET /admin/x", host, "").status(), host);
        }
    }

    private static int preflight(RawClient client, String path, String host) throws IOException {
        return ask(client, "OPTIONS " + path, host, PAGE + "Access-Control-Request-Method: POST\r\n").status();
    }

    @Test
    void preflights_come_before_credentials_of_their_own_requests_and_behind_all_else() throws Exception {
        String rewrite = "[[filter]]\ntype = \"rewrite\"\norder = 50\npattern = \"^/public\"\n"
                + "replacement = \"/api\"\n" + CORS + "prefix = \"/api\"\n";
        for (String elsewhere : List.of("host = \"admin.example\"\n", "prefix = \"/apis\"\n",
                "host = \"*.admin.example\"\n")) {
            RawClient client = client(gateway(rewrite + "host = \"shop.example\"\n" + locked("order = 10\n" + elsewhere)));
            assertEquals(204, preflight(client, "/public/x", "shop.example"), elsewhere);
        }
        assertEquals(0, origin.seen.size());
        for (String here : List.of("", "host = \"*.example\"\n", "prefix = \"/api/x\"\n")) {
            RawClient client = client(gateway(CORS + "prefix = \"/api\"\nhost = \"shop.example\"\n"
                    + locked("order = 10\n" + here)));
            assertEquals(204, preflight(client, "/api/x", "shop.example"), here);
        }
        assertEquals(0, origin.seen.size());
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }

    @Test
    void a_page_may_read_the_failures_of_the_gateway_too() throws Exception {
        origin.handler = (seen, out, socket) -> {
            if (!seen.line().contains("/late")) {
                return RecordingOrigin.ordinary(seen, out, socket);
            }
            RecordingOrigin.awaitQuietly(new java.util.concurrent.CountDownLatch(1));
            return false;
        };
        Carrier gateway = gateway("[limits]\nbody = \"10B\"\n" + CORS + "[[filter]]\ntype = \"request-id\"\n"
                + "[[filter]]\ntype = \"external-auth\"\nprefix = \"/asked\"\nurl = \"http://127.0.0.1:"
                + freePort() + "/\"\n[origins.down]\naddresses = [\"127.0.0.1:" + freePort() + "\"]\n"
                + "[[route]]\nprefix = \"/down\"\norigins = [\"down\"]\n[[route]]\nprefix = \"/late\"\n"
                + "origins = [\"o\"]\nresponse = \"200ms\"\n[[route]]\nprefix = \"/o\"\norigins = [\"o\"]\n"
                + "[[route]]\nprefix = \"/asked\"\norigins = [\"o\"]\n");
        for (String line : List.of("GET /o 200", "GET /down 502", "GET /late 504", "GET /none 404",
                "GET /asked 503", "POST /o 413")) {
            String fields = PAGE + (line.startsWith("POST") ? "Content-Length: 11\r\n" : "");
            RawClient.Answer answer = ask(client(gateway), line.substring(0, line.length() - 4), "a", fields);
            assertEquals(Integer.parseInt(line.substring(line.length() - 3)), answer.status(), line);
            assertEquals("https://shop.example", answer.header("Access-Control-Allow-Origin"), line);
            assertEquals("true", answer.header("Access-Control-Allow-Credentials"), line);
            assertEquals("Origin", answer.header("Vary"), line);
            assertEquals(answer.head().indexOf("Vary"), answer.head().lastIndexOf("Vary"), line);
            assertNotNull(answer.header("X-Request-ID"), line);
        }
    }

    @Test
    void an_error_page_and_a_filter_that_answers_failures_leave_these_fields() throws Exception {
        Files.writeString(folder.resolve("Sorry.java"), """
                import wirespeed.gateway.core.*;
                public class Sorry implements Filter {
                    public Phase phase() { return Phase.ERROR; }
                    public int order() { return 500; }
                    public Step apply(Context context) {
                        return context.request().path().equals("/page") ? Step.NEXT
                                : Step.respond(Response.of(503, "text/plain", "sorry"));
                    }
                }
                """);
        RawClient client = client(start("[origins.o]\naddresses = [\"127.0.0.1:" + freePort() + "\"]\n" + CORS
                + "[[filter]]\ntype = \"error-page\"\nstatuses = [\"502\"]\nbody = \"page\"\n"
                + "[filters]\nfolder = \"" + folder + "\"\n"));
        for (String path : List.of("/page", "/own")) {
            RawClient.Answer answer = ask(client, "GET " + path, "a", PAGE);
            assertEquals(path.equals("/page") ? "page" : "sorry", answer.body());
            assertEquals("https://shop.example", answer.header("Access-Control-Allow-Origin"), path);
            assertEquals(answer.head().indexOf("Vary"), answer.head().lastIndexOf("Vary"), path);
        }
    }

    @Test
    void the_service_that_decides_gets_the_scheme_of_the_client_and_the_host_that_routes_go_by() throws Exception {
        RecordingOrigin service = closedLater(new RecordingOrigin());
        String more = "[[filter]]\ntype = \"external-auth\"\nurl = \"http://127.0.0.1:" + service.port()
                + "/\"\ntimeout = \"20s\"\n";
        assertEquals(200, ask(client(gateway(BALANCER + more)), "GET /", "inner.internal", SECURE).status());
        assertEquals("https", service.seen.get(0).header("X-Forwarded-Proto"));
        // Proxies pass on what a client writes into X-Forwarded-Host: it could choose for which host it is let in.
        assertEquals("inner.internal", service.seen.get(0).header("X-Forwarded-Host"));
        assertEquals("203.0.113.7", service.seen.get(0).header("X-Forwarded-For"));
        // Other clients may not say it.
        assertEquals(200, ask(client(gateway(more)), "GET /", "inner.internal", SECURE).status());
        assertEquals("http", service.seen.get(1).header("X-Forwarded-Proto"));
        assertEquals("inner.internal", service.seen.get(1).header("X-Forwarded-Host"));
    }

    @Test
    void a_copy_says_of_client_and_proxies_what_the_origin_gets() throws Exception {
        RecordingOrigin mirror = closedLater(new RecordingOrigin());
        RawClient client = client(gateway(BALANCER + "[[route]]\nprefix = \"/shop\"\norigins = [\"o\"]\n"
                + "strip-prefix = true\n[[filter]]\ntype = \"mirror\"\ntimeout = \"1m\"\nurl = \"http://127.0.0.1:"
                + mirror.port() + "\"\n"));
        assertEquals(200, ask(client, "GET /shop/a", "inner.internal", SECURE + "Forwarded: for=203.0.113.7\r\n")
                .status());
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (mirror.seen.isEmpty()) {
            assertTrue(System.nanoTime() < end, "no copy");
            Thread.sleep(5);
        }
        for (String name : List.of("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded",
                "X-Forwarded-Prefix", "Via")) {
            assertEquals(origin.seen.get(0).header(name), mirror.seen.get(0).header(name), name);
        }
        assertEquals("203.0.113.7, 127.0.0.1", mirror.seen.get(0).header("X-Forwarded-For"));
        assertEquals("https, http", mirror.seen.get(0).header("X-Forwarded-Proto"));
    }

    @Test
    void a_cookie_that_binds_is_for_tls_alone_where_the_client_uses_it() throws Exception {
        String cookie = "persistence = \"cookie\"\n";
        String secure = ask(client(gateway(cookie + BALANCER)), "GET /", "a", SECURE).header("Set-Cookie");
        assertTrue(secure.endsWith("; Secure"), secure);
        String plain = ask(client(gateway(cookie)), "GET /", "a", SECURE).header("Set-Cookie");
        assertTrue(plain.endsWith("; SameSite=Lax"), plain);
    }

    @Test
    void a_stripped_prefix_is_restored_in_places_of_the_host_that_the_client_asked_for() throws Exception {
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 302, "Location: https://shop.example/next\r\n", "");
            return true;
        };
        Carrier gateway = gateway(BALANCER + "[[route]]\nprefix = \"/shop\"\norigins = [\"o\"]\n"
                + "strip-prefix = true\nrestore-prefix = true\n");
        assertEquals("https://shop.example/shop/next",
                ask(client(gateway), "GET /shop/a", "inner.internal", SECURE).header("Location"));
        assertEquals("https://shop.example/next",
                ask(client(gateway), "GET /shop/a", "inner.internal", "").header("Location"));
    }

    @Test
    void a_host_field_that_a_filter_takes_off_or_sets_leaves_a_request_with_one() throws Exception {
        String headers = "[[filter]]\ntype = \"headers\"\n";
        assertEquals(200, ask(client(gateway(headers + "request-remove = [\"Host\"]\n")), "GET /", "a.example:81",
                "").status());
        assertEquals(200, ask(client(gateway(headers + "request-set = { Host = \"b.internal\" }\n")), "GET /",
                "a.example", "").status());
        assertEquals(200, ask(client(gateway("preserve-host = false\n" + headers
                + "request-set = { Host = \"b.internal\" }\n")), "GET /", "a.example", "").status());
        Files.writeString(folder.resolve("Two.java"), """
                import wirespeed.gateway.core.*;
                public class Two implements Filter {
                    public Phase phase() { return Phase.PRE; }
                    public int order() { return 5; }
                    public Step apply(Context context) {
                        context.request().host("c.internal");
                        context.request().headers().add("Host", "d.internal");
                        return Step.NEXT;
                    }
                }
                """);
        String filter = "[filters]\nfolder = \"" + folder + "\"\n";
        assertEquals(200, ask(client(gateway(filter)), "GET /", "a.example", "").status());
        RawClient old = client(gateway(headers + "request-set = { Host = \"b.internal\" }\n"));
        old.send("GET / HTTP/1.0\r\n\r\n");
        assertEquals(200, old.read().status());
        List<String> hosts = List.of("a.example:81", "b.internal", "127.0.0.1:" + origin.port(), "a.example",
                "b.internal");
        for (int i = 0; i < hosts.size(); i++) {
            String head = origin.seen.get(i).head();
            assertEquals(hosts.get(i), origin.seen.get(i).header("Host"), head);
            assertEquals(head.indexOf("\r\nHost:"), head.lastIndexOf("\r\nHost:"), head);
        }
    }
}
