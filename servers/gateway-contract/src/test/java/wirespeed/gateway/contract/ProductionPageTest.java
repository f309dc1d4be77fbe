// docs/gateway-production.md, walked: check, start, health, metrics, change, roll-back, reload, stop.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(240)
class ProductionPageTest {
    private static final Path PAGE = Path.of("../../docs/gateway-production.md");
    private static final Pattern STARTED = Pattern.compile(
            ".*listens on 127.0.0.1:(\\d+) .*, admin on 127.0.0.1:(\\d+), admin on .*admin.sock");
    @TempDir
    Path folder;
    private Process process;

    @AfterEach
    void end() {
        if (process != null) {
            process.destroyForcibly();
        }
    }

    private static String block(String name) throws IOException {
        Matcher block = Pattern.compile("```\\w+ " + name + "\n(.*?)```", Pattern.DOTALL)
                .matcher(Files.readString(PAGE));
        assertTrue(block.find(), "no block " + name);
        return block.group(1);
    }

    /** The page's configuration, for this folder and these ports. */
    private String config(RecordingOrigin origin) throws IOException {
        return block("gateway.toml").replace("0.0.0.0:8080", "127.0.0.1:0")
                .replace("127.0.0.1:8081", "127.0.0.1:0").replace("/var/log/wirespeed-gateway", folder.toString())
                .replace("/run/wirespeed-gateway", folder.toString())
                .replace("shop.internal:9090", "127.0.0.1:" + origin.port())
                .replace("\"5s\"", "\"50ms\"");
    }

    private Process run(Class<?> main, String... arguments) throws IOException {
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(), Carrier.SHORT_LIVED, "-cp",
                System.getProperty("java.class.path"), main.getName()));
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.appendTo(
                folder.resolve("errors").toFile())).start();
    }

    private int check(Class<?> main, Path config) throws Exception {
        Process check = run(main, "--check", config.toString());
        assertTrue(check.waitFor(60, TimeUnit.SECONDS));
        return check.exitValue();
    }

    private String shell(String script) throws Exception {
        Process shell = new ProcessBuilder("bash", "-c", "cd " + folder + "\n" + script)
                .redirectErrorStream(true).start();
        String output = new String(shell.getInputStream().readAllBytes());
        assertEquals(0, shell.waitFor(), output);
        return output;
    }

    private static RawClient.Answer get(InetSocketAddress address, String path) throws IOException {
        try (RawClient client = new RawClient(address)) {
            client.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
            return client.read();
        }
    }

    /** The console commands of the page from this heading on, up to the next one. */
    private String commands(String heading) throws IOException {
        String page = Files.readString(PAGE);
        String section = page.substring(page.indexOf(heading)).split("\n## ", 2)[0];
        StringBuilder script = new StringBuilder();
        section.lines().filter(line -> line.startsWith("$ "))
                .forEach(line -> script.append(line.substring(2)).append('\n'));
        return script.toString().replace("/run/wirespeed-gateway", folder.toString());
    }

    @ParameterizedTest
    @ValueSource(classes = {wirespeed.gateway.netty.Main.class, wirespeed.gateway.tomcat.Main.class})
    void the_page_leads_from_a_start_to_a_stop(Class<?> main) throws Exception {
        try (RecordingOrigin origin = new RecordingOrigin()) {
            Path config = Files.writeString(folder.resolve("gateway.toml"), config(origin));
            assertEquals(0, check(main, config));
            // A busy machine must not shed load here.
            process = run(main, "--set", "limits.loop-lag=1m", "--config", config.toString());
            String line = new BufferedReader(process.inputReader()).readLine();
            Matcher started = STARTED.matcher(String.valueOf(line));
            assertTrue(started.matches(), line + Files.readString(folder.resolve("errors")));
            InetSocketAddress port = new InetSocketAddress("127.0.0.1", Integer.parseInt(started.group(1)));
            InetSocketAddress admin = new InetSocketAddress("127.0.0.1", Integer.parseInt(started.group(2)));
            assertEquals(200, get(port, "/a").status());
            assertEquals(200, get(admin, "/ready").status());
            assertEquals(200, get(admin, "/health").status());
            metrics(get(admin, "/metrics").body());
            change(config);
            reload(main, config, port);
            process.destroy();
            assertTrue(process.waitFor(60, TimeUnit.SECONDS));
            assertEquals(0, process.exitValue());
            assertTrue(Files.readString(folder.resolve("access.log")).contains("\"target\":\"/a\""));
        }
    }

    private static void metrics(String scraped) throws IOException {
        Matcher named = Pattern.compile("`(wirespeed_gateway_\\w+)`").matcher(Files.readString(PAGE));
        int count = 0;
        while (named.find()) {
            assertTrue(scraped.contains("\n" + named.group(1)), named.group(1) + " is not there");
            count++;
        }
        assertTrue(count >= 9, count + " metrics");
    }

    /** As the page's commands do it. */
    private void change(Path config) throws Exception {
        String before = Files.readString(config);
        String changed = commands("## 4. ");
        String answer = shell(changed);
        assertTrue(answer.contains("snapshot"), answer);
        assertTrue(Files.readString(config).contains("retries = 3"));
        String back = shell(changed.lines().findFirst().orElseThrow() + "\n" + commands("## 5. "));
        assertTrue(back.contains("snapshot"), back);
        assertEquals(before, Files.readString(config));
    }

    private void reload(Class<?> main, Path config, InetSocketAddress port) throws Exception {
        String good = Files.readString(config);
        Files.writeString(config, good.replace("[[route]]", "[[rout]]"));
        assertEquals(2, check(main, config));
        assertTrue(Files.readString(folder.resolve("errors")).contains("gateway.toml:"));
        Files.writeString(config, good.replace("name = \"shop\"", "name = \"again\""));
        assertEquals(0, check(main, config));
        shell("kill -HUP " + process.pid());
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!shell(commands("## 4. ").lines().findFirst().orElseThrow()
                + "\n$ADMIN http://admin/routes").contains("again")) {
            assertTrue(System.nanoTime() < end, "the file is not applied");
            Thread.sleep(50);
        }
        assertEquals(200, get(port, "/b").status());
    }

    /** Where systemd is installed it checks the unit; its commands are the ones that are walked. */
    @Test
    void the_unit_starts_and_reloads_what_the_page_walks() throws Exception {
        String unit = block("wirespeed-gateway.service");
        assertTrue(unit.contains("ExecStartPre=/usr/bin/wirespeed gateway --check /etc/wirespeed/gateway.toml"));
        assertTrue(unit.contains("ExecStart=/usr/bin/wirespeed gateway --config /etc/wirespeed/gateway.toml"));
        assertTrue(unit.contains("ExecReload=/bin/kill -HUP $MAINPID"));
        if (Files.isExecutable(Path.of("/usr/bin/systemd-analyze"))) {
            // The programs and the user of the unit need not be here.
            Path file = Files.writeString(folder.resolve("wirespeed-gateway.service"), unit
                    .replace("/usr/bin/wirespeed", "/bin/true").replace("User=wirespeed-gateway\n", ""));
            String said = shell("systemd-analyze verify --man=no " + file + " 2>&1 || true");
            assertEquals("", said.lines().filter(line -> line.contains("wirespeed-gateway.service"))
                    .reduce("", (a, b) -> a + b + "\n"));
        }
    }
}
