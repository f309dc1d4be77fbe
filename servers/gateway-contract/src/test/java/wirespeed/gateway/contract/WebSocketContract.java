// Switching protocols; a carrier that cannot do it does not join this contract.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import org.junit.jupiter.api.Test;

abstract class WebSocketContract implements CarrierChoice {
    private static final String ASK = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"
            + "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n";

    @Test
    void bytes_pass_both_ways_after_the_origins_101() throws IOException {
        try (RecordingOrigin origin = new RecordingOrigin();
                Carrier gateway = new Carrier(factory(), options(), "[origins.o]\naddresses ="
                        + " [\"127.0.0.1:" + origin.port() + "\"]\n");
                RawClient client = gateway.client()) {
            origin.handler = (seen, out, socket) -> {
                assertEquals("websocket", seen.header("Upgrade"));
                out.write("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhi"
                        .getBytes());
                for (int i = 0; i < 3; i++) {
                    out.write(socket.getInputStream().read() + 1);
                }
                return false;
            };
            client.send(ASK);
            RawClient.Answer answer = client.read();
            assertEquals(101, answer.status());
            assertEquals("websocket", answer.header("Upgrade"));
            assertEquals('h', client.readByte());
            assertEquals('i', client.readByte());
            client.send("a");
            assertEquals('b', client.readByte());
            client.send("bc");
            assertEquals('c', client.readByte());
            assertEquals('d', client.readByte());
            assertTrue(client.isClosed());
        }
    }

    @Test
    void a_101_that_nobody_asked_for_is_a_502() throws IOException {
        try (RecordingOrigin origin = new RecordingOrigin();
                Carrier gateway = new Carrier(factory(), options(), "[origins.o]\naddresses ="
                        + " [\"127.0.0.1:" + origin.port() + "\"]\n[[route]]\norigins = [\"o\"]\n"
                        + "upgrade = false\n");
                RawClient client = gateway.client()) {
            origin.handler = (seen, out, socket) -> {
                out.write("HTTP/1.1 101 X\r\nUpgrade: websocket\r\n\r\n".getBytes());
                return false;
            };
            client.send(ASK);
            assertEquals(502, client.read().status());
        }
    }
}
