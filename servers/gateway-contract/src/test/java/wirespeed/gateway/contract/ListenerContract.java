// Several listeners of one gateway: what each speaks, and that all open, serve and close together.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import javax.net.ssl.SSLSocket;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.runtime.ConfigReader;
import wirespeed.gateway.runtime.GatewayRuntime;
import wirespeed.gateway.runtime.Launcher;
import wirespeed.gateway.runtime.ServerCertificate;

@Timeout(240)
abstract class ListenerContract extends CarrierContract {
    private static final String PLAIN = "[[listener]]\nlisten = \"127.0.0.1:0\"\ntls = false\n";
    @TempDir
    Path folder;

    private String toOrigin() {
        return "[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\nresponse = \"2m\"\n"
                + "[timeouts]\nhead = \"2m\"\n";
    }

    private RawClient client(Carrier gateway, int listener) throws IOException {
        return closedLater(new RawClient(gateway.addresses.get(listener)));
    }

    private static String encrypted(Certificate certificate, InetSocketAddress address) throws Exception {
        try (SSLSocket client = (SSLSocket) certificate.context().getSocketFactory().createSocket(
                address.getAddress(), address.getPort())) {
            client.setSoTimeout(60_000);
            client.getOutputStream().write("GET /tls HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
                    .getBytes(StandardCharsets.US_ASCII));
            return new String(client.getInputStream().readAllBytes(), StandardCharsets.US_ASCII);
        }
    }

    @Test
    void a_plain_listener_works_next_to_encrypted_ones() throws Exception {
        Certificate certificate = new Certificate(folder);
        Carrier gateway = start(toOrigin() + "[tls]\ncertificate = \"" + certificate.certificate
                + "\"\nkey = \"" + certificate.key + "\"\n" + PLAIN
                + "[[listener]]\nlisten = \"127.0.0.1:0\"\n");
        assertEquals(3, gateway.addresses.size());
        for (int encrypted : new int[] {0, 2}) {
            String answer = encrypted(certificate, gateway.addresses.get(encrypted));
            assertTrue(answer.endsWith("GET /tls HTTP/1.1|"), answer);
        }
        RawClient plain = client(gateway, 1);
        assertEquals("GET /plain HTTP/1.1|", plain.get("/plain").body());
        assertEquals("GET /again HTTP/1.1|", plain.get("/again").body());
        for (int i = 0; i < 4; i++) {
            assertEquals(i < 2 ? "https" : "http", origin.seen.get(i).header("X-Forwarded-Proto"));
        }
        // Neither speaks what the other does.
        assertNotEquals(200, client(gateway, 0).get("/").status());
        assertThrows(IOException.class, () -> encrypted(certificate, gateway.addresses.get(1)));
        assertEquals(4, origin.seen.size());
    }

    @Test
    void a_plain_listener_sends_clients_to_the_encrypted_one() throws Exception {
        Certificate certificate = new Certificate(folder);
        Carrier gateway = start(toOrigin() + "[tls]\ncertificate = \"" + certificate.certificate
                + "\"\nkey = \"" + certificate.key + "\"\n" + PLAIN
                + "[[filter]]\ntype = \"redirect\"\nscheme = \"http\"\nstatus = 308\n"
                + "pattern = \"^/.*\"\nreplacement = \"https://shop.example$0\"\n"
                + "[server]\ntrusted-proxies = [\"127.0.0.1\"]\n");
        RawClient plain = client(gateway, 1);
        RawClient.Answer moved = plain.get("/cart?a=1");
        assertEquals(308, moved.status());
        assertEquals("https://shop.example/cart?a=1", moved.header("Location"));
        assertTrue(encrypted(certificate, gateway.address).endsWith("GET /tls HTTP/1.1|"));
        // A proxy in front took TLS off.
        plain.send("GET /behind HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\n\r\n");
        assertEquals("GET /behind HTTP/1.1|", plain.read().body());
        assertEquals(2, origin.seen.size());
    }

