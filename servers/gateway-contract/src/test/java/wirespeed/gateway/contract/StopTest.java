// What a process that is asked to end still owes: spans and log lines of its last exchanges.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class StopTest {
    @TempDir
    Path folder;

    private Process start(Class<?> main, String toml) throws Exception {
        Path config = Files.writeString(folder.resolve("gateway.toml"), toml);
        return new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(), Carrier.SHORT_LIVED, "-cp",
                System.getProperty("java.class.path"), main.getName(), "--listen",
                "127.0.0.1:0", "--set", "limits.loop-lag=1m", "--config", config.toString())
                .redirectError(folder.resolve("errors").toFile()).start();
    }

    private RawClient client(Process process) throws Exception {
        String line = new BufferedReader(new InputStreamReader(process.getInputStream()))
                .readLine();
        assertTrue(line != null, () -> "it did not start, see " + folder.resolve("errors"));
        return new RawClient(new InetSocketAddress("127.0.0.1",
                Integer.parseInt(line.replaceAll(".*127.0.0.1:(\\d+) \\(.*", "$1"))));
    }

    @ParameterizedTest
    @ValueSource(classes = {wirespeed.gateway.netty.Main.class,
        wirespeed.gateway.tomcat.Main.class})
    void spans_and_log_lines_of_the_last_seconds_are_written_at_sigterm(Class<?> main)
            throws Exception {
        BlockingQueue<String> spans = new LinkedBlockingQueue<>();
        try (RecordingOrigin origin = new RecordingOrigin();
                RecordingOrigin collector = new RecordingOrigin()) {
            collector.handler = (seen, out, socket) -> {
                spans.add(seen.body());
                RecordingOrigin.respond(out, 200, "Content-Type: application/x-protobuf\r\n", "");
                return true;
            };
            Path log = folder.resolve("access.log");
            Process process = start(main, "[origins.o]\naddresses = [\"127.0.0.1:"
                    + origin.port() + "\"]\n[tracing]\nendpoint = \"http://127.0.0.1:"
                    + collector.port() + "/v1/traces\"\n[[filter]]\ntype = \"access-log\"\n"
                    + "file = \"" + log + "\"\n");
            try (RawClient client = client(process)) {
                assertEquals("GET /last HTTP/1.1|", client.get("/last").body());
                process.destroy();
                assertTrue(process.waitFor(60, TimeUnit.SECONDS));
                assertEquals(0, process.exitValue());
                String batch = spans.poll(60, TimeUnit.SECONDS);
                assertTrue(batch != null && batch.contains("/last"), "spans: " + batch);
                assertTrue(Files.readString(log).contains("/last"));
            } finally {
                process.destroyForcibly();
            }
        }
    }
}
