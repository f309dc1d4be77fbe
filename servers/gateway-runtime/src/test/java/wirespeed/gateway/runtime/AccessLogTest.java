// An access log whose disk is full, whose reader is slow, or whose configuration is refused.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.core.Snapshot;

class AccessLogTest {
    @TempDir
    private Path folder;

    private static Context context() {
        Snapshot snapshot = new SnapshotBuilder().build(
                ConfigReader.read("[origins.o]\naddresses = [\"h:1\"]\n", "x.toml", Map.of(),
                        Map.of()), java.util.List.of());
        Context context = new Context(snapshot, new Request("GET", "/", 1, new Headers()), 0);
        context.response(Response.of(200, "text/plain", ""));
        return context;
    }

    private static void await(java.util.function.BooleanSupplier isReached) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!isReached.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, "not within a minute");
            Thread.onSpinWait();
        }
    }

    private static String text(Path file) {
        try {
            return Files.exists(file) ? Files.readString(file) : "";
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }

    @Test
    void lines_that_find_no_room_are_counted() throws Exception {
        Path pipe = folder.resolve("pipe");
        assertEquals(0, new ProcessBuilder("mkfifo", pipe.toString()).start().waitFor());
        int all = 200_000;
        try (RandomAccessFile reader = new RandomAccessFile(pipe.toFile(), "rw")) {
            AccessLog log = new AccessLog(new ShippedFilters.Scope("log", 0, "/", "", "any"),
                    pipe.toString(), "{status}");
            Context context = context();
            // Nobody reads: the pipe takes 64 KiB, and the queue 65,536 lines.
            for (int i = 0; i < all; i++) {
                log.finished(context, 200, 0);
            }
            long dropped = log.dropped();
            assertTrue(dropped > 0, "none was dropped");
            byte[] rest = new byte[4 * (int) (all - dropped)];
            reader.readFully(rest);
            log.close();
            assertEquals(dropped, log.dropped());
        }
    }

    @Test
    void a_full_disk_costs_lines_and_not_the_log() throws Exception {
        Path file = Files.createSymbolicLink(folder.resolve("access.log"), Path.of("/dev/full"));
        AccessLog log = new AccessLog(new ShippedFilters.Scope("log", 0, "/", "", "any"),
                file.toString(), "{status}");
        Context context = context();
        try {
            for (int i = 0; i < 20_000; i++) {
                log.finished(context, 500, 0);
            }
            Files.delete(file);
            log.reopen();
            await(() -> {
                log.finished(context, 201, 0);
                return text(file).contains("201");
            });
        } finally {
            log.close();
        }
    }

    @Test
    void a_log_that_cannot_be_opened_again_goes_on_where_it_was() throws Exception {
        Path home = Files.createDirectory(folder.resolve("logs"));
        AccessLog log = new AccessLog(new ShippedFilters.Scope("log", 0, "/", "", "any"),
                home.resolve("access.log").toString(), "{status}");
        Context context = context();
        try {
            Path moved = Files.move(home, folder.resolve("moved"));
            log.reopen();
            await(() -> {
                log.finished(context, 201, 0);
                return text(moved.resolve("access.log")).contains("201");
            });
        } finally {
            log.close();
        }
    }

    @Test
    void a_configuration_that_is_refused_leaves_no_thread_behind() {
        String file = folder.resolve("refused.log").toString();
        for (int i = 0; i < 5; i++) {
            assertThrows(ConfigError.class, () -> ShippedFilters.of(ConfigReader.read(
                    "[[filter]]\ntype = \"access-log\"\nfile = \"" + file + "\"\n[[filter]]\n"
                            + "type = \"redirect\"\n", "x.toml", Map.of(), Map.of()).filters()));
        }
        // Those of logs that are closed may still be about to end.
        await(() -> Thread.getAllStackTraces().keySet().stream()
                .noneMatch(thread -> thread.getName().equals("access-log")));
    }

    @Test
    void the_target_is_what_the_client_asked_for_whatever_filters_make_of_it() {
        Context context = new Context(context().snapshot(),
                new Request("GET", "/asked//for?a=1", 1, new Headers()), 0);
        context.request().path("/rewritten", "b=2");
        assertEquals("/asked//for?a=1 /rewritten?b=2\n",
                new AccessLogFormat("{target} {forwarded}").line(context, 200, 0));
    }

    @Test
    void half_a_character_costs_no_line() throws Exception {
        Path file = folder.resolve("access.log");
        AccessLog log = new AccessLog(new ShippedFilters.Scope("log", 0, "/", "", "any"),
                file.toString(), "{error}");
        Context context = context();
        for (String error : new String[] {"a\ud83d", "b"}) {
            context.failure(new IllegalStateException(error));
            log.finished(context, 500, 0);
            Thread.sleep(100);
        }
        log.close();
        assertEquals("a?\nb\n", text(file));
        assertEquals(0, log.dropped());
    }
}
