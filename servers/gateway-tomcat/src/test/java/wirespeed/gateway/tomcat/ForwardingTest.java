// Requests and responses pass through as they should, seen from both sides.
package wirespeed.gateway.tomcat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class ForwardingTest {
    private static TestOrigin origin;
    private static TestGateway gateway;

    @BeforeAll
    static void open() throws IOException {
        origin = new TestOrigin();
        gateway = TestGateway.before(origin, "");
    }

    @AfterAll
    static void close() throws IOException {
        gateway.close();
        origin.close();
    }

    @BeforeEach
    void reset() {
        origin.handler = TestOrigin::echo;
        origin.readsBodies = true;
        origin.seen.clear();
    }

    @Test
    void a_request_and_its_answer_pass() throws IOException {
        try (TestClient client = gateway.client()) {
            client.send("GET /a/b?c=d HTTP/1.1\r\nHost: a:1\r\nX-Forwarded-For: 6.6.6.6\r\n"
                    + "X-One: 1\r\nX-One: 2\r\nX-Latin: \u00e4\u0085\r\n\r\n");
            TestClient.Answer answer = client.read();
            assertEquals(200, answer.status());
            assertEquals("GET /a/b?c=d HTTP/1.1|", answer.body());
            TestOrigin.Seen seen = origin.seen.get(0);
            assertEquals("127.0.0.1", seen.header("X-Forwarded-For"));
            assertEquals("http", seen.header("X-Forwarded-Proto"));
            assertEquals("a:1", seen.header("X-Forwarded-Host"));
            assertEquals("a:1", seen.header("Host"));
            assertEquals("\u00e4\u0085", seen.header("X-Latin"));
            assertTrue(seen.header("Via").startsWith("1.1 wirespeed"), seen.head());
            assertTrue(seen.head().contains("1\r\n") && seen.head().contains("2\r\n"));
        }
    }

    @Test
    void connections_are_kept_on_both_sides() throws IOException {
        int before = origin.connections.get();
        try (TestClient client = gateway.client()) {
            for (int i = 0; i < 50; i++) {
                assertEquals("GET /" + i + " HTTP/1.1|", client.get("/" + i).body());
            }
        }
        assertTrue(origin.connections.get() - before <= 1);
    }

    @Test
    void pipelined_requests_are_answered_in_order() throws IOException {
        try (TestClient client = gateway.client()) {
            client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3)
                    + "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
            for (int i = 0; i < 3; i++) {
                assertEquals("GET /1 HTTP/1.1|", client.read().body());
            }
            assertEquals("GET /2 HTTP/1.1|", client.read().body());
        }
    }

    @Test
    void bodies_of_every_framing_reach_the_origin() throws IOException {
        try (TestClient client = gateway.client()) {
            client.send("POST /l HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
            assertEquals("POST /l HTTP/1.1|hello", client.read().body());
            assertEquals("5", origin.seen.get(0).header("Content-Length"));
            client.send("POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                    + "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: z\r\n\r\n");
            assertEquals("POST /c HTTP/1.1|abcde", client.read().body());
            assertEquals("chunked", origin.seen.get(1).header("Transfer-Encoding"));
            client.send("POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
            assertEquals("POST /e HTTP/1.1|", client.read().body());
            assertEquals("0", origin.seen.get(2).header("Content-Length"));
        }
    }

    @Test
    void a_large_body_passes_both_ways_unchanged() throws Exception {
        String body = "0123456789abcdef".repeat(200_000);
        try (TestClient client = gateway.client()) {
            Thread sender = new Thread(() -> client.sendTolerant("POST /big HTTP/1.1\r\nHost: a\r\n"
                    + "Content-Length: " + body.length() + "\r\n\r\n" + body));
            sender.start();
            TestClient.Answer answer = client.read();
            sender.join();
            assertTrue(answer.isComplete());
            assertEquals("POST /big HTTP/1.1|" + body, answer.body());
        }
    }

    @Test
    void chunked_responses_and_ones_that_end_with_the_connection_pass() throws IOException {
        origin.handler = (seen, socket, out) -> {
            boolean isChunked = seen.line().contains("/chunked");
            TestOrigin.write(out, isChunked ? "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
                    + "\r\n5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nTrail: x\r\n\r\n"
                    : "HTTP/1.1 200 OK\r\n\r\nhello");
            return isChunked;
        };
        try (TestClient client = gateway.client()) {
            assertEquals("hello world", client.get("/chunked").body());
            assertEquals("hello", client.get("/closed").body());
            TestClient.Answer again = client.get("/chunked");
            assertEquals("hello world", again.body());
            assertNull(again.header("Trail"));
        }
    }

    @Test
    void a_response_that_trickles_is_not_held_back() throws Exception {
        CountDownLatch got = new CountDownLatch(1);
        origin.handler = (seen, socket, out) -> {
            TestOrigin.write(out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                    + "Transfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n");
            assertTrue(got.await(60, TimeUnit.SECONDS));
            TestOrigin.write(out, "7\r\nsecond\n\r\n0\r\n\r\n");
            return true;
        };
        try (TestClient client = gateway.client()) {
            client.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
            String head = client.readHead();
            assertEquals("text/event-stream", TestClient.header(head, "Content-Type"));
            byte[] first = client.in.readNBytes(11);
            assertEquals("6\r\nfirst\n\r\n", new String(first));
            got.countDown();
            assertEquals("7\r\nsecond\n\r\n0\r\n\r\n", new String(client.in.readNBytes(17)));
        }
    }

    @Test
    void an_old_client_gets_no_chunks() throws IOException {
        origin.handler = (seen, socket, out) -> {
            TestOrigin.write(out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                    + "4000\r\n" + "x".repeat(0x4000) + "\r\n0\r\n\r\n");
            return true;
        };
        try (TestClient client = gateway.client()) {
            client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
            TestClient.Answer answer = client.read();
            assertNull(answer.header("Transfer-Encoding"));
            assertEquals(0x4000, answer.body().length());
            assertTrue(client.isClosed());
        }
    }

    @Test
    void head_has_a_length_and_no_body() throws IOException {
        origin.handler = (seen, socket, out) -> {
            TestOrigin.write(out, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
            return true;
        };
        try (TestClient client = gateway.client()) {
            client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
            assertEquals("1000", client.read(true).header("Content-Length"));
            client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
            assertEquals(200, client.read(true).status());
        }
    }

    @Test
    void responses_without_a_body_have_none() throws IOException {
        origin.handler = (seen, socket, out) -> {
            TestOrigin.write(out, seen.line().contains("304")
                    ? "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 7\r\n\r\n"
                    : "HTTP/1.1 204 No Content\r\nX: y\r\n\r\n");
            return true;
        };
        try (TestClient client = gateway.client()) {
            assertEquals(204, client.get("/204").status());
            TestClient.Answer unchanged = client.get("/304");
            assertEquals(304, unchanged.status());
            assertEquals("\"x\"", unchanged.header("ETag"));
            assertEquals("y", client.get("/204").header("X"));
        }
    }

    @Test
    void response_fields_are_unchanged() throws IOException {
        origin.handler = (seen, socket, out) -> {
            TestOrigin.respond(out, 299, "Content-Type: text/html; charset=utf-8; odd=\"a b\"\r\n"
                    + "Set-Cookie: a=1\r\nSet-Cookie: b=2; Path=/\r\n"
                    + "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n", "ok");
            return true;
        };
        try (TestClient client = gateway.client()) {
            TestClient.Answer answer = client.get("/");
            assertEquals(299, answer.status());
            assertEquals("text/html; charset=utf-8; odd=\"a b\"", answer.header("Content-Type"));
            assertEquals("Thu, 01 Jan 1970 00:00:00 GMT", answer.header("Date"));
            assertTrue(answer.head().contains("a=1") && answer.head().contains("b=2; Path=/"));
            assertNull(answer.header("Server"));
            assertNull(answer.header("Keep-Alive"));
        }
    }

    @Test
    void hop_by_hop_fields_stay_between_two_hops() throws IOException {
        origin.handler = (seen, socket, out) -> {
            TestOrigin.respond(out, 200, "Connection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n"
                    + "X-End: 2\r\n", "ok");
            return true;
        };
        try (TestClient client = gateway.client()) {
            client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Mine\r\nX-Mine: 1\r\n"
                    + "TE: trailers\r\nUpgrade: h2c\r\nProxy-Authorization: x\r\n\r\n");
            TestClient.Answer answer = client.read();
            assertNull(answer.header("X-Hop"));
            assertNull(answer.header("Keep-Alive"));
            assertEquals("2", answer.header("X-End"));
            for (String gone : new String[] {"X-Mine", "TE", "Upgrade", "Proxy-Authorization",
                "Connection"}) {
                assertNull(origin.seen.get(0).header(gone), gone);
            }
        }
    }

    @Test
    void interim_responses_are_not_final_ones() throws IOException {
        origin.handler = (seen, socket, out) -> {
            TestOrigin.write(out, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
                    + "HTTP/1.1 100 Continue\r\n\r\n");
            TestOrigin.respond(out, 200, "", "final");
            return true;
        };
        try (TestClient client = gateway.client()) {
            assertEquals("final", client.get("/").body());
            assertEquals("final", client.get("/").body());
        }
    }

    @Test
    void a_client_that_asks_gets_100_continue() throws IOException {
        try (TestClient client = gateway.client()) {
            client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
                    + "Expect: 100-continue\r\n\r\n");
            assertEquals(100, client.read().status());
            client.send("ok");
            assertEquals("POST /x HTTP/1.1|ok", client.read().body());
            assertNull(origin.seen.get(0).header("Expect"));
        }
    }

    @Test
    void connection_close_is_obeyed_and_announced() throws IOException {
        try (TestClient client = gateway.client()) {
            client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            TestClient.Answer answer = client.read();
            assertEquals("close", answer.header("Connection"));
            assertTrue(client.isClosed());
        }
        try (TestClient client = gateway.client()) {
            client.send("GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
            assertEquals("keep-alive", client.read().header("Connection"));
            client.send("GET /2 HTTP/1.0\r\nHost: a\r\n\r\n");
            assertEquals("GET /2 HTTP/1.1|", client.read().body());
        }
    }

    @Test
    void paths_are_normalised_once_for_rules_and_origin() throws IOException {
        try (TestClient client = gateway.client()) {
            assertEquals("GET /b;v=1/%C3%A4 HTTP/1.1|", client.get("/a/../b;v=1/%c3%a4").body());
            assertEquals("GET /?q={|}&r=/../x HTTP/1.1|", client.get("/?q={|}&r=/../x").body());
            assertEquals(400, client.get("/..").status());
        }
    }

    @Test
    void counters_add_up() throws IOException {
        try (TestClient client = gateway.client()) {
            long before = ended();
            client.get("/");
            client.get("/");
            assertTrue(client.get("/").isComplete());
            assertTrue(ended() - before >= 2);
            assertNotNull(gateway.runtime.gateway().pools().get(0).describe());
        }
    }

    private static long ended() {
        return gateway.runtime.gateway().meters().get(0).get(
                wirespeed.gateway.core.Meters.Count.REQUESTS_ENDED);
    }
}
