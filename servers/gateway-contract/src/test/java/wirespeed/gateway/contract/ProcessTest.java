// Tests that need a separate process: its temporary files, and how its JVM's TLS reads.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(240)
class ProcessTest {
    @TempDir
    Path folder;
    private Process process;
    /** As the limit of a shell. */
    private String descriptors = "$(ulimit -n)";

    /** A listener for TLS that can also close what is below it, without a word. */
    private static final class Encrypted extends ServerSocket {
        final Map<Socket, Socket> below = new ConcurrentHashMap<>();
        private final SSLContext context;

        Encrypted(SSLContext context) throws IOException {
            super(0, 50, InetAddress.getLoopbackAddress());
            this.context = context;
        }

        @Override
        public Socket accept() throws IOException {
            Socket plain = super.accept();
            SSLSocket tls = (SSLSocket) context.getSocketFactory().createSocket(plain, null, true);
            tls.setUseClientMode(false);
            below.put(tls, plain);
            return tls;
        }
    }

    @AfterEach
    void end() {
        if (process != null) {
            process.destroyForcibly();
        }
    }

    private InetSocketAddress start(Class<?> main, String toml) throws Exception {
        Path errors = folder.resolve("errors");
        Path config = Files.writeString(folder.resolve("gateway.toml"), toml);
        process = new ProcessBuilder("sh", "-c", "ulimit -n " + descriptors + "; exec \"$@\"", "sh",
                Path.of(System.getProperty("java.home"), "bin", "java").toString(), Carrier.SHORT_LIVED,
                "-Djava.io.tmpdir=" + Files.createDirectories(temporary()), "-cp",
                System.getProperty("java.class.path"), main.getName(), "--listen", "127.0.0.1:0",
                // A busy machine must not shed load here.
                "--set", "limits.loop-lag=1m", "--config", config.toString()).redirectError(errors.toFile()).start();
        String line = new BufferedReader(process.inputReader()).readLine();
        assertTrue(line != null, () -> "it did not start, see " + errors);
        return new InetSocketAddress("127.0.0.1",
                Integer.parseInt(line.replaceAll(".*127.0.0.1:(\\d+) \\(.*", "$1")));
    }

    private Path temporary() {
        return folder.resolve("temporary");
    }

    @ParameterizedTest
    @ValueSource(classes = {wirespeed.gateway.netty.Main.class,
        wirespeed.gateway.tomcat.Main.class})
    void a_kill_leaves_no_temporary_files(Class<?> main) throws Exception {
        try (RecordingOrigin origin = new RecordingOrigin()) {
            origin.handler = (seen, out, socket) -> {
                RecordingOrigin.respond(out, 200, "Content-Type: text/plain\r\n", "a".repeat(5000));
                return true;
            };
            InetSocketAddress address = start(main, "[origins.o]\naddresses = [\"127.0.0.1:"
                    + origin.port() + "\"]\n[[filter]]\ntype = \"compress\"\n");
            try (RawClient client = new RawClient(address)) {
                client.send("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br\r\n\r\n");
                assertEquals("br", client.read().header("Content-Encoding"));
            }
            process.destroyForcibly();
            assertTrue(process.waitFor(60, TimeUnit.SECONDS));
            try (Stream<Path> left = Files.walk(temporary())) {
                assertEquals(List.of(temporary()), left.toList());
            }
        }
    }

    @ParameterizedTest
    @ValueSource(classes = {wirespeed.gateway.netty.Main.class,
        wirespeed.gateway.tomcat.Main.class})
    void an_answer_that_ends_without_the_alert_of_tls_is_cut(Class<?> main) throws Exception {
        Certificate certificate = new Certificate(folder.resolve("origin"));
        Encrypted listener = new Encrypted(certificate.context());
        try (RecordingOrigin origin = new RecordingOrigin(listener)) {
            origin.handler = (seen, out, socket) -> {
                out.write("HTTP/1.1 200 X\r\nCache-Control: max-age=60\r\n\r\nbody".getBytes());
                out.flush();
                if (seen.line().contains("/cut")) {
                    listener.below.get(socket).close();
                }
                return false;
            };
            InetSocketAddress address = start(main, "[origins.o]\ntls = true\nconnect = \"1m\"\naddresses ="
                    + " [\"127.0.0.1:" + origin.port() + "\"]\n[tls]\norigin-ca = \""
                    + certificate.certificate + "\"\n[cache]\nenabled = true\n");
            assertTrue(get(address, "/whole").isComplete());
            for (int i = 0; i < 2; i++) {
                RawClient.Answer cut = get(address, "/cut");
                assertFalse(cut.isComplete(), cut.toString());
            }
        }
    }

