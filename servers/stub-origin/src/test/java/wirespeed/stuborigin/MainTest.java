/** The program as a process: exit codes and output. */
package wirespeed.stuborigin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(120)
class MainTest {
    @Test
    void sigterm_ends_it_with_exit_code_0_and_its_totals() throws Exception {
        Process process = start("--port", "0", "--transport", "nio", "--latency", "5ms");
        try (BufferedReader out = process.inputReader()) {
            int port = Integer.parseInt(
                    out.readLine().replaceFirst(".*127\\.0\\.0\\.1:(\\d+).*", "$1"));
            try (RawClient client = new RawClient(port)) {
                client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").read();
            }
            // Process.destroy would close the stream that is read below.
            process.toHandle().destroy();
            String totals = out.readLine();
            assertTrue(totals.startsWith("stub-origin: answered 1 requests, latency mean "), totals);
            assertTrue(process.waitFor(60, TimeUnit.SECONDS));
            assertEquals(0, process.exitValue());
        } finally {
            process.destroyForcibly();
        }
    }

    @Test
    void a_mistake_ends_it_with_exit_code_2() throws Exception {
        Process process = start("--latency", "soon");
        String text = new String(process.getErrorStream().readAllBytes());
        assertTrue(process.waitFor(60, TimeUnit.SECONDS));
        assertEquals(2, process.exitValue());
        assertEquals(1, text.lines().count(), text);
    }

    private static Process start(String... args) throws Exception {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), Main.class.getName()));
        command.addAll(List.of(args));
        return new ProcessBuilder(command).start();
    }
}
