// How a gateway on event loops that is asked to stop treats clients that have just connected.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.io.IOException;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import javax.net.ssl.SSLSocket;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.netty.Main;
import wirespeed.gateway.runtime.Launcher;

@Timeout(240)
class NettyStopTest extends CarrierContract {
    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("server.transport", "epoll", "server.threads", "1");
    }

    @TempDir
    Path folder;

    /** A gateway whose only loop is held up by its first request until {@link #letGo}. */
    private Carrier held() throws Exception {
        Files.writeString(folder.resolve("Hold.java"), """
                import java.nio.file.*;
                import wirespeed.gateway.core.*;
                public class Hold implements Filter {
                    public Phase phase() { return Phase.PRE; }
                    public int order() { return 1; }
                    public String name() { return "hold"; }
                    public Step apply(Context context) {
                        if (context.request().target().equals("/hold")) {
                            try {
                                Files.createFile(Path.of("FOLDER/held"));
                                while (!Files.exists(Path.of("FOLDER/go"))) {
                                    Thread.sleep(10);
                                }
                            } catch (Exception e) {
                                throw new IllegalStateException(e);
                            }
                        }
                        return Step.NEXT;
                    }
                }
                """.replace("FOLDER", folder.toString()));
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\n[filters]\nfolder = \"" + folder + "\"\n");
        client(gateway).send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
        while (!Files.exists(folder.resolve("held"))) {
            Thread.sleep(10);
        }
        return gateway;
    }

    private void letGo() throws Exception {
        Files.createFile(folder.resolve("go"));
    }

    @Test
    void a_client_in_the_queue_of_the_listener_gets_a_response() throws Exception {
        Carrier gateway = held();
        List<RawClient> waiting = new ArrayList<>();
        for (int i = 0; i < 40; i++) {
            waiting.add(client(gateway));
            waiting.get(i).send("GET /" + i + " HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        Thread stopping = new Thread(() -> gateway.carrier.stop(60_000));
        stopping.start();
        while (stopping.getState() != Thread.State.TIMED_WAITING) {
            // Until it waits for the loop; it would be blocked only for a moment before.
            Thread.sleep(10);
        }
        letGo();
        for (int i = 0; i < 40; i++) {
            RawClient.Answer answer = waiting.get(i).read();
            assertEquals("GET /" + i + " HTTP/1.1|", answer.body());
            assertEquals("close", answer.header("Connection"));
        }
        stopping.join(60_000);
        assertFalse(stopping.isAlive());
    }

    /** Connected; the handshake begins with the first byte that is written. */
    private SSLSocket tls(Certificate certificate, Carrier gateway) throws Exception {
        SSLSocket socket = closedLater((SSLSocket) certificate.context().getSocketFactory()
                .createSocket("127.0.0.1", gateway.address.getPort()));
        socket.setSoTimeout(20_000);
        return socket;
    }

    private Carrier encrypted(Certificate certificate) {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\n[tls]\ncertificate = \"" + certificate.certificate + "\"\nkey = \""
                + certificate.key + "\"\n");
    }

    /** All that is answered until the end. */
    private static String ask(SSLSocket socket, String request) throws Exception {
        socket.getOutputStream().write(request.getBytes());
        return new String(socket.getInputStream().readAllBytes());
    }

    @Test
    void a_client_in_its_handshake_gets_a_response(@TempDir Path keys) throws Exception {
        Certificate certificate = new Certificate(keys);
        Carrier gateway = encrypted(certificate);
        // What a first handshake loads and compiles is not to take the second that the other one has.
        ask(tls(certificate, gateway), "GET /w HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        gateway.close();
        // A client that has just connected has a second for the handshake.
        for (int turn = 0; turn < 20; turn++) {
            if (isAnsweredInTime(certificate)) {
                return;
            }
        }
        fail("of 20 handshakes none took less than a second");
    }

    /** False when the client was too late, which shows nothing. */
    private boolean isAnsweredInTime(Certificate certificate) throws Exception {
        Carrier gateway = encrypted(certificate);
        SSLSocket socket = tls(certificate, gateway);
        Thread.sleep(100);
        long begin = System.nanoTime();
        Thread stopping = new Thread(() -> gateway.carrier.stop(60_000));
        stopping.start();
        Thread.sleep(100);
        String answer;
        try {
            answer = ask(socket, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
        } catch (IOException ended) {
            answer = ended.toString();
        }
        long millis = (System.nanoTime() - begin) / 1_000_000;
        boolean isAnswered = answer.contains("GET /x HTTP/1.1|");
        assertTrue(isAnswered || millis > 900 && millis < 15_000, answer);
        stopping.join(60_000);
        assertFalse(stopping.isAlive());
        return isAnswered;
    }

    @Test
    void a_download_by_http_2_arrives_whole_though_its_client_goes_on_sending() throws Exception {
        // The gateway waits for two seconds for what its client still sends.
        inTime(2000, this::download);
    }

    private void download() throws Exception {
        int bytes = 600_000;
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "", "b".repeat(bytes));
            return true;
        };
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\n[server]\nh2c = true\n");
        Socket socket = closedLater(new Socket());
        socket.setReceiveBufferSize(16 * 1024);
        socket.connect(gateway.address);
        RawHttp2 client = new RawHttp2(socket);
        client.headers(1, true, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/");
        client.frame(8, 0, 1, new byte[] {0x3f, 0, 0, 0});
        // All of it is with the gateway's socket, and most of it not with the client.
        Thread.sleep(300);
        Thread stopping = new Thread(() -> gateway.carrier.stop(60_000));
        stopping.start();
        Thread.sleep(300);
        client.frame(6, 0, 0, new byte[8]);
        Thread.sleep(100);
        assertEquals(bytes, client.read(1).body().length());
        assertTrue(client.isClosed());
        client.close();
        stopping.join(60_000);
        assertFalse(stopping.isAlive());
    }

    @Test
    void requests_before_the_listener_closes_share_connections_to_an_origin_of_http_2()
            throws Exception {
        RawHttp2Origin other = closedLater(new RawHttp2Origin(connection -> {
            connection.frame(RawHttp2Origin.SETTINGS, 0, 0);
            while (true) {
                connection.answer(connection.await(RawHttp2Origin.HEADERS).stream(), "yes");
            }
        }));
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + other.port()
                + "\"]\nhttp2 = \"prior-knowledge\"\n[timeouts]\npool-wait = \"30s\"\n");
        // As in the time of server.drain-delay.
        gateway.runtime.gateway().drain();
        List<RawClient> clients = new ArrayList<>();
        for (int i = 0; i < 40; i++) {
            clients.add(client(gateway));
        }
        for (RawClient client : clients) {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        for (RawClient client : clients) {
            assertEquals("yes", client.read().body());
        }
        assertTrue(other.connections.get() < 10, other.connections + " connections");
    }
}
