// The admin port: its secrets, its token and the files it may name, on every carrier.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

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
    void balancers_ask_without_a_token() throws Exception {
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n"
                + "[admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"secret\"\n");
        assertEquals(200, ask(gateway, "GET /ready", "", "").status());
        assertEquals(200, ask(gateway, "GET /health", "", "").status());
        assertEquals(401, ask(gateway, "GET /metrics", "", "").status());
        assertEquals(401, ask(gateway, "POST /ready", "", "").status());
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
}
