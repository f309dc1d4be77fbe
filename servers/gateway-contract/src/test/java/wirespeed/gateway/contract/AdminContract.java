// The admin port: its secrets, its token and the files it may name, on every carrier.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.runtime.ConfigError;

abstract class AdminContract extends CarrierContract {
    @TempDir
    Path folder;

    private static RawClient.Answer ask(Carrier gateway, String request, String fields, String body)
            throws IOException {
        try (RawClient client = new RawClient(gateway.runtime.adminAddress())) {
            client.send(request + " HTTP/1.1\r\nHost: localhost\r\n" + fields + "Content-Length: "
                    + body.length() + "\r\n\r\n" + body);
            return client.read();
        }
    }

    @Test
    void secrets_are_hidden_and_stay_when_the_configuration_comes_back() throws Exception {
        String toml = "[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n"
                + "persistence = \"cookie\"\npersistence-key = \"k3y-of-cookies\"\n[admin]\n"
                + "listen = \"127.0.0.1:0\"\ntoken = 't0ken-of-admin'\n";
        Carrier gateway = start(toml);
        String token = "Authorization: Bearer t0ken-of-admin\r\n";
        assertEquals(401, ask(gateway, "GET /config", "", "").status());
        RawClient.Answer shown = ask(gateway, "GET /config", token, "");
        assertFalse(shown.body().contains("k3y-of") || shown.body().contains("t0ken-of"), shown.body());
        String changed = shown.body().replace("[admin]", "retries = 3\n[admin]");
        RawClient.Answer put = ask(gateway, "PUT /config", token + "If-Match: " + shown.header("ETag")
                + "\r\n", changed);
        assertEquals(200, put.status(), put.body());
        assertEquals(3, gateway.runtime.gateway().snapshot().origins().get("o").settings().retries());
        assertEquals(200, ask(gateway, "GET /routes", token, "").status());
        assertFalse(ask(gateway, "GET /config", token, "").body().contains("k3y-of"));
    }

    @Test
    void one_secret_of_several_options_is_hidden_in_all_of_them() throws Exception {
        String origins = "";
        for (String name : new String[] {"a", "b"}) {
            origins += "[origins." + name + "]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n"
                    + "persistence = \"cookie\"\npersistence-key = \"k3y-of-all\"\n"
                    + "[[route]]\nprefix = \"/" + name + "\"\norigins = [\"" + name + "\"]\n";
        }
        Carrier gateway = start(origins + "[admin]\nlisten = \"127.0.0.1:0\"\ntoken = 'k3y-of-all'\n");
        String token = "Authorization: Bearer k3y-of-all\r\n";
        RawClient.Answer shown = ask(gateway, "GET /config", token, "");
        assertEquals(200, shown.status(), shown.body());
        assertFalse(shown.body().contains("k3y-of"), shown.body());
        RawClient.Answer put = ask(gateway, "PUT /config", token + "If-Match: " + shown.header("ETag")
                + "\r\n", shown.body().replaceFirst("persistence = \"cookie\"", "retries = 3\n$0"));
        assertEquals(200, put.status(), put.body());
        assertEquals(200, ask(gateway, "GET /config", token, "").status());
        // Of two spellings one would stay.
        gateway = start(origins + "[admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"k3y-of-\\u0061ll\"\n");
        assertEquals(403, ask(gateway, "GET /config", token, "").status());
    }

