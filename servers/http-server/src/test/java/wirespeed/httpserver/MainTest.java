/** The program as a process: exit codes, signals, one line of error. */
package wirespeed.httpserver;

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
    void sigterm_ends_it_with_exit_code_0() throws Exception {
        Process process = start("--port", "0", "--payload", "5");
        try (BufferedReader out = process.inputReader()) {
            int port = port(out.readLine());
            try (RawClient client = new RawClient(port)) {
                assertEquals(5, client.send(RawClient.get("/")).read().body().length);
                process.destroy();
                assertEquals(0, client.drain());
            }
            assertTrue(process.waitFor(60, TimeUnit.SECONDS));
            assertEquals(0, process.exitValue());
        } finally {
            process.destroyForcibly();
        }
    }

    @Test
    void a_port_in_use_ends_it_with_exit_code_1() throws Exception {
        try (Running server = Running.payload(Transport.NIO, 1)) {
            String line = failure(1, "--payload", "1", "--port", "" + server.server.port());
            assertTrue(line.contains("Address already in use"), line);
        }
    }

    @Test
    void a_mistake_ends_it_with_exit_code_2() throws Exception {
        assertEquals("http-server: --prt is not an option; did you mean --port?",
                failure(2, "--prt", "1"));
    }

    /** Netty's own switch makes a transport unavailable; the server must not use another one. */
    @Test
    void a_transport_that_is_not_available_ends_it_with_exit_code_2() throws Exception {
        String line = failure(2, List.of("-Dio.netty.transport.noNative=true"), "--payload", "1",
                "--port", "0", "--transport", "epoll");
        assertTrue(line.contains("--transport epoll is not available here: "), line);
        assertTrue(line.contains("noNative"), line);
    }

    @Test
    void netty_is_not_older_than_the_last_known_smuggling_fault() {
        String version = io.netty.util.Version.identify().get("netty-transport").artifactVersion();
        String[] parts = version.split("\\.");
        int number = Integer.parseInt(parts[0]) * 1_000_000 + Integer.parseInt(parts[1]) * 1000
                + Integer.parseInt(parts[2]);
        assertTrue(number >= 4_002_018, version);
    }

    private static String failure(int code, String... args) throws Exception {
        return failure(code, List.of(), args);
    }

    private static String failure(int code, List<String> flags, String... args) throws Exception {
        Process process = start(flags, args);
        try {
            String text = new String(process.getErrorStream().readAllBytes());
            assertTrue(process.waitFor(60, TimeUnit.SECONDS));
            assertEquals(code, process.exitValue(), text);
            assertEquals(1, text.lines().count(), text);
            return text.strip();
        } finally {
            process.destroyForcibly();
        }
    }

    private static int port(String line) {
        return Integer.parseInt(line.replaceFirst(".*127\\.0\\.0\\.1:(\\d+).*", "$1"));
    }

    private static Process start(String... args) throws Exception {
        return start(List.of(), args);
    }

    private static Process start(List<String> flags, String... args) throws Exception {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(flags);
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), Main.class.getName()));
        command.addAll(List.of(args));
        return new ProcessBuilder(command).start();
    }
}
