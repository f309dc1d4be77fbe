// TLS on both sides, and HTTP/2 from clients, on gateway-netty.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.netty.Main;

/** The JDK's client has no time-out and would wait for ever. */
@Timeout(240)
class NettyTlsTest {
    @TempDir
    Path folder;
    private Certificate certificate;
    private RecordingOrigin origin;
    private Carrier gateway;

    @BeforeEach
    void open() throws Exception {
        certificate = new Certificate(folder);
        origin = new RecordingOrigin();
    }

    @AfterEach
    void close() throws Exception {
        if (gateway != null) {
            gateway.close();
        }
        origin.close();
    }

    private void start(String originOptions, String more) {
        // A machine that stands still for a while in the middle of a handshake fails no test.
        gateway = new Carrier(Main::carrier, Map.of("server.transport", "epoll",
                "server.threads", "2", "timeouts.head", "2m"), "[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\n" + originOptions + "\n" + more);
    }

    private String fromClients() {
        return "[tls]\ncertificate = \"" + certificate.certificate + "\"\nkey = \""
                + certificate.key + "\"\n";
    }

    private HttpClient client(HttpClient.Version version) throws Exception {
        return HttpClient.newBuilder().version(version).sslContext(certificate.context()).build();
    }

    private HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(URI.create("https://127.0.0.1:" + gateway.address.getPort()
                + path));
    }

    @Test
    void http_1_over_tls() throws Exception {
        start("", fromClients());
        HttpResponse<String> answer = client(HttpClient.Version.HTTP_1_1).send(
                request("/tls").build(), HttpResponse.BodyHandlers.ofString());
        assertEquals("GET /tls HTTP/1.1|", answer.body());
        assertEquals("https", origin.seen.get(0).header("X-Forwarded-Proto"));
    }

    @Test
    void http_2_becomes_http_1_with_the_same_rules() throws Exception {
        start("", fromClients());
        HttpClient client = client(HttpClient.Version.HTTP_2);
        HttpResponse<String> answer = client.send(request("/two?x").build(),
                HttpResponse.BodyHandlers.ofString());
        assertEquals(HttpClient.Version.HTTP_2, answer.version());
        assertEquals("GET /two?x HTTP/1.1|", answer.body());
        assertNull(origin.seen.get(0).header("Transfer-Encoding"));
        HttpResponse<String> posted = client.send(request("/p").POST(
                HttpRequest.BodyPublishers.ofString("hello")).build(),
                HttpResponse.BodyHandlers.ofString());
        assertEquals("POST /p HTTP/1.1|hello", posted.body());
        assertEquals(400, client.send(request("/a%2fb").build(),
                HttpResponse.BodyHandlers.ofString()).statusCode());
    }

    @Test
    void many_streams_of_one_connection_are_not_mixed_up() throws Exception {
        start("", fromClients());
        HttpClient client = client(HttpClient.Version.HTTP_2);
        // Without a connection yet, the JDK's client opens one for each of the requests at once.
        assertEquals("GET /first HTTP/1.1|", client.send(request("/first").build(),
                HttpResponse.BodyHandlers.ofString()).body());
        List<CompletableFuture<HttpResponse<String>>> answers = new ArrayList<>();
        String body = "b".repeat(70_000);
        for (int i = 0; i < 60; i++) {
            answers.add(client.sendAsync(request("/" + i).POST(
                    HttpRequest.BodyPublishers.ofString(i + body)).build(),
                    HttpResponse.BodyHandlers.ofString()));
        }
        for (int i = 0; i < 60; i++) {
            assertEquals("POST /" + i + " HTTP/1.1|" + i + body,
                    answers.get(i).get(200, TimeUnit.SECONDS).body());
        }
        assertEquals(1, gateway.runtime.gateway().meters().stream()
                .mapToLong(meters -> meters.get(Meters.Count.CONNECTIONS_ACCEPTED)).sum());
    }

    @Test
    void an_answer_that_ends_with_the_connection_and_is_cut_has_no_end_of_tls() throws Exception {
        start("", fromClients());
        origin.handler = (seen, out, socket) -> {
            out.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n".getBytes());
            out.flush();
            return false;
        };
        try (Socket client = certificate.context().getSocketFactory().createSocket("127.0.0.1",
                gateway.address.getPort())) {
            client.setSoTimeout(60_000);
            client.getOutputStream().write("GET / HTTP/1.0\r\n\r\n".getBytes());
            assertThrows(IOException.class, () -> client.getInputStream().readAllBytes());
        }
    }

    @Test
    void a_client_that_shakes_no_hands_is_let_go() throws Exception {
        gateway = new Carrier(Main::carrier, Map.of("server.threads", "1", "timeouts.head",
                "300ms"), "[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n"
                + fromClients());
        try (RawClient silent = gateway.client()) {
            assertTrue(silent.isClosed());
        }
    }

    @Test
    void origins_are_encrypted_and_verified() throws Exception {
        origin.close();
        origin = new RecordingOrigin(certificate.context().getServerSocketFactory()
                .createServerSocket(0, 50, InetAddress.getLoopbackAddress()));
        start("tls = true\nconnect = \"1m\"\n", "[tls]\norigin-ca = \"" + certificate.certificate + "\"\n");
        try (RawClient client = gateway.client()) {
            assertEquals("GET /in HTTP/1.1|", client.get("/in").body());
        }
        gateway.close();
        start("tls = true\n", "");
        try (RawClient client = gateway.client()) {
            assertEquals(502, client.get("/untrusted").status());
        }
    }
}
