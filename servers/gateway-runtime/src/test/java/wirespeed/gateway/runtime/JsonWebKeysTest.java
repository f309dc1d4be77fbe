// Key sets from issuers that do not answer as they should.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class JsonWebKeysTest {
    /** Sends a head and a part of its body, and then nothing until the other side ends. */
    private static void stall(ServerSocket issuer) {
        try (Socket socket = issuer.accept()) {
            socket.getOutputStream().write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"
                    .getBytes(StandardCharsets.US_ASCII));
            while (socket.getInputStream().read() >= 0) {
                continue;
            }
        } catch (IOException over) {
            // The other side has ended it.
        }
    }

    @Test
    void an_issuer_that_stalls_in_its_answer_holds_up_no_request_for_ever() throws Exception {
        try (ServerSocket issuer = new ServerSocket(0, 10, InetAddress.getLoopbackAddress())) {
            Thread thread = new Thread(() -> stall(issuer), "issuer");
            thread.setDaemon(true);
            thread.start();
            try (JsonWebKeys keys = new JsonWebKeys("http://127.0.0.1:" + issuer.getLocalPort() + "/",
                    Duration.ofMillis(500))) {
                assertEquals(List.of(), keys.fetch().get(60, TimeUnit.SECONDS));
                assertNull(keys.known());
            }
        }
    }

    @Test
    void an_address_that_cannot_be_asked_is_refused_at_the_start() {
        for (String bad : List.of("https://id example/keys", "http://", "https:///keys")) {
            assertThrows(IllegalArgumentException.class, () -> new JsonWebKeys(bad), bad);
        }
    }
}
