// How a gateway on request threads that is asked to stop treats clients that have just connected.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import wirespeed.gateway.runtime.Launcher;
import wirespeed.gateway.tomcat.Main;

@Timeout(240)
class TomcatStopTest extends CarrierContract {
    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        // Clients that connect while one is connected wait in the listener's queue.
        return Map.of("tomcat.threads", "platform", "tomcat.max-connections", "1");
    }

    @Test
    void a_client_in_the_queue_of_the_listener_gets_a_response() throws Exception {
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n");
        assertEquals(200, client(gateway).get("/first").status());
        List<RawClient> waiting = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            waiting.add(client(gateway));
            waiting.get(i).send("GET /" + i + " HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        Thread.sleep(100);
        Thread stopping = new Thread(() -> gateway.carrier.stop(60_000));
        stopping.start();
        for (int i = 0; i < 20; i++) {
            RawClient.Answer answer = waiting.get(i).read();
            assertEquals("GET /" + i + " HTTP/1.1|", answer.body());
            assertEquals("close", answer.header("Connection"));
        }
        stopping.join(60_000);
        assertFalse(stopping.isAlive());
    }
}
