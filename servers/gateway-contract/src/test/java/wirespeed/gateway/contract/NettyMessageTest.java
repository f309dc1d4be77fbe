// MessageContract on gateway-netty.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.netty.Main;
import wirespeed.gateway.runtime.Launcher;

class NettyMessageTest extends MessageContract {
    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("server.transport", "epoll", "server.threads", "2");
    }

    @Test
    void early_hints_reach_a_client_of_http_1_1_where_they_are_wanted() throws Exception {
        origin.handler = (seen, out, socket) -> {
            out.write(("HTTP/1.1 100 X\r\n\r\nHTTP/1.1 102 X\r\n\r\nHTTP/1.1 103 X\r\nLink: </a.css>\r\nConnection: X-Hop\r\nX-Hop: 1\r\n"
                    + "Content-Length: 9\r\n\r\n").getBytes(StandardCharsets.US_ASCII));
            return RecordingOrigin.ordinary(seen, out, socket);
        };
        RawClient client = client(start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\ninterim = true\n"));
        for (int i = 0; i < 3; i++) {
            client.send("GET /" + i + " HTTP/1.1\r\nHost: a\r\n\r\n");
            assertEquals(102, client.readOne(false).status());
            RawClient.Answer hints = client.readOne(false);
            assertEquals(103, hints.status());
            assertEquals("</a.css>", hints.header("Link"));
            assertNull(hints.header("X-Hop"));
            assertNull(hints.header("Content-Length"));
            assertEquals("GET /" + i + " HTTP/1.1|", client.readOne(false).body());
        }
    }
}
