// Balancing, cache, WebSocket, filters at run time and the admin port, on every carrier.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Option;
import wirespeed.gateway.core.OptionTable;

abstract class FeatureContract extends CarrierContract {
    private final HttpClient http = HttpClient.newHttpClient();
    @TempDir
    Path folder;

    private String origins(String more) {
        return "[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n" + more;
    }

    private String markOf(RawClient client) throws IOException {
        RawClient.Answer answer = client.get("/");
        assertEquals(200, answer.status());
        return answer.header("X-Mark");
    }

    @Test
    void swaps_under_load_lose_no_request() throws Exception {
        // Other work on this machine may hold the loops up; that is not what is tested.
        Carrier gateway = start(marked("v0"));
        AtomicBoolean isOver = new AtomicBoolean();
        AtomicInteger answered = new AtomicInteger();
        AtomicInteger failed = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            Thread thread = new Thread(() -> {
                try (RawClient own = gateway.client()) {
                    while (!isOver.get()) {
                        boolean isFine = own.get("/").status() == 200;
                        (isFine ? answered : failed).incrementAndGet();
                    }
                } catch (IOException e) {
                    failed.incrementAndGet();
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (int i = 1; i <= 1000; i++) {
            HttpResponse<String> now = admin(gateway, "GET", "/config", null, null);
            HttpResponse<String> done = admin(gateway, "PUT", "/config",
                    now.headers().firstValue("ETag").orElseThrow(), marked("v" + i));
            assertEquals(200, done.statusCode(), done.body());
        }
        isOver.set(true);
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals(0, failed.get());
        assertTrue(answered.get() > 100, "only " + answered + " requests passed");
        assertEquals(1001, gateway.runtime.gateway().snapshot().version());
    }

    private String marked(String mark) {
        return origins("[admin]\nlisten = \"127.0.0.1:0\"\n[limits]\nloop-lag = \"60s\"\n[[filter]]\ntype = \"headers\"\n"
                + "response-set = { X-Mark = \"" + mark + "\" }\n");
    }

    private HttpResponse<String> admin(Carrier gateway, String method, String path, String tag,
            String body) throws Exception {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:"
                + gateway.runtime.adminAddress().getPort() + path));
        if (tag != null) {
            request.header("If-Match", tag);
        }
        return http.send(request.method(method, body == null
                ? HttpRequest.BodyPublishers.noBody()
                : HttpRequest.BodyPublishers.ofString(body)).build(),
                HttpResponse.BodyHandlers.ofString());
    }

    @Test
    void the_admin_port_shows_and_changes() throws Exception {
        Carrier gateway = start(origins("[admin]\nlisten = \"127.0.0.1:0\"\n"));
        RawClient client = client(gateway);
        assertEquals(200, client.get("/").status());
        for (String path : List.of("/health", "/ready", "/routes", "/origins", "/filters",
                "/pools", "/loggers", "/config")) {
            assertEquals(200, admin(gateway, "GET", path, null, null).statusCode(), path);
        }
        assertTrue(admin(gateway, "GET", "/metrics", null, null).body().contains(
                "wirespeed_gateway_requests_total{category=\"ok\",status=\"2xx\"} 1.0"));
        String metrics = admin(gateway, "GET", "/metrics", null, null).body();
        for (String line : List.of("wirespeed_gateway_route_exchanges_seconds_count{origin=\"o\","
                + "route=\"all\",status=\"2xx\"} 1", "wirespeed_gateway_route_exchanges_seconds_bucket"
                + "{origin=\"o\",route=\"all\",status=\"2xx\",le=\"+Inf\"} 1",
                "wirespeed_gateway_origin_responses_seconds_count{origin=\"o\"} 1")) {
            assertTrue(metrics.contains(line), line + " is not in " + metrics);
        }
        String tag = admin(gateway, "GET", "/config", null, null).headers()
                .firstValue("ETag").orElseThrow();
        assertEquals(404, admin(gateway, "PUT", "/loggers/nobody", null, "FINE").statusCode());
        assertEquals(422, admin(gateway, "PUT", "/loggers/wirespeed.gateway", null, "LOUD")
                .statusCode());
        assertEquals(404, admin(gateway, "POST", "/config/rollback/x", tag, null).statusCode());
        assertEquals(428, admin(gateway, "PUT", "/config", null, "x").statusCode());
        assertEquals(412, admin(gateway, "PUT", "/config", "\"0\"", marked("a")).statusCode());
        HttpResponse<String> bad = admin(gateway, "PUT", "/config", tag,
                "[server]\nlsten = \"x\"\n[origins.o]\naddresses = []\n");
        assertEquals(422, bad.statusCode());
        assertTrue(bad.body().contains("did you mean listen?"), bad.body());
        assertEquals(409, admin(gateway, "PUT", "/config", tag,
                origins("[timeouts]\nhead = \"9s\"\n[admin]\nlisten = \"127.0.0.1:0\"\n"))
                .statusCode());
        assertEquals(200, admin(gateway, "PUT", "/config", tag, marked("new").replace(
                "loop-lag = \"60s\"", "")).statusCode());
        assertEquals("new", markOf(client));
        String address = "/origins/o/addresses/127.0.0.1:" + origin.port();
        String seen = admin(gateway, "GET", "/origins", null, null).headers()
                .firstValue("ETag").orElseThrow();
        assertEquals(412, admin(gateway, "PATCH", address, "\"0\"", "state=down").statusCode());
        assertEquals(422, admin(gateway, "PATCH", address, seen, "weight=5,stat=x").statusCode());
        assertEquals(200, admin(gateway, "PATCH", address, seen, "state=down").statusCode());
        assertEquals(412, admin(gateway, "PATCH", address, seen, "state=drain").statusCode());
        // A carrier may close a connection after a 503.
        assertEquals(503, client(gateway).get("/").status());
        assertEquals(200, admin(gateway, "PATCH", address, null, "state=up").statusCode());
        assertEquals(200, client(gateway).get("/").status());
    }

    /** Replaces the configuration of a running gateway and asks it something. */
    private RawClient.Answer after(Carrier gateway, String change, String request)
            throws Exception {
        HttpResponse<String> now = admin(gateway, "GET", "/config", null, null);
        HttpResponse<String> done = admin(gateway, "PUT", "/config",
                now.headers().firstValue("ETag").orElseThrow(),
                origins("[admin]\nlisten = \"127.0.0.1:0\"\n") + change);
        assertEquals(200, done.statusCode(), done.body());
        origin.seen.clear();
        RawClient client = client(gateway);
        client.send(request);
        return client.read();
    }

    @Test
    void every_option_that_is_called_reloadable_has_its_effect_at_once() throws Exception {
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "X-A: " + "a".repeat(600) + "\r\nX-B: 1\r\n", "ok");
            return true;
        };
        Carrier gateway = start(origins("[admin]\nlisten = \"127.0.0.1:0\"\n"));
        String get = "GET / HTTP/1.1\r\nHost: a\r\n";
        String forwarded = get + "X-Forwarded-For: 6.6.6.6\r\n\r\n";
        Map<String, Integer> refused = Map.of("line = 256", 414, "head = 512", 431, "fields = 2",
                431, "body = 5", 413, "response-head = 512", 502, "response-fields = 1", 502);
        String large = "POST /" + "p".repeat(300) + " HTTP/1.1\r\nHost: a\r\nX: "
                + "x".repeat(300) + "\r\nContent-Length: 6\r\n\r\nsixsix";
        Set<String> tried = new TreeSet<>();
        for (Map.Entry<String, Integer> limit : refused.entrySet()) {
            assertEquals(200, after(gateway, "", large).status());
            assertEquals(limit.getValue(), after(gateway, "[limits]\n" + limit.getKey() + "\n",
                    large).status(), limit.getKey());
            tried.add("limits." + limit.getKey().split(" ")[0]);
        }
        assertEquals(200, after(gateway, "[server]\nvia-name = \"me\"\n", get + "\r\n").status());
        assertEquals("1.1 me", origin.seen.get(0).header("Via"));
        assertEquals(200, after(gateway, "[server]\ntrusted-proxies = [\"127.0.0.1\"]\n",
                forwarded).status());
        assertEquals("6.6.6.6, 127.0.0.1", origin.seen.get(0).header("X-Forwarded-For"));
        tried.addAll(Set.of("server.via-name", "server.trusted-proxies"));
        // These are read when they are needed, by the stop and by the watch of the file.
        for (String name : List.of("drain", "drain-delay", "config-watch")) {
            after(gateway, "[server]\n" + name + " = \"77ms\"\n", get + "\r\n");
            assertEquals(77, gateway.runtime.gateway().options("server").millis(name), name);
            tried.add("server." + name);
        }
        Set<String> several = Set.of("origin", "route", "filter");
        assertEquals(OptionTable.all().stream().filter(option -> option.reloadable()
                && !several.contains(option.section())).map(Option::key)
                .collect(Collectors.toCollection(TreeSet::new)), tried);
    }

    /** Answers requests in the clear, and closes whatever begins as a TLS handshake does. */
    private static void serveInTheClear(java.net.Socket socket, AtomicInteger plain,
            AtomicInteger encrypted) {
        try (socket) {
            java.io.InputStream in = socket.getInputStream();
            StringBuilder head = new StringBuilder();
            for (int b = in.read(); b >= 0; b = in.read()) {
                if (b == 0x16) {
                    encrypted.incrementAndGet();
                    return;
                }
                head.append((char) b);
                if (head.toString().endsWith("\r\n\r\n")) {
                    plain.incrementAndGet();
                    RecordingOrigin.respond(socket.getOutputStream(), 200, "", "ok");
                    head.setLength(0);
                }
            }
        } catch (IOException gone) {
            // The gateway may close at any time.
        }
    }

    @Test
    void nothing_goes_in_the_clear_to_an_origin_that_is_to_be_encrypted() throws Exception {
        AtomicInteger plain = new AtomicInteger();
        AtomicInteger encrypted = new AtomicInteger();
        java.net.ServerSocket listener = closedLater(new java.net.ServerSocket(0, 50,
                java.net.InetAddress.getLoopbackAddress()));
        Thread acceptor = new Thread(() -> {
            while (!listener.isClosed()) {
                try {
                    java.net.Socket socket = listener.accept();
                    new Thread(() -> serveInTheClear(socket, plain, encrypted)).start();
                } catch (IOException closed) {
                    return;
                }
            }
        });
        acceptor.setDaemon(true);
        acceptor.start();
        String addresses = "addresses = [\"127.0.0.1:" + listener.getLocalPort() + "\"]\n";
        String two = "[admin]\nlisten = \"127.0.0.1:0\"\n[origins.clear]\n" + addresses
                + "[origins.secret]\n" + addresses + "tls = true\n[[route]]\nprefix = \"/secret\"\n"
                + "origins = [\"secret\"]\n[[route]]\norigins = [\"clear\"]\n";
        Carrier gateway = start(two);
        for (int i = 1; i <= 3; i++) {
            assertEquals(200, client(gateway).get("/").status());
            assertEquals(502, client(gateway).get("/secret").status());
            assertEquals(i, plain.get(), "a request for the encrypted origin came in the clear");
        }
        HttpResponse<String> now = admin(gateway, "GET", "/config", null, null);
        assertEquals(200, admin(gateway, "PUT", "/config", now.headers().firstValue("ETag")
                .orElseThrow(), two.replaceFirst("addresses", "tls = true\naddresses"))
                .statusCode());
        assertEquals(502, client(gateway).get("/").status());
        assertEquals(3, plain.get(), "an unused connection in the clear was taken after a reload");
        for (int i = 0; i < 3_000 && encrypted.get() < 4; i++) {
            // The origin may receive a request after its client was refused.
            Thread.sleep(20);
        }
        assertTrue(encrypted.get() >= 4, encrypted + " handshakes");
    }

    private static String awaitText(Path file) throws Exception {
        for (int i = 0; i < 1200 && (!Files.exists(file) || Files.size(file) == 0); i++) {
            Thread.sleep(50);
        }
        return Files.readString(file);
    }

    @Test
    void the_access_log_has_a_format() throws Exception {
        Path own = folder.resolve("own.log");
        Path json = folder.resolve("json.log");
        Carrier gateway = start(origins("[[filter]]\ntype = \"access-log\"\nfile = \"" + own
                + "\"\nformat = \"{method} {target} {status} {request:X-A} {response:X-No} {route}"
                + " {origin}\"\n[[filter]]\ntype = \"access-log\"\nname = \"json\"\nfile = \""
                + json + "\"\nformat = \"json\"\n"));
        RawClient client = client(gateway);
        client.send("GET /a?q=\"x\" HTTP/1.1\r\nHost: h\r\nX-A: y\r\n\r\n");
        assertEquals(200, client.read().status());
        assertEquals("GET /a?q=\\x22x\\x22 200 y - all o\n", awaitText(own));
        String line = awaitText(json);
        assertTrue(line.startsWith("{\"address\":\"127.0.0.1:" + origin.port()
                + "\",\"attempts\":1,\"bytes\":"), line);
        assertTrue(line.contains("\"status\":200,\"target\":\"/a?q=\\\"x\\\"\","), line);
    }

    @Test
    void no_header_writes_fields_of_its_own_into_the_access_log() throws Exception {
        Path log = folder.resolve("forged.log");
        Carrier gateway = start(origins("[[filter]]\ntype = \"access-log\"\nfile = \"" + log
                + "\"\nformat = '{request:X-A} \"{request:X-A}\" \"{request:X-B}\" {status}'\n"));
        RawClient client = client(gateway);
        client.send("GET / HTTP/1.1\r\nHost: h\r\nX-A: a\" 200 \\\u00e9\r\nX-B:\r\n\r\n");
        assertEquals(200, client.read().status());
        assertEquals("a\\x22\\x20200\\x20\\x5c\\xe9 \"a\\x22 200 \\x5c\\xe9\" \"-\" 200\n",
                awaitText(log));
    }

    @Test
    void the_admin_port_without_a_token_is_for_names_of_this_machine() throws Exception {
        Carrier gateway = start(origins("[admin]\nlisten = \"127.0.0.1:0\"\n"));
        for (String host : List.of("localhost", "LOCALHOST:9", "127.0.0.1:8", "[::1]:7")) {
            assertEquals(200, adminAsks(gateway, host).status(), host);
        }
        for (String host : List.of("rebound.example", "127.0.0.1.example:8", "10.0.0.1", "[::2]",
                "127.0.0.1@x")) {
            assertEquals(403, adminAsks(gateway, host).status(), host);
        }
    }

    private RawClient.Answer adminAsks(Carrier gateway, String host) throws IOException {
        try (RawClient client = new RawClient(gateway.runtime.adminAddress())) {
            client.send("GET /config HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
            return client.read();
        }
    }

    @Test
    void requests_have_names_for_logs_and_traces() throws Exception {
        String trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        RawClient client = client(start(origins("[[filter]]\ntype = \"request-id\"\n")));
        client.send("GET / HTTP/1.1\r\nHost: h\r\nX-Request-ID: forged\r\ntraceparent: " + trace
                + "\r\n\r\n");
        RawClient.Answer answer = client.read();
        RecordingOrigin.Seen seen = origin.seen.get(0);
        assertTrue(answer.header("X-Request-ID").matches("[0-9a-f]{32}"), answer.head());
        assertEquals(answer.header("X-Request-ID"), seen.header("X-Request-ID"));
        assertTrue(seen.header("traceparent").startsWith(trace.substring(0, 36)), seen.head());
        assertTrue(seen.header("traceparent").endsWith("-00"), seen.head());
        assertNotEquals(trace, seen.header("traceparent"));
        assertEquals(200, client.get("/").status());
        assertTrue(origin.seen.get(1).header("traceparent")
                .matches("00-[0-9a-f]{32}-[0-9a-f]{16}-01"));
        client = client(start(origins("[server]\ntrusted-proxies = [\"127.0.0.1\"]\n"
                + "[[filter]]\ntype = \"request-id\"\n")));
        client.send("GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 9.9.9.9\r\n"
                + "X-Request-ID: kept\r\n\r\n");
        assertEquals("kept", client.read().header("X-Request-ID"));
    }

    @Test
    void the_cache_answers_and_validates() throws Exception {
        AtomicInteger asked = new AtomicInteger();
        origin.handler = (seen, out, socket) -> {
            asked.incrementAndGet();
            if ("\"v1\"".equals(seen.header("If-None-Match"))) {
                out.write("HTTP/1.1 304 X\r\nETag: \"v1\"\r\nCache-Control: max-age=0\r\n\r\n"
                        .getBytes());
                return true;
            }
            String control = seen.line().contains("/fresh") ? "max-age=60"
                    : seen.line().contains("/validate") ? "max-age=0" : "no-store";
            RecordingOrigin.respond(out, 200, "Cache-Control: " + control
                    + "\r\nETag: \"v1\"\r\nVary: Accept\r\n", "body " + asked.get());
            return true;
        };
        RawClient client = client(start(origins("[cache]\nenabled = true\n")));
        long begin = System.nanoTime();
        assertEquals("body 1", client.get("/fresh").body());
        RawClient.Answer hit = client.get("/fresh");
        assertEquals("body 1", hit.body());
        long ageMax = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - begin) + 1;
        long age = Long.parseLong(hit.header("Age"));
        assertTrue(age >= 0 && age < ageMax, "Age: " + age);
        client.send("GET /fresh HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"v1\"\r\n\r\n");
        assertEquals(304, client.read().status());
        client.send("GET /fresh HTTP/1.1\r\nHost: a\r\nAccept: x\r\n\r\n");
        assertEquals("body 2", client.read().body());
        assertEquals("body 3", client.get("/validate").body());
        assertEquals("body 3", client.get("/validate").body());
        assertEquals(4, asked.get());
        assertEquals("body 5", client.get("/never").body());
        assertEquals("body 6", client.get("/never").body());
        client.send("POST /fresh HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assertEquals(200, client.read().status());
        assertEquals("body 8", client.get("/fresh").body());
    }

    @Test
    void the_cache_gives_no_tenant_the_page_of_another() throws Exception {
        AtomicInteger asked = new AtomicInteger();
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "Cache-Control: max-age=60\r\n",
                    seen.header("X-Tenant") + asked.incrementAndGet());
            return true;
        };
        String address = "addresses = [\"127.0.0.1:" + origin.port() + "\"]\n";
        RawClient client = client(start("[origins.a]\n" + address + "[origins.b]\n" + address
                + "[cache]\nenabled = true\n" + tenant("a", "a") + tenant("b", "b")
                + "[[route]]\nmethods = [\"PUT\"]\norigins = [\"a\"]\n"));
        assertEquals("a1", tenantsPage(client, "a", "GET"));
        assertEquals("b2", tenantsPage(client, "b", "GET"));
        assertEquals("a1", tenantsPage(client, "a", "GET"));
        assertEquals("b2", tenantsPage(client, "b", "GET"));
        // A change of the URI is a change for whoever asks for it.
        assertEquals("c3", tenantsPage(client, "c", "PUT"));
        assertEquals("a4", tenantsPage(client, "a", "GET"));
        assertEquals("b5", tenantsPage(client, "b", "GET"));
    }

    private static String tenant(String name, String origin) {
        return "[[route]]\nheaders = { X-Tenant = \"" + name + "\" }\norigins = [\"" + origin
                + "\"]\n";
    }

    private static String tenantsPage(RawClient client, String tenant, String method)
            throws IOException {
        client.send(method + " /page HTTP/1.1\r\nHost: a\r\nX-Tenant: " + tenant
                + "\r\nContent-Length: 0\r\n\r\n");
        return client.read().body();
    }

    @Test
    void equal_requests_are_collapsed() throws Exception {
        AtomicInteger asked = new AtomicInteger();
        CountDownLatch go = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            asked.incrementAndGet();
            RecordingOrigin.awaitQuietly(go);
            RecordingOrigin.respond(out, 200, "Cache-Control: max-age=60\r\n", "once");
            return true;
        };
        Carrier gateway = start(origins("[cache]\nenabled = true\ncollapse = \"2m\"\n"));
        List<RawClient> clients = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            RawClient client = client(gateway);
            client.send("GET /one HTTP/1.1\r\nHost: a\r\n\r\n");
            clients.add(client);
        }
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (gateway.runtime.gateway().inFlight().get() < 8 && System.nanoTime() < end) {
            Thread.onSpinWait();
        }
        go.countDown();
        for (RawClient client : clients) {
            assertEquals("once", client.read().body());
        }
        assertEquals(1, asked.get());
    }

    @Test
    void active_checks_take_an_address_out_and_bring_it_back() throws Exception {
        AtomicBoolean isWell = new AtomicBoolean(true);
        origin.handler = (seen, out, socket) -> {
            boolean isCheck = seen.line().contains("/check");
            RecordingOrigin.respond(out, isCheck && !isWell.get() ? 500 : 200, "", "ok");
            return !isCheck;
        };
        Carrier gateway = start(origins("check-path = \"/check\"\n"
                + "check-interval = \"20ms\"\ncheck-timeout = \"1m\"\n"));
        assertEquals(200, client(gateway).get("/").status());
        isWell.set(false);
        await(gateway, 503);
        isWell.set(true);
        await(gateway, 200);
    }

    private static void await(Carrier gateway, int status) throws IOException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (true) {
            try (RawClient client = gateway.client()) {
                if (client.get("/").status() == status) {
                    return;
                }
            }
            assertTrue(System.nanoTime() < end, "no " + status + " within a minute");
        }
    }

    @Test
    void a_cookie_keeps_a_client_at_its_address() throws IOException {
        try (RecordingOrigin other = new RecordingOrigin()) {
            RawClient client = client(start("[origins.o]\naddresses = [\"127.0.0.1:"
                    + origin.port() + "\", \"127.0.0.1:" + other.port() + "\"]\n"
                    + "persistence = \"cookie\"\nbalance = \"round-robin\"\n"));
            String set = client.get("/").header("Set-Cookie");
            String cookie = set.substring(0, set.indexOf(';'));
            int before = origin.seen.size();
            for (int i = 0; i < 10; i++) {
                client.send("GET / HTTP/1.1\r\nHost: a\r\nCookie: " + cookie + "\r\n\r\n");
                assertEquals(200, client.read().status());
            }
            assertTrue(origin.seen.size() - before == 10 || origin.seen.size() == before);
        }
    }

    @Test
    void waiting_requests_are_bounded_in_number_and_time() throws Exception {
        CountDownLatch go = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.awaitQuietly(go);
            RecordingOrigin.respond(out, 200, "", "ok");
            return true;
        };
        Carrier gateway = start(origins("connections = 1\nwaiters = 0\n[timeouts]\n"
                + "pool-wait = \"1ms\"\n"));
        RawClient first = client(gateway);
        first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (origin.seen.isEmpty() && System.nanoTime() < end) {
            Thread.onSpinWait();
        }
        RawClient.Answer refused = client(gateway).get("/");
        assertEquals(503, refused.status());
        assertFalse(refused.header("Retry-After").isEmpty());
        go.countDown();
        assertEquals(200, first.read().status());
    }

    @Test
    void clients_that_fall_silent_do_not_hold_up_the_admin_port() throws Exception {
        Carrier gateway = start(origins("[admin]\nlisten = \"127.0.0.1:0\"\n"));
        for (int i = 0; i < 40; i++) {
            closedLater(new RawClient(gateway.runtime.adminAddress())).send(i % 2 == 0 ? "GET /rea"
                    : "PUT /config HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n");
        }
        RawClient client = closedLater(new RawClient(gateway.runtime.adminAddress()));
        client.send("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assertEquals(200, client.read().status());
    }

    @Test
    void addresses_that_never_answer_have_taken_the_time_and_not_the_gateway() throws Exception {
        CountDownLatch end = new CountDownLatch(1);
        RecordingOrigin other = closedLater(new RecordingOrigin());
        origin.handler = RecordingOrigin.after(end);
        other.handler = RecordingOrigin.after(end);
        Path log = folder.resolve("late.log");
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\", \"127.0.0.1:" + other.port() + "\"]\nresponse = \"300ms\"\n[[filter]]\ntype = "
                + "\"access-log\"\nfile = \"" + log + "\"\nformat = \"{attempts} {duration} {own}\"\n");
        assertEquals(504, client(gateway).get("/").status());
        end.countDown();
        String[] fields = awaitText(log).trim().split(" ");
        assertEquals("2", fields[0]);
        assertTrue(Long.parseLong(fields[1]) - Long.parseLong(fields[2]) >= 550_000,
                String.join(" ", fields));
    }

    @Test
    void the_wait_for_a_connection_that_others_use_is_the_gateways_own() throws Exception {
        CountDownLatch go = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.awaitQuietly(go);
            RecordingOrigin.respond(out, 200, "", "ok");
            return true;
        };
        Path log = folder.resolve("waits.log");
        Carrier gateway = start(origins("connections = 1\n[timeouts]\npool-wait = \"500ms\"\n[[filter]]\ntype = "
                + "\"access-log\"\nfile = \"" + log + "\"\nformat = \"{status} {own}\"\n"));
        RawClient first = client(gateway);
        first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (origin.seen.isEmpty() && System.nanoTime() < end) {
            Thread.onSpinWait();
        }
        assertEquals(503, client(gateway).get("/").status());
        String[] fields = awaitText(log).trim().split(" ");
        assertEquals("503", fields[0]);
        assertTrue(Long.parseLong(fields[1]) >= 450_000, String.join(" ", fields));
        go.countDown();
        assertEquals(200, first.read().status());
    }

    @Test
    void the_time_of_a_filter_behind_a_response_is_the_gateways_own() throws Exception {
        CountDownLatch end = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            out.write("HTTP/1.1 200 X\r\nContent-Length: 100000\r\n\r\nbegun".getBytes());
            out.flush();
            RecordingOrigin.awaitQuietly(end);
            return false;
        };
        Path filters = Files.createDirectory(folder.resolve("slow"));
        Files.writeString(filters.resolve("Slow.java"), """
                import java.util.concurrent.*;
                import wirespeed.gateway.core.*;
                public class Slow implements Filter {
                    public Phase phase() { return Phase.POST; }
                    public int order() { return 1; }
                    public Step apply(Context context) {
                        return Step.later(new CompletableFuture<Step>().completeOnTimeout(Step.respond(
                                Response.of(200, "text/plain", "own")), 500, TimeUnit.MILLISECONDS));
                    }
                }
                """);
        Path log = folder.resolve("slow.log");
        Carrier gateway = start(origins("[filters]\nfolder = \"" + filters + "\"\n[[filter]]\ntype = "
                + "\"access-log\"\nfile = \"" + log + "\"\nformat = \"{own}\"\n"));
        assertEquals("own", client(gateway).get("/").body());
        end.countDown();
        assertTrue(Long.parseLong(awaitText(log).trim()) >= 450_000);
    }
}
