// Filters of the folder come and go while requests pass, on every carrier.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

abstract class FilterContract extends CarrierContract {
    @TempDir
    Path folder;

    private Carrier start() {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\n[filters]\nfolder = \"" + folder + "\"\n");
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
                awaitQuietly(mayAnswer);
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

    private static void awaitQuietly(CountDownLatch latch) {
        try {
            latch.await(60, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
