// Answers that wait for a client's window of HTTP/2, and when the wait ends.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.netty.Main;
import wirespeed.gateway.runtime.Launcher;

@Timeout(240)
class NettyHttp2WindowTest extends CarrierContract {
    private static final int WINDOW_UPDATE = 8;
    /** Less than the gateway takes of an answer before its client takes any. */
    private static final int PIECES = 60_000;
    private static final int STREAMS = 2;
    private static final String[] GET = {":method", "GET", ":scheme", "http", ":authority", "a",
        ":path", "/"};

    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("server.transport", "epoll", "server.threads", "1", "server.h2c", "true");
    }

    /** Nobody is cut for a time that has passed. */
    private Carrier patient() {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\nbody-idle = \"10m\"\n"
                + "[timeouts]\nsend = \"10m\"\nbody-idle = \"10m\"\nexchange = \"10m\"\nkeep-alive = \"10m\"\n");
    }

    private RawHttp2 http2(Carrier gateway) throws IOException {
        return closedLater(new RawHttp2(new Socket(gateway.address.getAddress(), gateway.address.getPort())));
    }

    private static long count(Carrier gateway, Meters.Count count) {
        return gateway.runtime.gateway().meters().stream().mapToLong(one -> one.get(count)).sum();
    }

    private static void await(String what, BooleanSupplier state) throws InterruptedException {
        long end = System.nanoTime() + 120_000_000_000L;
        while (!state.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, what);
            Thread.sleep(5);
        }
    }

    @Test
    void small_pieces_that_have_waited_for_a_window_arrive_whole() throws Exception {
        StringBuilder chunks = new StringBuilder();
        StringBuilder whole = new StringBuilder();
        for (int i = 0; i < PIECES; i++) {
            char piece = (char) ('a' + i % 26);
            chunks.append("1\r\n").append(piece).append("\r\n");
            whole.append(piece);
        }
        byte[] answer = ("HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + "0\r\n\r\n")
                .getBytes(StandardCharsets.ISO_8859_1);
        origin.handler = (seen, out, socket) -> {
            out.write(answer);
            return true;
        };
        Carrier gateway = patient();
        RawHttp2 client = http2(gateway);
        client.streamWindow(0);
        for (int i = 0; i < STREAMS; i++) {
            client.headers(2 * i + 1, true, GET);
        }
        await("the answers were not read", () ->
                count(gateway, Meters.Count.RESPONSE_BODY_BYTES) == (long) STREAMS * PIECES);
        for (int i = 0; i < STREAMS; i++) {
            client.frame(WINDOW_UPDATE, 0, 2 * i + 1, new byte[] {0, 1, 0, 0});
            assertEquals(whole.toString(), client.read(2 * i + 1).body());
        }
    }

    @Test
    void a_client_that_is_gone_does_not_keep_answers_which_wait_for_its_window() throws Exception {
        String large = "x".repeat(1 << 20);
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "", seen.line().contains("/large") ? large : "small");
            return true;
        };
        Carrier gateway = patient();
        RawHttp2 client = http2(gateway);
        client.streamWindow(0);
        client.headers(1, true, GET);
        client.headers(3, true, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/large");
        await("the answer was not read", () ->
                count(gateway, Meters.Count.RESPONSE_BODY_BYTES) > 64 * 1024);
        client.socket.shutdownOutput();
        await("its exchange stays", () -> gateway.runtime.gateway().inFlight().get() == 0);
        await("its connection stays", () -> count(gateway, Meters.Count.CONNECTIONS_OPEN) == 0);
        await("the connection to its origin stays", () ->
                count(gateway, Meters.Count.ORIGIN_CONNECTIONS_OPEN) <= 1);
    }

    @Test
    void an_upload_that_cannot_end_any_more_is_over() throws Exception {
        Carrier gateway = patient();
        RawHttp2 client = http2(gateway);
        client.headers(1, false, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/");
        client.data(1, false, "half");
        await("the upload never began", () -> count(gateway, Meters.Count.REQUEST_BODY_BYTES) == 4);
        client.socket.shutdownOutput();
        await("its exchange stays", () -> gateway.runtime.gateway().inFlight().get() == 0);
        await("its connection stays", () -> count(gateway, Meters.Count.CONNECTIONS_OPEN) == 0);
    }

    @Test
    void a_client_that_has_ended_its_half_gets_what_its_window_takes() throws Exception {
        CountDownLatch isAsked = new CountDownLatch(1);
        CountDownLatch mayAnswer = new CountDownLatch(1);
        Carrier gateway = patient();
        RawHttp2 client = http2(gateway);
        client.headers(1, true, GET);
        // With the gateway's settings, which the client could not acknowledge later.
        assertEquals(200, client.read(1).status());
        origin.handler = (seen, out, socket) -> {
            isAsked.countDown();
            RecordingOrigin.awaitQuietly(mayAnswer);
            RecordingOrigin.respond(out, 200, "", "y".repeat(60_000));
            return true;
        };
        client.headers(3, true, GET);
        isAsked.await();
        client.socket.shutdownOutput();
        mayAnswer.countDown();
        assertEquals("y".repeat(60_000), client.read(3).body());
        assertTrue(client.isClosed());
    }
}
