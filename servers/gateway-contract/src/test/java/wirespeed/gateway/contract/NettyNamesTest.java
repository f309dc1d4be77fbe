// An origin's name that leads elsewhere: connections follow it.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import wirespeed.gateway.netty.Main;

class NettyNamesTest {
    @Test
    void connections_follow_the_name_of_their_origin() throws Exception {
        try (RecordingOrigin one = new RecordingOrigin();
                RecordingOrigin two = new RecordingOrigin(new ServerSocket(one.port(), 50,
                        InetAddress.getByName("127.0.0.2")));
                NameServer names = new NameServer(1);
                Carrier gateway = new Carrier(Main::carrier, Map.of("server.threads", "1",
                        "server.dns", "127.0.0.1:" + names.port()), "[origins.o]\naddresses ="
                        + " [\"origin.test:" + one.port() + "\"]\n");
                RawClient client = gateway.client()) {
            assertEquals(200, client.get("/one").status());
            assertEquals(1, one.seen.size());
            names.last = 2;
            for (int i = 0; i < 600 && two.seen.isEmpty(); i++) {
                assertEquals(200, client.get("/moves").status());
                Thread.sleep(100);
            }
            int before = one.seen.size();
            assertTrue(before < 600, "requests never followed the name");
            assertEquals(200, client.get("/two").status());
            assertEquals(before, one.seen.size());
        }
    }

    @Test
    void a_name_that_moves_all_the_time_fails_no_request() throws Exception {
        try (RecordingOrigin one = new RecordingOrigin();
                RecordingOrigin two = new RecordingOrigin(new ServerSocket(one.port(), 50,
                        InetAddress.getByName("127.0.0.2")));
                NameServer names = new NameServer(1);
                Carrier gateway = new Carrier(Main::carrier, Map.of("server.threads", "1",
                        "server.dns", "127.0.0.1:" + names.port()), "[origins.o]\naddresses ="
                        + " [\"origin.test:" + one.port() + "\"]\nretries = 0\n");
                RawClient client = gateway.client()) {
            int moves = 0;
            for (int turn = 0; turn < 1200 && moves < 4; turn++) {
                int before = two.seen.size();
                assertEquals(200, client.get("/" + turn).status());
                int next = two.seen.size() > before ? 1 : 2; // away from where it led now
                moves += next == names.last ? 0 : 1;
                names.last = next;
                Thread.sleep(70);
            }
            assertTrue(!one.seen.isEmpty() && !two.seen.isEmpty() && moves == 4,
                    moves + " moves");
        }
    }

    @Test
    void a_place_of_a_name_that_refuses_connections_fails_no_request() throws Exception {
        try (RecordingOrigin origin = new RecordingOrigin(); NameServer names = new NameServer(1);
                Carrier gateway = new Carrier(Main::carrier, Map.of("server.threads", "1",
                        "server.dns", "127.0.0.1:" + names.port()), "[origins.o]\naddresses ="
                        + " [\"origin.test:" + origin.port() + "\"]\n");
                RawClient client = gateway.client()) {
            names.more = 3;
            origin.handler = (seen, out, socket) -> {
                RecordingOrigin.respond(out, 200, "Connection: close\r\n", "");
                return false;
            };
            for (int i = 0; i < 10; i++) {
                client.send("POST /" + i + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
                assertEquals(200, client.read().status(), "request " + i);
            }
            assertEquals(10, origin.connections.get());
        }
    }

    @Test
    void a_name_without_an_answer_holds_up_no_other_request() throws Exception {
        try (RecordingOrigin origin = new RecordingOrigin(); NameServer names = new NameServer(1);
                Carrier gateway = new Carrier(Main::carrier, Map.of("server.threads", "1",
                        "server.dns", "127.0.0.1:" + names.port()), "[origins.lost]\naddresses ="
                        + " [\"lost.test:80\"]\n[origins.o]\naddresses = [\"127.0.0.1:"
                        + origin.port() + "\"]\n[[route]]\nprefix = \"/lost\"\norigins ="
                        + " [\"lost\"]\n[[route]]\norigins = [\"o\"]\n");
                RawClient lost = gateway.client(); RawClient client = gateway.client()) {
            names.isSilent = true;
            // A machine that stands still holds the loop up, too: not each time.
            CarrierContract.inTime(1000, () -> {
                lost.send("GET /lost HTTP/1.1\r\nHost: a\r\n\r\n");
                long begin = System.nanoTime();
                assertEquals(200, client.get("/other").status());
                boolean isQuick = System.nanoTime() - begin < 1_500_000_000L;
                assertEquals(502, lost.read().status());
                assertTrue(isQuick, "the loop was held up");
            });
        }
    }

    @Test
    void the_last_answer_stands_in_for_servers_that_give_none() throws Exception {
        try (RecordingOrigin origin = new RecordingOrigin(); NameServer names = new NameServer(1);
                Carrier gateway = new Carrier(Main::carrier, Map.of("server.threads", "1",
                        "server.dns", "127.0.0.1:" + names.port()), "[origins.o]\naddresses ="
                        + " [\"origin.test:" + origin.port() + "\"]\n");
                RawClient client = gateway.client()) {
            origin.handler = (seen, out, socket) -> {
                RecordingOrigin.respond(out, 200, "Connection: close\r\n", "");
                return false;
            };
            assertEquals(200, client.get("/known").status());
            names.code = 2;
            Thread.sleep(1_100);
            for (int i = 0; i < 5; i++) {
                RawClient.Answer answer = client.get("/" + i);
                assertEquals(200, answer.status(), "request " + i + " " + answer.body());
            }
            // Asked meanwhile: a server that knows better is believed.
            names.code = 3;
            int status = 200;
            for (int i = 0; i < 1200 && status == 200; i++) {
                Thread.sleep(50);
                status = client.get("/" + i).status();
            }
            assertEquals(502, status);
            names.code = 0;
            for (int i = 0; i < 1200 && status == 502; i++) {
                Thread.sleep(50);
                status = client.get("/" + i).status();
            }
            assertEquals(200, status);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"nonsense", "127.0.0.1", "names.test:53", "127.0.0.1:99999"})
    void a_name_server_is_an_address_and_a_port(String server) {
        IllegalArgumentException refused = assertThrows(IllegalArgumentException.class,
                () -> new Carrier(Main::carrier, Map.of("server.dns", server), "[origins.o]\n"
                        + "addresses = [\"127.0.0.1:1\"]\n").close());
        assertTrue(refused.getMessage().contains(server), refused.getMessage());
    }
}
