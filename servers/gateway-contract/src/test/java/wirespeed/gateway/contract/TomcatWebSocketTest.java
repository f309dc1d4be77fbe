// WebSocketContract on gateway-tomcat with platform threads.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.runtime.Launcher;
import wirespeed.gateway.tomcat.Main;

class TomcatWebSocketTest extends WebSocketContract {
    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("tomcat.threads", "platform");
    }

    @Test
    void switched_connections_are_bounded_and_leave_their_places() throws Exception {
        try (RecordingOrigin origin = new RecordingOrigin();
                Carrier gateway = new Carrier(factory(), options(), "[origins.o]\naddresses ="
                        + " [\"127.0.0.1:" + origin.port() + "\"]\n[tomcat]\nmax-tunnels = 1\n")) {
            origin.handler = (seen, out, socket) -> {
                if (seen.header("Upgrade") == null) {
                    return RecordingOrigin.ordinary(seen, out, socket);
                }
                out.write("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
                        .getBytes());
                return socket.getInputStream().read() == 'q';
            };
            RawClient first = gateway.client();
            first.send(ASK);
            assertEquals(101, first.read().status());
            try (RawClient second = gateway.client()) {
                second.send(ASK);
                assertEquals(503, second.read().status());
            }
            try (RawClient other = gateway.client()) {
                assertEquals(200, other.get("/").status());
            }
            first.close();
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            int status = 503;
            while (status != 101) {
                assertTrue(System.nanoTime() < end, "the place is still taken");
                try (RawClient next = gateway.client()) {
                    next.send(ASK);
                    status = next.read().status();
                }
            }
        }
    }
}
