// Addresses that a start refuses, before it opens anything.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ListeningTest {
    @TempDir
    private Path folder;

    private static Config config(String first, String second, String more) {
        return ConfigReader.read("[origins.o]\naddresses = [\"h:1\"]\n[server]\nlisten = \"" + first
                + "\"\n[[listener]]\nlisten = \"" + second + "\"\n" + more, "x.toml", Map.of(), Map.of());
    }

    /** With reuse-port both would open, and the kernel would share connections out among them. */
    @Test
    void two_listeners_with_one_address_are_refused_however_it_is_written() {
        for (List<String> pair : List.of(List.of("127.0.0.1:8443", "127.0.0.1:8443"),
                List.of("127.0.0.1:8443", "localhost:8443"), List.of("[::1]:8443", "[0:0::1]:8443"),
                List.of("127.0.0.1:8443", "[::ffff:127.0.0.1]:8443"))) {
            ConfigError refused = assertThrows(ConfigError.class,
                    () -> Listening.of(config(pair.get(0), pair.get(1), "")), pair.toString());
            assertEquals(List.of("x.toml:5:1: listener 1: " + pair.get(1)
                    + " is the address of server.listen, too"), refused.mistakes());
        }
        for (List<String> pair : List.of(List.of("127.0.0.1:8443", "localhost:8444"),
                List.of("127.0.0.1:0", "localhost:0"), List.of("127.0.0.1:8443", "127.0.0.2:8443"),
                List.of("no-such-host.invalid:1", "no-other-host.invalid:1"))) {
            assertEquals(2, Listening.of(config(pair.get(0), pair.get(1), "")).size());
        }
    }

    @Test
    void a_refused_address_or_route_leaves_no_log_behind() throws Exception {
        Path log = folder.resolve("access.log");
        long before = logThreads();
        String logs = "[[filter]]\ntype = \"access-log\"\nfile = \"" + log + "\"\n";
        assertThrows(ConfigError.class,
                () -> new GatewayRuntime(config("127.0.0.1:8443", "127.0.0.1:8443", logs)));
        assertFalse(Files.exists(log));
        assertThrows(ConfigError.class, () -> new GatewayRuntime(config("127.0.0.1:8443",
                "127.0.0.1:8444", logs + "[[route]]\norigins = [\"none\"]\n")));
        long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(1);
        while (logThreads() > before) {
            assertTrue(System.nanoTime() < end, "a log is still open");
            Thread.sleep(5);
        }
    }

    private static long logThreads() {
        return Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().equals("access-log")).count();
    }
}
