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
import java.util.jar.JarOutputStream;
import java.util.zip.ZipEntry;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Phase;
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

    /** Compiles a filter and a library of its own, and puts both into a jar in the folder. */
    private void jar(String mark, String list) throws IOException {
        Path work = Files.createTempDirectory(folder, "jar");
        Path library = work.resolve("com/github/benmanes/caffeine/cache/Caffeine.java");
        Files.createDirectories(library.getParent());
        // A class that the gateway has, too, and quite another one.
        Files.writeString(library, """
                package com.github.benmanes.caffeine.cache;
                public interface Caffeine {
                    String mark();
                    class Own implements Caffeine {
                        public String mark() { return "MARK"; }
                    }
                }
                """.replace("MARK", mark));
        Path filter = Files.writeString(work.resolve("Jarred.java"), """
                import com.github.benmanes.caffeine.cache.Caffeine;
                import java.io.IOException;
                import java.io.InputStream;
                import java.util.ServiceLoader;
                import wirespeed.gateway.core.*;
                public class Jarred implements Filter {
                    public Phase phase() { return Phase.POST; }
                    public int order() { return 5; }
                    public Step apply(Context context) {
                        try (InputStream in = getClass().getResourceAsStream("/words.txt")) {
                            String found = ServiceLoader.load(Caffeine.class, getClass().getClassLoader())
                                    .findFirst().get().mark();
                            context.response().headers().set("X-Mark", found + new String(in.readAllBytes()));
                            return Step.NEXT;
                        } catch (IOException failed) {
                            throw new IllegalStateException(failed);
                        }
                    }
                }
                """);
        int failed = ToolProvider.getSystemJavaCompiler().run(null, null, null, "--release", "17",
                "-proc:none", "-cp", System.getProperty("java.class.path"), "-d", work.toString(),
                filter.toString(), library.toString());
        assertEquals(0, failed);
        Path temporary = folder.resolve(".jar.tmp");
        try (JarOutputStream out = new JarOutputStream(Files.newOutputStream(temporary))) {
            entry(out, "words.txt", " words".getBytes());
            entry(out, "META-INF/services/com.github.benmanes.caffeine.cache.Caffeine",
                    "com.github.benmanes.caffeine.cache.Caffeine$Own\n".getBytes());
            if (list != null) {
                entry(out, "META-INF/services/wirespeed.gateway.core.Filter", list.getBytes());
            }
            entry(out, "java/evil/Jarred.class", Files.readAllBytes(work.resolve("Jarred.class")));
            for (String name : new String[] {"Jarred.class", "com/github/benmanes/caffeine/cache/Caffeine.class",
                "com/github/benmanes/caffeine/cache/Caffeine$Own.class"}) {
                entry(out, name, Files.readAllBytes(work.resolve(name)));
            }
        }
        Files.move(temporary, folder.resolve("marks.jar"), StandardCopyOption.ATOMIC_MOVE,
                StandardCopyOption.REPLACE_EXISTING);
    }

    private static void entry(JarOutputStream out, String name, byte[] content) throws IOException {
        out.putNextEntry(new ZipEntry(name));
        out.write(content);
        out.closeEntry();
    }

    @Test
    void a_jar_brings_libraries_of_its_own_and_is_swapped_like_a_source() throws IOException {
        jar("one", "# Filters\nJarred\n");
        Carrier gateway = start();
        RawClient client = client(gateway);
        assertEquals("one words", markOf(client));
        jar("two", "Jarred");
        awaitMark(client, "two words");
        // One that cannot be loaded changes nothing, and one after it is taken.
        Files.writeString(folder.resolve("marks.jar"), "no jar");
        filter("Other.groovy", "three");
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (gateway.runtime.gateway().snapshot().chain().filters(Phase.POST).stream()
                .noneMatch(one -> one.name().equals("Other.groovy"))) {
            assertTrue(System.nanoTime() < end, "the other filter never came");
        }
        Files.delete(folder.resolve("Other.groovy"));
        awaitMark(client, "two words");
        jar("four", "Jarred");
        awaitMark(client, "four words");
        Files.delete(folder.resolve("marks.jar"));
        awaitMark(client, "null");
    }

    @Test
    void a_jar_that_gives_no_filter_is_named() throws IOException {
        jar("one", null);
        assertRefused("marks.jar: it has no META-INF/services/wirespeed.gateway.core.Filter");
        jar("one", "com.github.benmanes.caffeine.cache.Caffeine$Own");
        assertRefused("does not implement wirespeed.gateway.core.Filter");
        jar("one", "Missing");
        assertRefused("marks.jar: java.lang.ClassNotFoundException: Missing");
        jar("one", "java.evil.Jarred");
        assertRefused("marks.jar: java.lang.SecurityException: Prohibited package name: java.evil");
        Files.writeString(folder.resolve("marks.jar"), "no jar");
        assertRefused("marks.jar: it is empty or not a jar");
    }

    private void assertRefused(String words) {
        ConfigError refused = assertThrows(ConfigError.class, this::start);
        assertTrue(refused.getMessage().contains(words), refused.getMessage());
    }

    @Test
    void a_filter_that_needs_more_stack_than_there_is_fails_its_request_and_no_other() throws IOException {
        Files.writeString(folder.resolve("Deep.java"), """
                import wirespeed.gateway.core.*;
                public class Deep implements Filter {
                    public Phase phase() { return Phase.PRE; }
                    public int order() { return 5; }
                    public Step apply(Context context) {
                        return context.request().path().equals("/deep") ? apply(context) : Step.NEXT;
                    }
                }
                """);
        Carrier gateway = start();
        for (int i = 0; i < 3; i++) {
            assertEquals(500, client(gateway).get("/deep").status());
            assertEquals("GET /ab HTTP/1.1|", client(gateway).get("/ab").body());
        }
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
