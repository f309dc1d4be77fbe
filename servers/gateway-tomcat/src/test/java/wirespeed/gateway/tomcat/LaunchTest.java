// The command line: exit codes, options that are not applied, virtual threads, SIGTERM.
package wirespeed.gateway.tomcat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class LaunchTest {
    private static final Path OWN_JAVA = Path.of(System.getProperty("java.home"), "bin", "java");

    private static Process start(Path java, String... arguments) throws IOException {
        List<String> command = new ArrayList<>(List.of(java.toString(), "-cp",
                System.getProperty("java.class.path"), Main.class.getName()));
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command).start();
    }

    private static String errors(Process process) throws IOException {
        return new String(process.getErrorStream().readAllBytes());
    }

    /** A Java with virtual threads: this one, or one that is installed next to it. */
    private static Optional<Path> newerJava() throws IOException {
        if (Runtime.version().feature() >= 21) {
            return Optional.of(OWN_JAVA);
        }
        try (Stream<Path> beside = Files.list(
                Path.of(System.getProperty("java.home")).getParent())) {
            return beside.filter(home -> home.getFileName().toString().matches(".*(21|25).*"))
                    .map(home -> home.resolve("bin").resolve("java"))
                    .filter(Files::isExecutable).findFirst();
        }
    }

    @Test
    void virtual_threads_on_an_old_java_are_bad_input() throws Exception {
        assumeTrue(Runtime.version().feature() < 21, "this is Java 21 or newer");
        Process process = start(OWN_JAVA, "--origin", "127.0.0.1:1", "--threads", "virtual");
        String errors = errors(process);
        assertTrue(process.waitFor(60, TimeUnit.SECONDS));
        assertEquals(2, process.exitValue());
        assertEquals(1, errors.lines().count(), errors);
        assertTrue(errors.contains("needs Java 21"), errors);
    }

    @Test
    void a_port_in_use_is_one_line_and_exit_code_2() throws Exception {
        try (TestOrigin taken = new TestOrigin()) {
            Process process = start(OWN_JAVA, "--origin", "127.0.0.1:1", "--listen",
                    taken.address());
            String errors = errors(process);
            assertTrue(process.waitFor(60, TimeUnit.SECONDS));
            assertEquals(2, process.exitValue(), errors);
            assertEquals("gateway-tomcat: server.listen: " + taken.address()
                    + ": Address already in use\n", errors);
        }
    }

    @Test
    void it_serves_and_ends_with_0_when_asked_to() throws Exception {
        serves(OWN_JAVA, "--socket-buffer", "15000");
    }

    @Test
    void it_serves_on_virtual_threads() throws Exception {
        Optional<Path> java = newerJava();
        assumeTrue(java.isPresent(), "no Java 21 or newer next to this one");
        serves(java.get(), "--threads", "virtual");
    }

    private static void serves(Path java, String... more) throws Exception {
        try (TestOrigin origin = new TestOrigin()) {
            List<String> arguments = new ArrayList<>(List.of("--listen", "127.0.0.1:0",
                    "--origin", origin.address()));
            arguments.addAll(List.of(more));
            Process process = start(java, arguments.toArray(String[]::new));
            try {
                String line = new BufferedReader(new InputStreamReader(
                        process.getInputStream())).readLine();
                assertTrue(line != null, () -> {
                    try {
                        return errors(process);
                    } catch (IOException e) {
                        return e.toString();
                    }
                });
                int port = Integer.parseInt(line.replaceAll(".*127.0.0.1:(\\d+) \\(.*", "$1"));
                for (int i = 0; i < 3; i++) {
                    try (TestClient client = new TestClient(
                            new InetSocketAddress("127.0.0.1", port))) {
                        client.send("POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
                        assertEquals("POST /p HTTP/1.1|hi", client.read().body());
                        assertEquals("GET /g HTTP/1.1|", client.get("/g").body());
                    }
                }
                process.destroy();
                assertTrue(process.waitFor(60, TimeUnit.SECONDS));
                assertEquals(0, process.exitValue());
            } finally {
                process.destroyForcibly();
            }
        }
    }
}
