// The life of connections: shared limits, and an end that comes in time.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.runtime.Launcher;

abstract class LifeContract extends CarrierContract {
    /** As in the configuration: server.drain-delay. */
    private static final long DELAY_NANOS = 3_000_000_000L;

    @TempDir
    Path folder;

    @Test
    void one_connection_to_an_address_serves_the_clients_of_all_loops() throws Exception {
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\nconnections = 1\n[timeouts]\npool-wait = \"20s\"\n");
        int clients = 4;
        for (int i = 0; i < clients; i++) {
            RawClient client = client(gateway);
            long begin = System.nanoTime();
            assertEquals(200, client.get("/first").status());
            long millis = (System.nanoTime() - begin) / 1_000_000;
            assertTrue(millis < 10_000, millis + " ms for a connection that is unused");
        }
        AtomicInteger refused = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            RawClient client = client(gateway);
            Thread thread = new Thread(() -> {
                for (int request = 0; request < 100; request++) {
                    try {
                        refused.addAndGet(client.get("/").status() == 200 ? 0 : 1);
                    } catch (IOException gone) {
                        refused.incrementAndGet();
                    }
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join(60_000);
            assertFalse(thread.isAlive());
        }
        assertEquals(0, refused.get());
        assertTrue(gateway.runtime.gateway().snapshot().origins().get("o").addresses().get(0)
                .connections().get() <= 1);
    }

    @Test
    void a_wait_without_a_connection_does_not_count_as_a_failure_of_the_origin() throws Exception {
        CountDownLatch mayAnswer = new CountDownLatch(1);
        origin.handler = RecordingOrigin.after(mayAnswer);
        RecordingOrigin quick = closedLater(new RecordingOrigin());
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\nconnections = 1\nresponse = \"2m\"\n[timeouts]\npool-wait = \"300ms\"\n"
                + "[origins.quick]\naddresses = [\"127.0.0.1:" + quick.port() + "\"]\n[[route]]\n"
                + "prefix = \"/quick\"\norigins = [\"quick\"]\n[[route]]\norigins = [\"o\"]\n");
        RawClient served = client(gateway);
        served.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
        while (origin.seen.isEmpty()) {
            Thread.sleep(5);
        }
        List<RawClient> waiting = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            RawClient client = client(gateway);
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            waiting.add(client);
        }
        // What happens in the pool meanwhile must not change the answer.
        RawClient busy = client(gateway);
        while (waiting.get(waiting.size() - 1).socket.getInputStream().available() == 0) {
            assertEquals(200, busy.get("/quick").status());
        }
        for (RawClient client : waiting) {
            assertEquals(503, client.read().status());
        }
        assertEquals(0, gateway.runtime.gateway().snapshot().origins().get("o").addresses().get(0)
                .failures());
        mayAnswer.countDown();
        assertEquals(200, served.read().status());
    }

    @Test
    void connections_live_on_until_the_listener_closes() throws Exception {
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n[server]\ndrain-delay = \"3s\"\n");
        RawClient client = client(gateway);
        assertEquals(200, client.get("/").status());
        Thread stopping = new Thread(() -> Launcher.drain(gateway.runtime.gateway(),
                gateway.carrier));
        long begin = System.nanoTime();
        stopping.start();
        while (ready(gateway) == 200) {
            Thread.sleep(10);
        }
        for (int i = 0; i < 12; i++) {
            try {
                RawClient.Answer answer = client.get("/");
                int other = client(gateway).get("/").status();
                if (System.nanoTime() - begin > DELAY_NANOS) {
                    break;
                }
                assertEquals(200, answer.status());
                assertNull(answer.header("Connection"));
                assertEquals(200, other);
            } catch (IOException closed) {
                // On a machine that stood still until the delay was over this shows nothing.
                assertTrue(System.nanoTime() - begin > DELAY_NANOS, closed.toString());
                break;
            }
        }
        // One for each loop, or thread; not one for each answer.
        assertTrue(origin.connections.get() < 6, origin.connections.get() + " connections");
        stopping.join(60_000);
        assertFalse(stopping.isAlive());
        assertTrue(client.isClosed());
    }

    private static int ready(Carrier gateway) throws IOException {
        try (RawClient client = new RawClient(gateway.runtime.adminAddress())) {
            client.send("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n");
            return client.read().status();
        }
    }

    @Test
    void a_filter_that_never_returns_does_not_hold_up_the_end() throws Exception {
        Files.writeString(folder.resolve("Spins.java"), """
                import java.nio.file.*;
                import wirespeed.gateway.core.*;
                public class Spins implements Filter {
                    public Phase phase() { return Phase.PRE; }
                    public int order() { return 5; }
                    public Step apply(Context context) {
                        if (context.request().path().equals("/spin")) {
                            try {
                                Files.createFile(Path.of("FOLDER/spins"));
                            } catch (java.io.IOException e) {
                                throw new java.io.UncheckedIOException(e);
                            }
                            while (!Files.exists(Path.of("FOLDER/enough"))) {
                                java.util.concurrent.locks.LockSupport.parkNanos(1_000_000);
                            }
                        }
                        return Step.NEXT;
                    }
                }
                """.replace("FOLDER", folder.toString()));
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\n[filters]\nfolder = \"" + folder + "\"\n");
        client(gateway).send("GET /spin HTTP/1.1\r\nHost: a\r\n\r\n");
        while (!Files.exists(folder.resolve("spins"))) {
            Thread.sleep(10);
        }
        AtomicInteger cut = new AtomicInteger(-1);
        Thread stopping = new Thread(() -> cut.set(gateway.carrier.stop(500)));
        stopping.start();
        stopping.join(30_000);
        boolean isStopped = !stopping.isAlive();
        Files.createFile(folder.resolve("enough"));
        stopping.join(60_000);
        assertTrue(isStopped);
        assertEquals(1, cut.get());
    }
}
