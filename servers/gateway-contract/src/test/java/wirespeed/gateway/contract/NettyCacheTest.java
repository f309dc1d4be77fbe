// CacheContract on gateway-netty.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.netty.Main;
import wirespeed.gateway.runtime.Launcher;

class NettyCacheTest extends CacheContract {
    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("server.transport", "epoll", "server.threads", "2");
    }

    /** ":status: 200", "etag" and "cache-control" with their places in HPACK's static table. */
    private static byte[] onceStale() {
        return ByteBuffer.allocate(17).put((byte) 0x88).put((byte) 0x62).put((byte) 3)
                .put("\"1\"".getBytes(StandardCharsets.US_ASCII)).put((byte) 0x58).put((byte) 9)
                .put("max-age=0".getBytes(StandardCharsets.US_ASCII)).array();
    }

    @Test
    void a_stored_response_keeps_its_date_over_http_2_too() throws Exception {
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "Cache-Control: max-age=2000000000\r\n"
                    + "Date: Mon, 05 Jan 2026 00:00:00 GMT\r\n", "x");
            return true;
        };
        Carrier gateway = start("[server]\nh2c = true\n[origins.o]\naddresses = [\"127.0.0.1:"
                + origin.port() + "\"]\n[cache]\nenabled = true\n");
        Socket socket = new Socket(gateway.address.getAddress(), gateway.address.getPort());
        RawHttp2 client = closedLater(new RawHttp2(socket));
        for (int stream = 1; stream <= 3; stream += 2) {
            client.headers(stream, true, ":method", "GET", ":scheme", "http", ":path", "/c",
                    ":authority", "a");
            assertEquals("Mon, 05 Jan 2026 00:00:00 GMT",
                    String.valueOf(client.read(stream).heads().get(0).get("date")));
        }
        assertEquals(1, origin.seen.size());
    }

    @Test
    void a_stream_that_has_ended_with_a_304_is_not_reset() throws Exception {
        RawHttp2Origin confirms = closedLater(new RawHttp2Origin(connection -> {
            connection.frame(RawHttp2Origin.SETTINGS, 0, 0);
            int first = connection.await(RawHttp2Origin.HEADERS).stream();
            connection.frame(RawHttp2Origin.HEADERS, RawHttp2Origin.END_HEADERS, first, onceStale());
            connection.frame(RawHttp2Origin.DATA, RawHttp2Origin.END_STREAM, first, (byte) 'x');
            while (true) {
                // ":status: 304"
                connection.frame(RawHttp2Origin.HEADERS,
                        RawHttp2Origin.END_HEADERS | RawHttp2Origin.END_STREAM,
                        connection.await(RawHttp2Origin.HEADERS).stream(), (byte) 0x8b);
            }
        }));
        RawClient client = client(start("[origins.o]\naddresses = [\"127.0.0.1:"
                + confirms.port() + "\"]\nhttp2 = \"prior-knowledge\"\n[cache]\n"
                + "enabled = true\n"));
        for (int i = 0; i < 5; i++) {
            assertEquals("x", client.get("/c").body());
        }
        assertEquals(List.of(), confirms.resets);
        assertEquals(1, confirms.connections.get());
    }
}
