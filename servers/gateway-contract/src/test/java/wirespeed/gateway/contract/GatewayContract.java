// The duties of every carrier, seen from both sides.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Test;

abstract class GatewayContract extends CarrierContract {
    /** More requests than a rate of one a second lets pass while they are answered. */
    private static final int AT_ONCE = 20;

    Carrier gateway(String more) {
        return gatewayTo("\"127.0.0.1:" + origin.port() + "\"", "", more);
    }

    Carrier gatewayTo(String addresses, String originOptions, String more) {
        return start("[origins.o]\naddresses = [" + addresses + "]\n" + originOptions + "\n" + more);
    }

    @Test
    void passes_a_request_and_its_answer() throws IOException {
        RawClient client = client(gateway(""));
        client.send("GET /a?b HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\nX: 1\r\n\r\n");
        RawClient.Answer answer = client.read();
        assertEquals(200, answer.status());
        assertEquals("GET /a?b HTTP/1.1|", answer.body());
        RecordingOrigin.Seen seen = origin.seen.get(0);
        assertEquals("1", seen.header("X"));
        assertEquals("127.0.0.1", seen.header("X-Forwarded-For"));
        assertEquals("http", seen.header("X-Forwarded-Proto"));
        assertEquals("a", seen.header("Host"));
        assertTrue(seen.header("Via").startsWith("1.1 wirespeed"), seen.head());
    }

    @Test
    void keeps_connections_on_both_sides() throws IOException {
        RawClient client = client(gateway(""));
        for (int i = 0; i < 50; i++) {
            assertEquals("GET /" + i + " HTTP/1.1|", client.get("/" + i).body());
        }
        assertEquals(1, origin.connections.get());
    }