    @Test
    void all_listeners_open_or_none_does() throws Exception {
        // An address of its own: no other process takes a port there meanwhile.
        InetAddress own = InetAddress.getByName("127.0.0.77");
        try (ServerSocket taken = new ServerSocket(0, 1, own)) {
            int free;
            // While the other one is open: it could get this port again.
            try (ServerSocket probe = new ServerSocket(0, 1, own)) {
                free = probe.getLocalPort();
            }
            Map<String, Object> flags = new HashMap<>(options());
            flags.put("server.listen", "127.0.0.1:0");
            String id = "127.0.0.77:" + taken.getLocalPort();
            try (GatewayRuntime runtime = new GatewayRuntime(ConfigReader.read(toOrigin()
                    + "[[listener]]\nlisten = \"127.0.0.77:" + free + "\"\n[[listener]]\nlisten = \""
                    + id + "\"\n", "test.toml", Map.of(), flags))) {
                Launcher.Carrier carrier = factory().make(runtime.gateway());
                IllegalArgumentException refused = assertThrows(IllegalArgumentException.class,
                        carrier::start);
                assertEquals("listener 2: " + id + ": Address already in use", refused.getMessage());
                new ServerSocket(free, 1, own).close();
                assertEquals(0, runtime.gateway().meters().stream().mapToLong(
                        meters -> meters.get(Meters.Count.CONNECTIONS_ACCEPTED)).sum());
                carrier.stop(0);
            }
        }
    }

    @Test
    void a_certificate_of_no_use_is_not_blamed_on_the_address() throws Exception {
        Certificate certificate = new Certificate(folder);
        // The JDK reads this form, and TLS wants the other one.
        Files.write(certificate.certificate, ServerCertificate.certificates("c",
                certificate.certificate.toString()).get(0).getEncoded());
        Throwable refused = assertThrows(RuntimeException.class, () -> start(toOrigin()
                + "[tls]\ncertificate = \"" + certificate.certificate + "\"\nkey = \"" + certificate.key
                + "\"\n"));
        assertFalse(refused.getMessage().contains("server.listen"), refused.getMessage());
        assertTrue(refused.getMessage().contains(certificate.certificate.toString()), refused.getMessage());
    }

    @Test
    void a_reload_keeps_them_and_does_not_change_them() throws Exception {
        String toml = toOrigin() + "[admin]\nlisten = \"127.0.0.1:0\"\n" + PLAIN;
        Carrier gateway = start(toml);
        RawClient before = client(gateway, 1);
        assertEquals(200, before.get("/").status());
        assertEquals(200, put(gateway, toml + "[[filter]]\ntype = \"static-response\"\nstatus = 418\n")
                .status());
        assertEquals(418, before.get("/").status());
        assertEquals(418, client(gateway, 1).get("/").status());
        for (String other : new String[] {PLAIN + PLAIN, PLAIN.replace("false", "true"), ""}) {
            RawClient.Answer refused = put(gateway, toml.replace(PLAIN, other));
            assertEquals(409, refused.status(), refused.body());
            assertTrue(refused.body().contains("[[listener]] cannot change without a restart"),
                    refused.body());
        }
        assertEquals(418, client(gateway, 1).get("/").status());
    }

    private static RawClient.Answer put(Carrier gateway, String toml) throws IOException {
        try (RawClient client = new RawClient(gateway.runtime.adminAddress())) {
            client.send("GET /config HTTP/1.1\r\nHost: localhost\r\n\r\n");
            String tag = client.read().header("ETag");
            client.send("PUT /config HTTP/1.1\r\nHost: localhost\r\nIf-Match: " + tag
                    + "\r\nContent-Length: " + toml.length() + "\r\n\r\n" + toml);
            return client.read();
        }
    }

    @Test
    void a_stop_closes_all_and_waits_for_the_requests_of_each() throws Exception {
        CountDownLatch mayAnswer = new CountDownLatch(1);
        origin.handler = RecordingOrigin.after(mayAnswer);
        Carrier gateway = start(toOrigin() + PLAIN);
        RawClient waiting = client(gateway, 1);
        waiting.send("GET /last HTTP/1.1\r\nHost: a\r\n\r\n");
        while (origin.seen.isEmpty()) {
            Thread.sleep(5);
        }
        Thread stopping = new Thread(() -> gateway.carrier.stop(60_000));
        stopping.start();
        for (InetSocketAddress address : gateway.addresses) {
            awaitClosed(address);
        }
        mayAnswer.countDown();
        RawClient.Answer last = waiting.read();
        assertEquals("GET /last HTTP/1.1|", last.body());
        assertEquals("close", last.header("Connection"));
        stopping.join();
    }

    private static void awaitClosed(InetSocketAddress address) throws Exception {
        while (true) {
            try (RawClient late = new RawClient(address)) {
                Thread.sleep(10);
            } catch (ConnectException closed) {
                return;
            }
        }
    }
}
