// Filters of the folder come and go while requests pass, on every carrier.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.runtime.ConfigError;

abstract class FilterContract extends CarrierContract {
    @TempDir
    Path folder;

    private Carrier start() {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\nresponse = \"2m\"\n[filters]\nfolder = \"" + folder + "\"\n");
    }

    private void filter(String name, String header) throws IOException {
        boolean isGroovy = name.endsWith(".groovy");
        String source = """
                import wirespeed.gateway.core.*;
                public class Marks implements Filter {
                    private volatile boolean isClosed;
                    public Phase phase() { return Phase.POST; }
                    public int order() { return 5; }
                    public String name() { return "NAME"; }
                    public Step apply(Context context) {
                        context.response().headers().set("X-Mark", isClosed ? "closed" : "VALUE");
                        return Step.NEXT;
                    }
                    public void close() { isClosed = true; }
                }
                """.replace("VALUE", header).replace("NAME", name);
        Path temporary = Files.writeString(folder.resolve("." + name + ".tmp"),
                isGroovy ? source.replace(";", "") : source);
        Files.move(temporary, folder.resolve(name), StandardCopyOption.ATOMIC_MOVE,
                StandardCopyOption.REPLACE_EXISTING);
    }

    private String markOf(RawClient client) throws IOException {
        RawClient.Answer answer = client.get("/");
        assertEquals(200, answer.status());
        return answer.header("X-Mark");
    }

    private void awaitMark(RawClient client, String mark) throws IOException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!String.valueOf(markOf(client)).equals(mark)) {
            assertTrue(System.nanoTime() < end, "the filter was not swapped within a minute");
        }
    }

    @Test
    void a_constructor_gets_the_parameters_of_the_configuration() throws IOException {
        Files.writeString(folder.resolve("Limits.java"), """
                import java.util.Map;
                import wirespeed.gateway.core.*;
                public class Limits implements Filter {
                    private final int limit;
                    public Limits(Map<String, String> parameters) {
                        limit = Integer.parseInt(parameters.get("limit"));
                    }
                    public Phase phase() { return Phase.POST; }
                    public int order() { return 5; }
                    public Step apply(Context context) {
                        context.response().headers().set("X-Mark", String.valueOf(limit + 1));
                        return Step.NEXT;
                    }
                }
                """);
        String toml = "[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\n[filters]\nfolder = \"" + folder + "\"\nparameters = { limit = \"LIMIT\" }\n";
        assertEquals("8", markOf(client(start(toml.replace("LIMIT", "7")))));
        ConfigError refused = assertThrows(ConfigError.class, () -> start(toml.replace("LIMIT", "x")));
        assertTrue(refused.getMessage().startsWith("Limits.java: Limits cannot be made:"),
                refused.getMessage());
    }

    @Test
    void filters_are_swapped_while_requests_pass() throws IOException {
        filter("Marks.java", "one");
        Carrier gateway = start();
        RawClient client = client(gateway);
        assertEquals("one", markOf(client));
        filter("Marks.java", "two");
        awaitMark(client, "two");
        Files.writeString(folder.resolve("Marks.java"), "class Broken {");
        long before = gateway.runtime.gateway().snapshot().version();
        filter("Other.groovy", "three");
        awaitMark(client, "three");
        assertNotEquals(before, gateway.runtime.gateway().snapshot().version());
        Files.delete(folder.resolve("Other.groovy"));
        awaitMark(client, "two");
    }

    @Test
    void a_filter_is_closed_after_the_last_exchange_that_began_with_it() throws Exception {
        filter("Marks.java", "open");
        Carrier gateway = start();
        CountDownLatch asked = new CountDownLatch(1);
        CountDownLatch mayAnswer = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            if (seen.line().contains("/slow")) {
                asked.countDown();
                RecordingOrigin.awaitQuietly(mayAnswer);
            }
            return RecordingOrigin.ordinary(seen, out, socket);
        };
        RawClient early = client(gateway);
        early.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        assertTrue(asked.await(60, TimeUnit.SECONDS));
        RawClient later = client(gateway);
        Files.delete(folder.resolve("Marks.java"));
        awaitMark(later, "null");
        // The snapshot in between is unused at once; the older one still is not.
        filter("Other.groovy", "other");
        awaitMark(later, "other");
        mayAnswer.countDown();
        assertEquals("open", early.read().header("X-Mark"));
    }

    @Test
    void filters_use_what_the_platform_has_and_nothing_else_of_the_gateway() throws IOException {
        Files.writeString(folder.resolve("Signs.java"), """
                import java.util.HexFormat;
                import javax.crypto.Mac;
                import javax.crypto.spec.SecretKeySpec;
                import javax.net.ssl.SSLContext;
                import wirespeed.gateway.core.*;
                public class Signs implements Filter {
                    public Phase phase() { return Phase.POST; }
                    public int order() { return 5; }
                    public Step apply(Context context) {
                        try {
                            Mac mac = Mac.getInstance("HmacSHA256");
                            mac.init(new SecretKeySpec("key".getBytes(), "HmacSHA256"));
                            context.response().headers().set("X-Mark", HexFormat.of().formatHex(
                                    mac.doFinal("a".getBytes()), 0, 4));
                            SSLContext.getDefault();
                            org.w3c.dom.Node none = null;
                            Class.forName("com.github.benmanes.caffeine.cache.Cache", false,
                                    getClass().getClassLoader());
                            return Step.fail(500, null);
                        } catch (ClassNotFoundException hidden) {
                            return Step.NEXT;
                        } catch (java.security.GeneralSecurityException failed) {
                            throw new IllegalStateException(failed);
                        }
                    }
                }
                """);
        assertEquals("780c3db4", markOf(client(start())));
    }

    @Test
    void a_file_that_everybody_may_write_is_not_loaded() throws IOException {
        filter("Marks.java", "one");
        Files.setPosixFilePermissions(folder.resolve("Marks.java"),
                PosixFilePermissions.fromString("rw-rw-rw-"));
        ConfigError refused = assertThrows(ConfigError.class, this::start);
        assertTrue(refused.getMessage().contains("Marks.java can be written by everybody"),
                refused.getMessage());
    }
}