    @ParameterizedTest
    @ValueSource(classes = {wirespeed.gateway.netty.Main.class,
        wirespeed.gateway.tomcat.Main.class})
    void a_gateway_without_descriptors_says_so_and_recovers(Class<?> main) throws Exception {
        Files.writeString(Files.createDirectories(folder.resolve("filters")).resolve("Who.java"), """
                import wirespeed.gateway.core.*;
                public class Who implements Filter {
                    public Phase phase() { return Phase.ERROR; }
                    public int order() { return 5; }
                    public Step apply(Context context) {
                        context.response().headers().set("X-Thread",
                                Thread.currentThread().getName());
                        return Step.NEXT;
                    }
                }
                """);
        int descriptorsMax = 400;
        descriptors = "400";
        try (RecordingOrigin origin = new RecordingOrigin()) {
            origin.handler = (seen, out, socket) -> {
                RecordingOrigin.respond(out, 200, "Connection: close\r\n", "");
                return false;
            };
            InetSocketAddress address = start(main,
                    "[server]\nthreads = 1\n[origins.o]\naddresses = [\"127.0.0.1:"
                            + origin.port() + "\"]\ncheck-path = \"/\"\n"
                            + "check-interval = \"50ms\"\ncheck-timeout = \"1m\"\ncheck-fall = 1\ncheck-rise = 100\n"
                            + "[filters]\nfolder = \"" + folder.resolve("filters") + "\"\n"
                            + "[admin]\nsocket = \"" + folder.resolve("s") + "\"\n");
            List<RawClient> idle = new ArrayList<>();
            try (RawClient client = new RawClient(address)) {
                assertEquals(200, client.get("/before").status());
                // From folders, where tests have them, classes cannot be loaded without a descriptor.
                try (RawClient refused = new RawClient(address)) {
                    refused.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: host\r\n\r\n");
                    assertEquals(400, refused.read().status());
                }
                admin().close();
                for (int i = 0; i < descriptorsMax; i++) {
                    idle.add(new RawClient(address));
                }
                // A check that ends leaves one free until the next client is taken.
                RawClient.Answer answer = client.get("/none");
                for (int i = 0; i < 3000 && answer.status() == 200; i++) {
                    Thread.sleep(20);
                    answer = client.get("/none");
                }
                assertEquals(503, answer.status(), answer.toString());
                String thread = answer.header("X-Thread");
                assertTrue(thread.startsWith("gateway-loop") || thread.startsWith("http-nio"),
                        answer.head());
                // Checks run meanwhile, and what they lack is not the address's fault.
                SocketChannel held = admin();
                Thread.sleep(300);
                held.close();
                try (Stream<String> said = Files.lines(folder.resolve("errors"))) {
                    long count = said.filter(line -> line.contains("admin.socket")).count();
                    assertTrue(count < 50, count + " messages");
                }
                for (RawClient one : idle) {
                    one.close();
                }
                awaitFree(descriptorsMax / 2);
                for (int i = 0; i < 20; i++) {
                    assertEquals(200, get(address, "/" + i).status());
                }
            } finally {
                for (RawClient one : idle) {
                    one.close();
                }
            }
        }
    }

    /** It takes the descriptor with which the gateway has waited for it. */
    private SocketChannel admin() throws IOException {
        return SocketChannel.open(UnixDomainSocketAddress.of(folder.resolve("s")));
    }

    /** Until the process has closed what its clients have. */
    private void awaitFree(int count) throws Exception {
        long used = Long.MAX_VALUE;
        for (int i = 0; i < 3000 && used > count; i++) {
            Thread.sleep(20);
            try (Stream<Path> open = Files.list(Path.of("/proc/" + process.pid() + "/fd"))) {
                used = open.count();
            }
        }
    }

    private static RawClient.Answer get(InetSocketAddress address, String path) throws IOException {
        try (RawClient client = new RawClient(address)) {
            return client.get(path);
        }
    }
}