    @Test
    void passes_bodies_of_every_framing() throws IOException {
        RawClient client = client(gateway(""));
        client.send("POST /l HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        assertEquals("POST /l HTTP/1.1|hello", client.read().body());
        client.send("POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                + "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: z\r\n\r\n");
        assertEquals("POST /c HTTP/1.1|abcde", client.read().body());
        assertNull(origin.seen.get(1).header("Trailer"));
    }

    @Test
    void passes_a_large_body_both_ways_unchanged() throws Exception {
        RawClient client = client(gateway(""));
        String body = "0123456789abcdef".repeat(200_000);
        Thread sender = new Thread(() -> client.sendTolerant(
                "POST /big HTTP/1.1\r\nHost: a\r\nContent-Length: " + body.length() + "\r\n\r\n"
                        + body, 65_536));
        sender.start();
        RawClient.Answer answer = client.read();
        sender.join();
        assertTrue(answer.isComplete());
        assertEquals(body.length() + "POST /big HTTP/1.1|".length(), answer.body().length());
        assertTrue(answer.body().endsWith(body));
    }

    @Test
    void passes_chunked_responses_and_ones_that_end_with_the_connection() throws IOException {
        origin.handler = (seen, out, socket) -> {
            boolean isChunked = seen.line().contains("/chunked");
            out.write((isChunked ? "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                    + "5\r\nhello\r\n0\r\n\r\n" : "HTTP/1.1 200 OK\r\n\r\nhello").getBytes());
            return isChunked;
        };
        RawClient client = client(gateway(""));
        assertEquals("hello", client.get("/chunked").body());
        RawClient.Answer closed = client.get("/closed");
        assertEquals("hello", closed.body());
        assertTrue(closed.isComplete());
        assertEquals("hello", client.get("/chunked").body());
    }

    @Test
    void an_old_client_gets_no_chunks() throws IOException {
        origin.handler = (seen, out, socket) -> {
            out.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
                    .getBytes());
            return true;
        };
        RawClient client = client(gateway(""));
        client.send("GET / HTTP/1.0\r\n\r\n");
        RawClient.Answer answer = client.read();
        assertNull(answer.header("Transfer-Encoding"));
        assertEquals("hello", answer.body());
        assertTrue(client.isClosed());
    }

    @Test
    void a_head_request_has_no_body() throws IOException {
        origin.handler = (seen, out, socket) -> {
            out.write("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".getBytes());
            return true;
        };
        RawClient client = client(gateway(""));
        client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        RawClient.Answer answer = client.read(true);
        assertEquals("1000", answer.header("Content-Length"));
        client.send("HEAD /2 HTTP/1.1\r\nHost: a\r\n\r\n");
        assertEquals(200, client.read(true).status());
    }

    @Test
    void answers_pipelined_requests_in_order() throws IOException {
        RawClient client = client(gateway(""));
        StringBuilder all = new StringBuilder();
        for (int i = 0; i < 20; i++) {
            all.append("GET /").append(i).append(" HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        client.send(all.toString());
        for (int i = 0; i < 20; i++) {
            assertEquals("GET /" + i + " HTTP/1.1|", client.read().body());
        }
    }

    @Test
    void a_client_may_close_its_half_after_the_request() throws IOException {
        RawClient client = client(gateway(""));
        client.send("GET /half HTTP/1.1\r\nHost: a\r\n\r\n");
        client.socket.shutdownOutput();
        assertEquals("GET /half HTTP/1.1|", client.read().body());
        assertTrue(client.isClosed());
    }

    @Test
    void all_requests_before_a_closed_half_are_answered() throws IOException {
        LogEar ear = closedLater(new LogEar());
        RawClient client = client(gateway(""));
        client.send("GET /one HTTP/1.1\r\nHost: a\r\n\r\nGET /two HTTP/1.1\r\nHost: a\r\n\r\n"
                + "GET /three HTTP/1.1\r\nHost: a\r\n\r\nGET /half HT");
        client.socket.shutdownOutput();
        for (String path : List.of("/one", "/two", "/three")) {
            assertEquals("GET " + path + " HTTP/1.1|", client.read().body());
        }
        int last = client.read().status();
        assertTrue(last == 0 || last >= 400, "half a request got " + last);
        assertTrue(client.isClosed());
        assertEquals(3, origin.seen.size());
        assertEquals(List.of(), ear.said);
    }

    @Test
    void bytes_after_a_204_with_a_length_are_not_the_next_response() throws IOException {
        origin.handler = (seen, out, socket) -> {
            if (!seen.line().contains("/bare")) {
                return RecordingOrigin.ordinary(seen, out, socket);
            }
            out.write("HTTP/1.1 204 X\r\nContent-Length: 5\r\n\r\n".getBytes());
            out.flush();
            LockSupport.parkNanos(100_000_000);
            out.write("hello".getBytes());
            return true;
        };
        RawClient client = client(gateway(""));
        assertEquals(204, client.get("/bare").status());
        assertEquals("GET /next HTTP/1.1|", client.get("/next").body());
    }

    @Test
    void expect_continue_is_answered_before_the_body() throws IOException {
        RawClient client = client(gateway(""));
        client.send("POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
                + "Expect: 100-continue\r\n\r\n");
        assertEquals(100, client.readOne(false).status());
        client.send("ok");
        assertEquals("POST /e HTTP/1.1|ok", client.read().body());
    }

    @Test
    void an_origin_that_is_down_is_a_502() throws IOException {
        origin.close();
        RawClient client = client(gateway(""));
        assertEquals(502, client.get("/").status());
        assertEquals(502, client.get("/").status());
    }

    @Test
    void a_cut_response_does_not_look_complete() throws IOException {
        origin.handler = (seen, out, socket) -> {
            out.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".getBytes());
            out.flush();
            return false;
        };
        RawClient.Answer answer = client(gateway("")).get("/");
        assertFalse(answer.isComplete() && answer.status() == 200, answer.head());
    }

    @Test
    void a_slow_origin_is_a_504() throws IOException {
        CountDownLatch end = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            try {
                end.await(30, TimeUnit.SECONDS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            return false;
        };
        RawClient client = client(gatewayTo("\"127.0.0.1:" + origin.port() + "\"",
                "response = \"300ms\"", ""));
        assertEquals(504, client.get("/").status());
        end.countDown();
    }

    @Test
    void malformed_responses_are_a_502_and_their_connection_is_not_used_again()
            throws IOException {
        String[] bad = {"HTTP/1.1 200 OK\nContent-Length: 0\n\n", "HI\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"};
        Carrier gateway = gateway("");
        for (String response : bad) {
            origin.handler = (seen, out, socket) -> {
                out.write(response.getBytes());
                return true;
            };
            RawClient client = client(gateway);
            assertEquals(refusesMalformedResponses() ? 502 : client.get("/").status(),
                    client.get("/").status(), response);
        }
    }

    /** Whether this carrier reads responses itself. */
    boolean refusesMalformedResponses() {
        return true;
    }

    @Test
    void bytes_behind_a_response_are_never_an_answer() throws IOException {
        origin.handler = (seen, out, socket) -> {
            out.write(("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
                    + "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil").getBytes());
            return true;
        };
        RawClient client = client(gateway(""));
        for (int i = 0; i < 5; i++) {
            assertEquals("ok", client.get("/" + i).body());
        }
    }

    @Test
    void an_idempotent_request_is_tried_at_another_address() throws IOException {
        origin.handler = (seen, out, socket) -> seen.line().startsWith("POST");
        try (RecordingOrigin other = new RecordingOrigin()) {
            RawClient client = client(gatewayTo("\"127.0.0.1:" + origin.port()
                    + "\", \"127.0.0.1:" + other.port() + "\"", "balance = \"round-robin\"", ""));
            for (int i = 0; i < 4; i++) {
                assertEquals(200, client.get("/" + i).status());
            }
            assertFalse(origin.seen.isEmpty());
            assertEquals(4, other.seen.size());
        }
    }

    @Test
    void a_request_on_a_connection_that_the_origin_closed_is_not_lost() throws IOException {
        // That it had closed is not the origin's failure, and so no retry that is counted.
        for (String retries : java.util.List.of("", "retries = 0\n")) {
            RawClient client = client(gateway(retries));
            for (int i = 0; i < 10; i++) {
                assertEquals(200, client.get("/" + i).status(), retries);
                origin.dropConnections();
            }
        }
    }

    @Test
    void no_route_is_a_404() throws IOException {
        RawClient client = client(gateway("[[route]]\nprefix = \"/api\"\norigins = [\"o\"]\n"
                + "strip-prefix = true\n"));
        assertEquals(404, client.get("/other").status());
        assertEquals("GET /x HTTP/1.1|", client.get("/api/x").body());
    }

    @Test
    void shipped_filters_work() throws IOException {
        RawClient client = client(gateway("""
                [[filter]]
                type = "headers"
                request-set = { X-In = "1" }
                request-remove = ["X-Gone"]
                response-set = { X-Out = "2" }
                [[filter]]
                type = "redirect"
                pattern = "^/old/(.*)"
                replacement = "/new/$1"
                status = 301
                [[filter]]
                type = "rewrite"
                pattern = "^/from/"
                replacement = "/to/"
                [[filter]]
                type = "rewrite"
                pattern = "^/cut"
                [[filter]]
                type = "rewrite"
                pattern = "^/item/(.*)"
                replacement = "/item?id=$1"
                [[filter]]
                type = "redirect"
                pattern = "^/gone/(.*)"
                replacement = "/search?q=$1"
                [[filter]]
                type = "redirect"
                pattern = "^/part/(.*)"
                replacement = "/new?a#$1"
                [[filter]]
                type = "static-response"
                prefix = "/teapot"
                status = 404
                body = "no tea"
                [[filter]]
                type = "debug"
                """));
        client.send("GET /a HTTP/1.1\r\nHost: a\r\nX-Gone: x\r\n\r\n");
        RawClient.Answer plain = client.read();
        assertEquals("2", plain.header("X-Out"));
        assertTrue(plain.header("X-Wirespeed-Debug").contains("route=all"), plain.head());
        assertEquals("1", origin.seen.get(0).header("X-In"));
        assertNull(origin.seen.get(0).header("X-Gone"));
        assertEquals("/new/x?y", client.get("/old/x?y").header("Location"));
        assertEquals("GET /to/x HTTP/1.1|", client.get("/from/x").body());
        assertEquals("GET / HTTP/1.1|", client.get("/cut").body());
        assertEquals("GET /x?y HTTP/1.1|", client.get("/cutx?y").body());
        assertEquals("GET /item?id=7 HTTP/1.1|", client.get("/item/7").body());
        assertEquals("GET /item?id=7&x=/../y HTTP/1.1|", client.get("/item/7?x=/../y").body());
        assertEquals("/search?q=a&x", client.get("/gone/a?x").header("Location"));
        assertEquals("/new?a&x#b", client.get("/part/b?x").header("Location"));
        assertEquals("GET /to/x;v=1/y;w HTTP/1.1|", client.get("/from;u/x;v=1/y;w").body());
        assertEquals("/new/x;v=1", client.get("/old/x;v=1").header("Location"));
        RawClient.Answer teapot = client.get("/teapot");
        assertEquals("no tea", teapot.body());
        assertEquals(404, teapot.status());
    }

    @Test
    void a_rule_for_a_host_is_not_passed_by_another_spelling_of_it() throws IOException {
        RawClient client = client(gateway("[[filter]]\ntype = \"static-response\"\n"
                + "host = \"admin.test\"\nstatus = 403\nbody = \"no\"\n"));
        for (String host : List.of("admin.test", "ADMIN.test", "admin.test.", "admin.test.:80")) {
            client.send("GET /x HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
            assertEquals(403, client.read().status(), host);
        }
        client.send("GET /x HTTP/1.1\r\nHost: shop.test.\r\n\r\n");
        assertEquals(200, client.read().status());
    }

    private static final String FORGED = "GET /f HTTP/1.1\r\nHost: a\r\n"
            + "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 10.9.9.9, 127.0.0.7\r\n"
            + "X-Forwarded-Port: 1\r\nx-forwarded-prefix: /p\r\nX-Real-IP: 6.6.6.6\r\n"
            + "Forwarded: for=6.6.6.6\r\nX-Original-URL: /admin\r\n\r\n";

    @Test
    void fields_of_proxies_are_dropped_when_a_client_sends_them() throws IOException {
        RawClient client = client(gateway("[server]\ntrusted-proxies = [\"10.0.0.0/8\"]\n"));
        client.send(FORGED);
        assertEquals(200, client.read().status());
        RecordingOrigin.Seen seen = origin.seen.get(0);
        assertEquals("127.0.0.1", seen.header("X-Forwarded-For"));
        for (String name : new String[] {"X-Forwarded-Port", "X-Forwarded-Prefix", "X-Real-IP",
                "Forwarded", "X-Original-URL"}) {
            assertNull(seen.header(name), name);
        }
        assertFalse(seen.head().contains("6.6.6.6"), seen.head());
    }

    @Test
    void a_trusted_proxy_names_the_client_and_all_of_its_lines_are_kept() throws IOException {
        RawClient client = client(gateway("[server]\n"
                + "trusted-proxies = [\"127.0.0.0/8\", \"2001:db8::/32\"]\n"
                + "[[filter]]\ntype = \"rate-limit\"\nrate = 1\nburst = 1\nkey = \"client\"\n"));
        client.send(FORGED);
        assertEquals(200, client.read().status());
        RecordingOrigin.Seen seen = origin.seen.get(0);
        assertEquals("6.6.6.6, 10.9.9.9, 127.0.0.7, 127.0.0.1", seen.header("X-Forwarded-For"));
        assertEquals("for=6.6.6.6, for=127.0.0.1", seen.header("Forwarded"));
        assertEquals("1", seen.header("X-Forwarded-Port"));
        assertEquals("6.6.6.6", seen.header("X-Real-IP"));
        // The client is 10.9.9.9, and another one has a rate of its own.
        client.send(FORGED.repeat(AT_ONCE));
        assertEquals(429, refused(client).status());
        client.send(FORGED.replace("10.9.9.9", "10.9.9.8"));
        assertEquals(200, client.read().status());
    }

    /** A gateway with this Java filter in its folder. */
    private Carrier filtered(java.nio.file.Path folder, String phase, String action)
            throws IOException {
        java.nio.file.Files.writeString(folder.resolve("Test.java"),
                "import wirespeed.gateway.core.*;\npublic class Test implements Filter {\n"
                        + "public Phase phase() { return Phase." + phase + "; }\n"
                        + "public int order() { return 1; }\n"
                        + "public Step apply(Context c) { " + action + " return Step.NEXT; }\n}\n");
        return gateway("[filters]\nfolder = \"" + folder + "\"\n");
    }

    @Test
    void a_filter_that_says_204_leaves_nothing_of_the_body(
            @org.junit.jupiter.api.io.TempDir java.nio.file.Path folder) throws IOException {
        RawClient client = client(filtered(folder, "POST",
                "if (c.request().path().equals(\"/204\")) c.response().status(204);"));
        RawClient.Answer answer = client.get("/204");
        assertEquals(204, answer.status());
        assertNull(answer.header("Content-Length"));
        assertEquals("GET /next HTTP/1.1|", client.get("/next").body());
    }

    @Test
    void head_stays_head_when_a_filter_makes_it_get(
            @org.junit.jupiter.api.io.TempDir java.nio.file.Path folder) throws IOException {
        RawClient client = client(filtered(folder, "PRE", "c.request().method(\"GET\");"));
        client.send("HEAD /h HTTP/1.1\r\nHost: a\r\n\r\n");
        assertEquals(200, client.read(true).status());
        assertEquals("GET /next HTTP/1.1|", client.get("/next").body());
        assertEquals("GET /h HTTP/1.1", origin.seen.get(0).line());
    }

    @Test
    void a_200_in_place_of_a_204_or_of_an_answer_to_head_has_an_empty_body(
            @org.junit.jupiter.api.io.TempDir java.nio.file.Path folder) throws IOException {
        origin.handler = (seen, out, socket) -> {
            boolean isHead = seen.line().startsWith("HEAD");
            out.write((isHead ? "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"
                    : "HTTP/1.1 204 No Content\r\n\r\n").getBytes());
            return true;
        };
        RawClient client = client(filtered(folder, "POST", "c.response().status(200);"));
        RawClient.Answer answer = client.get("/204");
        assertEquals(200, answer.status());
        assertEquals("0", answer.header("Content-Length"));
        java.nio.file.Path other = java.nio.file.Files.createDirectory(folder.resolve("head"));
        client = client(filtered(other, "PRE", "c.request().method(\"HEAD\");"));
        answer = client.get("/head");
        assertEquals(200, answer.status());
        assertEquals("0", answer.header("Content-Length"));
    }

    @Test
    void what_a_filter_sets_is_checked(@org.junit.jupiter.api.io.TempDir java.nio.file.Path folder)
            throws IOException {
        Carrier gateway = filtered(folder, "PRE", "switch (c.request().path()) {"
                + " case \"/host\" -> c.request().host(\"a\\r\\nX-Evil: 1\");"
                + " case \"/scheme\" -> c.request().scheme(\"http\\r\\nX-Evil: 1\");"
                + " default -> c.request().clientAddress(\"1\\r\\nX-Evil: 1\"); }");
        for (String path : new String[] {"/host", "/scheme", "/client"}) {
            // A carrier may close a connection after a 500.
            assertEquals(500, client(gateway).get(path).status(), path);
        }
        assertEquals(java.util.List.of(), origin.seen);
    }

    @Test
    void a_long_head_of_an_origin_passes_and_a_longer_one_is_a_502() throws IOException {
        origin.handler = (seen, out, socket) -> {
            String fields = seen.line().contains("/many") ? "X-A: 1\r\n".repeat(150)
                    : "X-A: " + "a".repeat(seen.line().contains("/longer") ? 70_000 : 40_000) + "\r\n";
            RecordingOrigin.respond(out, 200, fields, "ok");
            return true;
        };
        Carrier gateway = gateway("");
        assertEquals("ok", client(gateway).get("/long").body());
        assertEquals("ok", client(gateway).get("/many").body());
        assertEquals(502, client(gateway).get("/longer").status());
    }

    /** A gateway to an origin that always answers with this status, and to the usual one. */
    private Carrier beside(int status, String options) throws IOException {
        RecordingOrigin bad = closedLater(new RecordingOrigin());
        bad.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, status, "", "bad");
            return true;
        };
        return gatewayTo("\"127.0.0.1:" + bad.port() + "\", \"127.0.0.1:" + origin.port() + "\"",
                "balance = \"round-robin\"\nretry-budget = 100\n" + options, "");
    }

    /** On a connection of its own: a server may close one after an answer of 500 or 503. */
    private RawClient.Answer alone(Carrier gateway, String method, String body)
            throws IOException {
        try (RawClient client = gateway.client()) {
            client.send(method + " /p HTTP/1.1\r\nHost: a\r\nContent-Length: " + body.length()
                    + "\r\n\r\n" + body);
            return client.read();
        }
    }

    @Test
    void a_status_can_be_tried_at_another_address() throws IOException {
        Carrier gateway = beside(503, "retry-status = [\"503\"]\n");
        int refused = 0;
        for (int i = 0; i < 20; i++) {
            assertEquals("GET /p HTTP/1.1|", alone(gateway, "GET", "").body());
            assertEquals("PUT /p HTTP/1.1|hello", alone(gateway, "PUT", "hello").body());
            refused += alone(gateway, "POST", "hello").status() == 503 ? 1 : 0;
        }
        assertTrue(refused > 0, "a POST was sent twice");
    }

    private int failed(Carrier gateway, int requests) throws IOException {
        int failed = 0;
        for (int i = 0; i < requests; i++) {
            int status = alone(gateway, "GET", "").status();
            assertTrue(status == 200 || status == 500, "status " + status);
            failed += status == 500 ? 1 : 0;
        }
        return failed;
    }

    @Test
    void an_address_that_answers_slowly_can_be_ejected() throws IOException {
        RecordingOrigin slow = closedLater(new RecordingOrigin());
        slow.handler = (seen, out, socket) -> {
            try {
                Thread.sleep(400);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            return RecordingOrigin.ordinary(seen, out, socket);
        };
        Carrier gateway = gatewayTo("\"127.0.0.1:" + slow.port() + "\", \"127.0.0.1:"
                + origin.port() + "\"", "balance = \"round-robin\"\neject-slower-than = \"200ms\"\n",
                "");
        for (int i = 0; i < 40; i++) {
            assertEquals(200, alone(gateway, "GET", "").status());
        }
        int asked = slow.seen.size();
        assertTrue(asked >= 5 && asked <= 10, asked + " of 40 requests went to the slow one");
    }

    @Test
    void an_address_that_answers_5xx_can_be_ejected() throws IOException {
        int failed = failed(beside(500, "eject-on-5xx = true\n"), 60);
        assertTrue(failed >= 5 && failed <= 10, failed + " of 60 requests got a 500");
        assertEquals(30, failed(beside(500, ""), 60));
    }

    @Test
    void no_spelling_of_a_path_passes_a_rule_about_it() throws IOException {
        Carrier gateway = gateway("[[filter]]\ntype = \"static-response\"\nprefix = \"/admin/users\""
                + "\nstatus = 403\nbody = \"no\"\n");
        for (String path : new String[] {"/admin/users", "//admin/users", "/admin//users",
                "/admin;x/users;y=1/", "/%61dmin/users", "/x/../admin/users", "/./admin/users/a"}) {
            assertEquals(403, client(gateway).get(path).status(), path);
        }
        for (String path : new String[] {"/x/..;/admin/users", "/;/admin/users", "/.;a/admin/users",
                "/x/%2e%2e;/admin/users", "/a%2fb", "/../admin/users"}) {
            assertEquals(400, client(gateway).get(path).status(), path);
        }
        assertEquals(java.util.List.of(), origin.seen);
        assertEquals("GET /cart;v=1/a/?q=//;x HTTP/1.1|",
                client(gateway).get("/cart;v=1//a/?q=//;x").body());
    }

    @Test
    void a_rate_limit_is_a_429_with_a_time_to_come_back() throws IOException {
        RawClient client = client(gateway("[[filter]]\ntype = \"rate-limit\"\nrate = 1\n"
                + "burst = 2\n"));
        assertEquals(200, client.get("/").status());
        assertEquals(200, client.get("/").status());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(AT_ONCE));
        RawClient.Answer refused = refused(client);
        assertEquals(429, refused.status());
        assertNotNull(refused.header("Retry-After"));
    }

    /** The first of {@link #AT_ONCE} answers with another status than 200, or the last one. */
    private static RawClient.Answer refused(RawClient client) {
        RawClient.Answer first = null;
        for (int i = 0; i < AT_ONCE; i++) {
            RawClient.Answer answer = client.read();
            first = first == null || first.status() == 200 ? answer : first;
        }
        return first;
    }

    @Test
    void a_body_over_the_limit_is_a_413() throws IOException {
        RawClient client = client(gateway("[limits]\nbody = \"1KiB\"\n"));
        client.sendTolerant("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n"
                + "x".repeat(2000), 5000);
        assertEquals(413, client.read().status());
        assertTrue(client.isClosed());
    }

    @Test
    void a_client_that_goes_on_sending_after_a_refusal_reads_it() throws Exception {
        Carrier gateway = gateway("[limits]\nbody = \"1KiB\"\n");
        String bad = "POST / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n";
        String large = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n";
        for (String head : List.of(bad, large)) {
            // The gateway reads on for two seconds.
            inTime(1500, () -> sendOn(gateway, head, head == bad ? 400 : 413));
        }
    }

    private void sendOn(Carrier gateway, String refused, int status) throws Exception {
        RawClient other = client(gateway);
        RawClient client = client(gateway);
        client.send(refused);
        // A reset would end this, and a client that cannot write may not read either.
        long end = System.nanoTime() + 600_000_000;
        for (int i = 0; i < 20 && System.nanoTime() < end; i++) {
            Thread.sleep(20);
            // The end of a connection must not wait for others to come.
            assertEquals(200, other.get("/other").status());
            client.send("b".repeat(4096));
        }
        assertEquals(status, client.read().status());
        assertTrue(client.isClosed());
    }

    @Test
    void hop_by_hop_fields_stay_between_two_hops() throws IOException {
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "Connection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n"
                    + "X-End: 2\r\n", "ok");
            return true;
        };
        RawClient client = client(gateway(""));
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Mine\r\nX-Mine: 1\r\n"
                + "TE: trailers\r\nUpgrade: h2c\r\n\r\n");
        RawClient.Answer answer = client.read();
        assertNull(answer.header("X-Hop"));
        assertNull(answer.header("Keep-Alive"));
        assertEquals("2", answer.header("X-End"));
        assertNull(origin.seen.get(0).header("X-Mine"));
        assertNull(origin.seen.get(0).header("TE"));
        assertNull(origin.seen.get(0).header("Upgrade"));
    }

    @Test
    void a_loop_is_seen() throws IOException {
        Carrier gateway = gateway("[server]\nvia-name = \"me-1\"\n");
        for (String via : List.of("1.1 me-1", "1.1 a, HTTP/2.0\tme-1 (edge)", "1.0 b\r\nVia: 1.1 me-1")) {
            RawClient client = client(gateway);
            client.send("GET / HTTP/1.1\r\nHost: a\r\nVia: " + via + "\r\n\r\n");
            assertEquals(508, client.read().status(), via);
        }
        assertTrue(origin.seen.isEmpty());
        // Other gateways, whose names begin or end as this one's.
        for (String via : List.of("1.1 me-12", "1.1 home-1, 1.0 me-1.example", "1.1 a (not me-1)")) {
            RawClient client = client(gateway);
            client.send("GET / HTTP/1.1\r\nHost: a\r\nVia: " + via + "\r\n\r\n");
            assertEquals(200, client.read().status(), via);
        }
    }
}
