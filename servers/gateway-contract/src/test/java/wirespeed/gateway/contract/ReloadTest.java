// A running process applies a changed configuration file, on SIGHUP and on its own.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ReloadTest {
    @TempDir
    Path folder;
    private Process process;
    private InetSocketAddress address;

    @AfterEach
    void end() {
        if (process != null) {
            process.destroyForcibly();
        }
    }

    private void start(Class<?> main) throws IOException {
        process = new ProcessBuilder(List.of(Path.of(System.getProperty("java.home"), "bin",
                "java").toString(), Carrier.SHORT_LIVED, "-cp", System.getProperty("java.class.path"), main.getName(),
                "--config", folder.resolve("gateway.toml").toString(), "--listen",
                "127.0.0.1:0", "--set", "limits.loop-lag=1m")).redirectError(folder.resolve("errors").toFile()).start();
        String line = new BufferedReader(process.inputReader()).readLine();
        assertNotNull(line, () -> read("errors"));
        address = new InetSocketAddress("127.0.0.1",
                Integer.parseInt(line.replaceAll(".* listens on [^:]*:(\\d+).*", "$1")));
    }

    private String read(String name) {
        try {
            return Files.readString(folder.resolve(name));
        } catch (IOException missing) {
            return "";
        }
    }

    private void configure(String watch, String body) throws IOException {
        Files.writeString(folder.resolve("gateway.toml"), "[server]\nconfig-watch = \"" + watch
                + "\"\n[origins.o]\naddresses = [\"127.0.0.1:1\"]\n[[filter]]\n"
                + "type = \"static-response\"\nstatus = 200\nbody = \"" + body + "\"\n"
                + "[[filter]]\ntype = \"access-log\"\nfile = \"" + folder.resolve("log") + "\"\n");
    }

    private void awaitBody(String body) throws Exception {
        String last = "";
        for (int i = 0; i < 600 && !last.equals(body); i++) {
            try (RawClient client = new RawClient(address)) {
                last = client.get("/x").body();
            }
            Thread.sleep(100);
        }
        assertEquals(body, last, read("errors"));
    }

    private void signal(String name) throws Exception {
        new ProcessBuilder("kill", "-" + name, String.valueOf(process.pid())).start().waitFor();
    }

    private void a_changed_file_is_applied(Class<?> main) throws Exception {
        configure("0ms", "one");
        start(main);
        awaitBody("one");
        Files.move(folder.resolve("log"), folder.resolve("log.1"));
        configure("0ms", "two");
        signal("HUP");
        awaitBody("two");
        assertTrue(Files.exists(folder.resolve("log")), "the log was not opened again");
        Files.writeString(folder.resolve("gateway.toml"), "[server]\nlsten = 1\n");
        signal("HUP");
        for (int i = 0; i < 600 && !read("errors").contains("did you mean listen?"); i++) {
            Thread.sleep(100);
        }
        assertTrue(read("errors").contains("did you mean listen?"), read("errors"));
        awaitBody("two");
        configure("100ms", "three");
        signal("HUP");
        awaitBody("three");
        configure("100ms", "four");
        awaitBody("four");
        signal("TERM");
        assertTrue(process.waitFor(60, TimeUnit.SECONDS));
        assertEquals(0, process.exitValue(), read("errors"));
    }

    private void the_log_is_opened_again(Class<?> main) throws Exception {
        configure("0ms", "one");
        start(main);
        awaitBody("one");
        String renamed = "log." + main.getPackageName();
        Files.move(folder.resolve("log"), folder.resolve(renamed));
        awaitBody("one");
        signal("HUP");
        for (int i = 0; i < 300 && !read("log").contains("/x"); i++) {
            awaitBody("one");
            Thread.sleep(100);
        }
        assertTrue(read("log").contains("/x"), read("errors"));
        long before = Files.size(folder.resolve(renamed));
        assertTrue(before > 0, "what came before belongs to the renamed file");
        awaitBody("one");
        signal("TERM");
        assertTrue(process.waitFor(60, TimeUnit.SECONDS));
        assertEquals(before, Files.size(folder.resolve(renamed)));
    }

    @Test
    void netty_opens_its_log_again_at_sighup_though_the_file_is_the_same() throws Exception {
        the_log_is_opened_again(wirespeed.gateway.netty.Main.class);
    }

    @Test
    void tomcat_opens_its_log_again_at_sighup_though_the_file_is_the_same() throws Exception {
        the_log_is_opened_again(wirespeed.gateway.tomcat.Main.class);
    }

    @Test
    void netty_applies_a_changed_file() throws Exception {
        a_changed_file_is_applied(wirespeed.gateway.netty.Main.class);
    }

    @Test
    void tomcat_applies_a_changed_file() throws Exception {
        a_changed_file_is_applied(wirespeed.gateway.tomcat.Main.class);
    }
}