    @Test
    void balancers_ask_without_a_token() throws Exception {
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n"
                + "[admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"secret\"\n");
        assertEquals(200, ask(gateway, "GET /ready", "", "").status());
        assertEquals(200, ask(gateway, "GET /health", "", "").status());
        RawClient.Answer refused = ask(gateway, "GET /metrics", "", "");
        assertEquals(401, refused.status());
        assertEquals("Bearer", refused.header("WWW-Authenticate"));
        assertEquals(401, ask(gateway, "POST /ready", "", "").status());
    }

    @Test
    void a_refused_method_gets_the_allowed_ones() throws Exception {
        Path socket = folder.resolve("admin.sock");
        Carrier open = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n");
        start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n[admin]\nsocket = \""
                + socket + "\"\n");
        String[][] allowed = {{"POST /config", "GET, HEAD, PUT"}, {"PUT /config/rollback/1", "POST"},
            {"POST /origins/o", "PATCH"}, {"POST /cache", "DELETE"}, {"POST /loggers/x", "PUT"},
            {"POST /metrics", "GET, HEAD"}, {"DELETE /ready", "GET, HEAD"}};
        for (String[] one : allowed) {
            RawClient.Answer answer = ask(open, one[0], "", "");
            assertEquals(405, answer.status(), one[0]);
            assertEquals(one[1], answer.header("Allow"), one[0]);
            String written = askSocket(socket, one[0] + " HTTP/1.1\r\nHost: a\r\n\r\n");
            assertTrue(written.startsWith("HTTP/1.1 405 ") && written.contains("\r\nAllow: " + one[1] + "\r\n"),
                    written);
        }
    }

    @Test
    void logs_stay_below_their_folder() throws Exception {
        Path logs = Files.createDirectory(folder.resolve("logs"));
        Files.createSymbolicLink(logs.resolve("out"), folder);
        String head = "[server]\nlog-folder = \"" + logs + "\"\n[origins.o]\naddresses = [\"127.0.0.1:"
                + origin.port() + "\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n[[filter]]\n"
                + "type = \"access-log\"\nfile = \"";
        Carrier gateway = start(head + logs.resolve("a.log") + "\"\n");
        for (String elsewhere : new String[] {folder + "/b.log", logs + "/../b.log", logs + "/out/b.log"}) {
            String tag = ask(gateway, "GET /config", "", "").header("ETag");
            RawClient.Answer put = ask(gateway, "PUT /config", "If-Match: " + tag + "\r\n",
                    head + elsewhere + "\"\n");
            assertEquals(422, put.status(), elsewhere);
            assertTrue(put.body().contains("log-folder"), put.body());
        }
        assertFalse(Files.exists(folder.resolve("b.log")));
    }

    private static String askSocket(Path socket, String request) throws IOException {
        try (SocketChannel channel = SocketChannel.open(UnixDomainSocketAddress.of(socket))) {
            channel.write(ByteBuffer.wrap(request.getBytes(StandardCharsets.ISO_8859_1)));
            return new String(Channels.newInputStream(channel).readAllBytes(),
                    StandardCharsets.ISO_8859_1);
        }
    }

    @Test
    void changes_are_made_over_a_socket_of_the_user_and_the_port_only_reads() throws Exception {
        Path socket = folder.resolve("admin.sock");
        String toml = "[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n[admin]\n"
                + "listen = \"127.0.0.1:0\"\nsocket = \"" + socket + "\"\n";
        Carrier gateway = start(toml);
        assertEquals("rw-------", PosixFilePermissions.toString(Files.getPosixFilePermissions(socket)));
        String shown = askSocket(socket, "GET /config HTTP/1.1\r\nHost: any\r\n\r\n");
        assertTrue(shown.startsWith("HTTP/1.1 200 OK\r\n") && shown.endsWith(toml), shown);
        String tag = shown.replaceAll("(?s).*ETag: (\"[^\"]*\").*", "$1");
        String changed = toml.replace("[admin]", "retries = 3\n[admin]");
        RawClient.Answer refused = ask(gateway, "PUT /config", "If-Match: " + tag + "\r\n", changed);
        assertEquals(403, refused.status());
        assertEquals("changes are made over admin.socket\n", refused.body());
        assertEquals(200, ask(gateway, "GET /routes", "", "").status());
        String put = askSocket(socket, "PUT /config HTTP/1.1\r\nHost: any\r\nIf-Match: " + tag
                + "\r\nContent-Length: " + changed.length() + "\r\n\r\n" + changed);
        assertTrue(put.startsWith("HTTP/1.1 200 OK\r\n"), put);
        assertEquals(3, gateway.runtime.gateway().snapshot().origins().get("o").settings().retries());
        for (String bad : new String[] {"GET /config\r\n\r\n", "GET /config HTTP/1.1\nHost: a\n\n",
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n"}) {
            assertTrue(askSocket(socket, bad).startsWith("HTTP/1.1 400 "), bad);
        }
        ConfigError taken = assertThrows(ConfigError.class, () -> start(toml));
        assertTrue(taken.getMessage().contains("another process listens on it"), taken.getMessage());
        gateway.close();
        assertFalse(Files.exists(socket), "the socket stays behind");
    }

    @Test
    void a_socket_that_a_process_left_behind_is_replaced() throws Exception {
        Path socket = folder.resolve("admin.sock");
        try (ServerSocketChannel left = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            left.bind(UnixDomainSocketAddress.of(socket));
        }
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\n[admin]\nsocket = \"" + socket + "\"\n");
        assertNull(gateway.runtime.adminAddress());
        assertTrue(askSocket(socket, "GET /ready HTTP/1.1\r\nHost: a\r\n\r\n").endsWith("ready\n"));
    }
}
