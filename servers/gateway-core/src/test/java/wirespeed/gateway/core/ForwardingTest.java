// The messages that the origin and the client receive.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class ForwardingTest {
    private static final Forwarding FORWARDING = new Forwarding("gw-1", Networks.NONE);
    private static final Origin ORIGIN = new Origin("o", List.of(new Address("10.0.0.1", 80)),
            Balancer.Method.ROUND_ROBIN, Origin.Settings.DEFAULT);

    private static String forwarded(String head) {
        Request request = HeadCheckTest.parse(head);
        FORWARDING.accept(request);
        request.clientAddress("1.2.3.4");
        FORWARDING.prepare(request);
        return written(request);
    }

    private static String written(Request request) {
        Context context = new Context(new Snapshot(1, new Chain(List.of()),
                new RouteTable(List.of()), Map.of(), Limits.DEFAULT, new Forwarding("gw-1", Networks.NONE)), request, 0);
        context.route(Route.toAll("r", ORIGIN));
        HeadSink sink = new HeadSink();
        Forwarding.writeRequest(context, ORIGIN.addresses().get(0), sink);
        return sink.toString();
    }

    @Test
    void adds_who_asked_and_drops_what_is_between_two_hops() {
        assertEquals("GET /x?y HTTP/1.1\r\nHost: a\r\nAccept: b\r\nX-Forwarded-For: 1.2.3.4\r\n"
                + "X-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 gw-1\r\n\r\n",
                forwarded("GET /x?y HTTP/1.1\r\nHost: a\r\nX-Hop: 1\r\nConnection: X-Hop, close\r\n"
                        + "Keep-Alive: 5\r\nAccept: b\r\nTE: trailers\r\nUpgrade: h2c\r\n"
                        + "Proxy-Authorization: x\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n"));
    }

    @Test
    void frames_a_body_once() {
        String chunked = forwarded("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n");
        assertTrue(chunked.endsWith("Transfer-Encoding: chunked\r\n\r\n"));
        String length = forwarded("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 007\r\n\r\n");
        assertTrue(length.endsWith("Content-Length: 7\r\n\r\n"));
        assertEquals(length.indexOf("Content-Length"), length.lastIndexOf("Content-Length"));
        Request replaced = HeadCheckTest.parse(
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        FORWARDING.accept(replaced);
        replaced.body(ByteBuffer.wrap(new byte[3]));
        assertTrue(written(replaced).endsWith("Content-Length: 3\r\n\r\n"));
    }

    @Test
    void a_length_that_a_filter_sets_frames_no_response() {
        for (Framing framing : List.of(Framing.CHUNKED, Framing.UNTIL_CLOSE, Framing.length(3))) {
            Context context = new Context(new Snapshot(1, new Chain(List.of()), new RouteTable(List.of()), Map.of(),
                    Limits.DEFAULT, FORWARDING), HeadCheckTest.parse("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 0);
            context.response(Response.of(200, ByteBuffer.allocate(0)));
            context.response().headers().set("Content-Length", "5");
            HeadSink sink = new HeadSink();
            Forwarding.writeResponse(context, framing, true, "now", sink);
            assertFalse(sink.toString().contains("Length: 5"), sink.toString());
        }
    }

    @Test
    void sees_a_loop_and_bad_connection_lists() {
        Refusal loop = assertThrows(Refusal.class, () -> forwarded(
                "GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 x, 1.1 gw-1\r\n\r\n"));
        assertEquals(508, loop.status());
        for (String name : List.of("Content-Length", "host", "Authorization")) {
            assertEquals(400, assertThrows(Refusal.class, () -> forwarded(
                    "GET / HTTP/1.1\r\nHost: a\r\nConnection: " + name + "\r\n\r\n")).status());
        }
    }

    @Test
    void switches_to_websocket_only() {
        Request socket = HeadCheckTest.parse("GET / HTTP/1.1\r\nHost: a\r\n"
                + "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n");
        FORWARDING.accept(socket);
        assertEquals("websocket", socket.upgrade());
        assertTrue(written(socket).contains("Connection: upgrade\r\nUpgrade: websocket\r\n"));
        Request other = HeadCheckTest.parse("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"
                + "Upgrade: h2c\r\n\r\n");
        FORWARDING.accept(other);
        assertNull(other.upgrade());
        assertFalse(written(other).contains("Upgrade"));
    }

    @Test
    void no_filter_can_split_a_message() {
        Headers headers = new Headers();
        assertThrows(IllegalArgumentException.class, () -> headers.add("X", "a\r\nB: c"));
        assertThrows(IllegalArgumentException.class, () -> headers.add("X\r\n", "a"));
        assertThrows(IllegalArgumentException.class, () -> headers.set("X", "a\0"));
        assertThrows(IllegalArgumentException.class, () -> headers.set("X", "\u010d\u010a"));
        Request request = HeadCheckTest.parse("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assertThrows(IllegalArgumentException.class, () -> request.path("/ HTTP/1.1", null));
        assertThrows(IllegalArgumentException.class, () -> request.path("", null));
        assertThrows(IllegalArgumentException.class, () -> request.path("@b/", null));
    }

    @Test
    void headers_keep_order_and_case() {
        Request request = HeadCheckTest.parse("GET / HTTP/1.1\r\nHost: a\r\nB: 1\r\nb:2\r\n\r\n");
        Headers headers = request.headers();
        assertEquals(List.of("1", "2"), headers.all("B"));
        headers.add("C", "3");
        assertEquals("Host: a\r\nB: 1\r\nb:2\r\nC: 3\r\n", headers.toString());
        headers.set("b", "4");
        assertEquals("Host: a\r\nC: 3\r\nb: 4\r\n", headers.toString());
        assertEquals(3, headers.size());
        assertEquals("Host: a\r\nC: 3\r\nb: 4\r\n", headers.copy().toString());
    }
}
