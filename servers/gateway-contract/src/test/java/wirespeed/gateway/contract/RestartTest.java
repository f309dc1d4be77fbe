// Changes made through the admin port are still there after the process was restarted.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class RestartTest {
    private static final Pattern SAID = Pattern.compile(
            "listens on 127\\.0\\.0\\.1:(\\d+).*admin on 127\\.0\\.0\\.1:(\\d+)");
    @TempDir
    Path folder;
    private final HttpClient http = HttpClient.newHttpClient();
    private Process process;
    private InetSocketAddress address;
    private int adminPort;

    @AfterEach
    void end() {
        if (process != null) {
            process.destroyForcibly();
        }
    }

    private String config(RecordingOrigin origin, String mark) {
        return "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n"
                + "[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "*3\"]\n"
                + "[[filter]]\ntype = \"headers\"\nresponse-set = { X-Mark = \"" + mark
                + "\" }\n";
    }

    private void start(Class<?> main) throws Exception {
        Path errors = folder.resolve("errors");
        process = new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(), Carrier.SHORT_LIVED, "-cp",
                System.getProperty("java.class.path"), main.getName(), "--set",
                "limits.loop-lag=1m", "--config",
                folder.resolve("gateway.toml").toString())
                .redirectError(errors.toFile()).start();
        String line = new BufferedReader(process.inputReader()).readLine();
        assertNotNull(line, () -> "it did not start, see " + errors);
        Matcher said = SAID.matcher(line);
        assertTrue(said.find(), line);
        address = new InetSocketAddress("127.0.0.1", Integer.parseInt(said.group(1)));
        adminPort = Integer.parseInt(said.group(2));
    }

    private HttpResponse<String> admin(String method, String path, String tag, String body)
            throws Exception {
        HttpRequest.Builder request = HttpRequest.newBuilder(
                URI.create("http://127.0.0.1:" + adminPort + path));
        if (tag != null) {
            request.header("If-Match", tag);
        }
        return http.send(request.method(method, HttpRequest.BodyPublishers.ofString(body)).build(),
                HttpResponse.BodyHandlers.ofString());
    }

    private String tagOf(String path) throws Exception {
        return admin("GET", path, null, "").headers().firstValue("ETag").orElseThrow();
    }

    @ParameterizedTest
    @ValueSource(classes = {wirespeed.gateway.netty.Main.class,
        wirespeed.gateway.tomcat.Main.class})
    void changes_by_the_admin_port_outlive_a_kill(Class<?> main) throws Exception {
        try (RecordingOrigin origin = new RecordingOrigin()) {
            Files.writeString(folder.resolve("gateway.toml"), config(origin, "old"));
            start(main);
            HttpResponse<String> put = admin("PUT", "/config", tagOf("/config"),
                    config(origin, "new"));
            assertEquals(200, put.statusCode(), put.body());
            HttpResponse<String> patch = admin("PATCH", "/origins/o/addresses/127.0.0.1:"
                    + origin.port(), tagOf("/origins"), "state=drain weight=7");
            assertEquals(200, patch.statusCode(), patch.body());
            String addresses = admin("GET", "/origins", null, "").body();
            String tag = tagOf("/origins");
            process.destroyForcibly();
            assertTrue(process.waitFor(60, TimeUnit.SECONDS));

            start(main);
            assertEquals(config(origin, "new"), admin("GET", "/config", null, "").body());
            assertEquals(tag, tagOf("/origins"), () -> addresses);
            try (RawClient client = new RawClient(address)) {
                assertEquals(503, client.get("/").status(), "drained: takes nothing new");
            }
            HttpResponse<String> back = admin("POST", "/config/rollback/1", tagOf("/config"), "");
            assertEquals(200, back.statusCode(), back.body());
            assertEquals(200, admin("PATCH", "/origins/o/addresses/127.0.0.1:" + origin.port(),
                    null, "state=up").statusCode());
            try (RawClient client = new RawClient(address)) {
                RawClient.Answer answer = client.get("/");
                assertEquals(200, answer.status());
                assertEquals("old", answer.header("X-Mark"));
            }
        }
    }
}
