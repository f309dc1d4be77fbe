// The requirements that must be met before a carrier listens.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Address.Administration;

class LauncherTest {
    @TempDir
    private Path folder;

    @Test
    void a_drained_address_is_drained_before_the_first_request() throws Exception {
        Path config = Files.writeString(folder.resolve("gw.toml"),
                "[origins.o]\naddresses = [\"a:1\", \"b:1\"]\n");
        Files.writeString(folder.resolve("gw.toml.state"), "a:1 drain 1 1 o\n");
        List<Administration> seen = new ArrayList<>();
        Launcher.run("test", new String[] {"--config", config.toString(), "--admin",
            "127.0.0.1:0"}, Map.of(), gateway -> new OnlyStarted(() -> gateway.snapshot().origins().get("o")
                    .addresses().forEach(address -> seen.add(address.administration()))));
        assertEquals(List.of(Administration.DRAIN, Administration.UP), seen);
    }

    @Test
    void an_admin_port_in_use_ends_the_process_before_it_listens() throws Exception {
        try (ServerSocket taken = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            List<String> started = new ArrayList<>();
            int code = Launcher.run("test", new String[] {"--origin", "127.0.0.1:1", "--admin",
                "127.0.0.1:" + taken.getLocalPort()}, Map.of(),
                    gateway -> new OnlyStarted(() -> started.add("listens")));
            assertEquals("2 []", code + " " + started);
        }
    }

    /** Exit code and what was printed, of a run that starts nothing. */
    private static String run(String... arguments) {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        try (PrintStream both = new PrintStream(printed, true, StandardCharsets.UTF_8)) {
            System.setOut(both);
            System.setErr(both);
            int code = Launcher.run("test", arguments, Map.of(), gateway -> {
                throw new IllegalStateException("a carrier was made");
            });
            return code + " " + printed.toString(StandardCharsets.UTF_8);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
    }

    @Test
    void a_configuration_is_checked_without_a_start() throws Exception {
        Path log = folder.resolve("access.log");
        Path config = Files.writeString(folder.resolve("gw.toml"), "[origins.o]\naddresses ="
                + " [\"a:1\"]\n[[filter]]\ntype = \"access-log\"\nfile = \"" + log + "\"\n");
        assertEquals("0 " + config + " is valid: origins 1, routes 0, filters 1\n",
                run("--check", config.toString()));
        assertFalse(Files.exists(log));
        Files.writeString(config, "[origins.o]\naddresses = [\"a\"]\n[tls]\nkey = \"k\"\n"
                + "[[filter]]\ntype = \"access-log\"\nfile = \"" + folder + "/none/a.log\"\n");
        String refused = run("--check", config.toString());
        assertTrue(refused.startsWith("2 test: "), refused);
        assertTrue(refused.contains("gw.toml:1:1: origins.o: ") && refused.contains("tls.key")
                && refused.contains("none/a.log"), refused);
    }

    @Test
    void the_version_is_printed() {
        String version = run("--version");
        assertTrue(version.startsWith("0 test ") && version.contains("(Java "), version);
    }

    /** A carrier whose start is looked at, and goes no further. */
    private record OnlyStarted(Runnable look) implements Launcher.Carrier {
        @Override
        public List<InetSocketAddress> start() {
            look.run();
            throw new IllegalStateException("started");
        }

        @Override
        public int stop(long drainMillis) {
            return 0;
        }

        @Override
        public String describe() {
            return "";
        }
    }
}
