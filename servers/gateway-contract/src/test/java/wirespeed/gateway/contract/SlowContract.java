// Clients and origins that are slow, half gone or broken off: each gets its answer, none gets through.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Meters;

abstract class SlowContract extends CarrierContract {
    @TempDir
    java.nio.file.Path folder;

    private Carrier gateway(String addresses, String more) {
        return start("[origins.o]\naddresses = [" + addresses + "]\n" + more);
    }

    private RawClient client(String more) throws IOException {
        return client(gateway("\"127.0.0.1:" + origin.port() + "\"", more));
    }

    @Test
    void a_head_that_trickles_is_a_408() throws Exception {
        RawClient client = client("[timeouts]\nhead = \"300ms\"\n");
        Thread slow = trickle(client, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
        assertEquals(408, client.read().status());
        assertTrue(client.isClosed());
        slow.join();
        assertEquals(List.of(), origin.seen);
    }

    @Test
    void a_head_that_stops_is_a_408_and_counts_as_the_clients_fault() throws Exception {
        Carrier gateway = gateway("\"127.0.0.1:" + origin.port() + "\"", "[timeouts]\nhead = \"300ms\"\n");
        RawClient client = client(gateway);
        client.send("GET / HTTP/1.1\r\nHost: a\r\nX: ");
        RawClient.Answer late = client.read();
        assertEquals(408, late.status());
        assertEquals("408 Request Timeout: request head did not arrive in time\n", late.body());
        assertTrue(client.isClosed());
        assertEquals(1, gateway.runtime.gateway().meters().stream()
                .mapToLong(meters -> meters.get(Category.CLIENT_BAD, 4)).sum());
    }

    /** Sends the text and then one byte after the other until the gateway has had enough. */
    private static Thread trickle(RawClient client, String begin) throws IOException {
        client.send(begin);
        Thread slow = new Thread(() -> {
            try {
                for (int i = 0; i < 5000; i++) {
                    client.send("x");
                    Thread.sleep(20);
                }
            } catch (IOException | InterruptedException refused) {
                // The other thread has read the answer.
            }
        });
        slow.setDaemon(true);
        slow.start();
        return slow;
    }

    @Test
    void a_body_that_trickles_is_a_408() throws Exception {
        RawClient client = client("[timeouts]\nbody-idle = \"300ms\"\nbody-rate = \"1KiB\"\n");
        Thread slow = trickle(client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n");
        assertEquals(408, client.read().status());
        assertTrue(client.isClosed());
        slow.join();
        assertEquals(List.of(), origin.seen);
    }

    /** Memory outside of the heap that the carrier holds; 0 where it does not say. */
    private static long directBytes(Carrier gateway) {
        java.util.function.LongSupplier gauge =
                gateway.runtime.gateway().gauges().get("direct.memory.bytes");
        return gauge == null ? 0 : gauge.getAsLong();
    }

    @Test
    void bodies_in_single_bytes_take_the_memory_of_their_bytes() throws Exception {
        Carrier gateway = gateway("\"127.0.0.1:" + origin.port() + "\"",
                "[timeouts]\nbody-idle = \"10m\"\n");
        assertEquals(200, client(gateway).get("/").status());
        long before = directBytes(gateway);
        List<RawClient> clients = new java.util.ArrayList<>();
        for (int i = 0; i < 20; i++) {
            RawClient client = client(gateway);
            client.send("PUT /" + i + " HTTP/1.1\r\nHost: a\r\nContent-Length: 65536\r\n\r\n");
            clients.add(client);
        }
        for (int sent = 0; sent < 400; sent++) {
            for (RawClient client : clients) {
                client.send("b");
            }
            // Each byte is to be read separately.
            Thread.sleep(2);
        }
        long grown = directBytes(gateway) - before;
        assertTrue(grown < 16 << 20, "8,000 bytes take " + grown + " bytes of direct memory");
        for (RawClient client : clients) {
            client.close();
        }
        assertEquals(200, client(gateway).get("/after").status());
    }

    @Test
    void a_body_waits_at_its_client_while_a_filter_decides() throws Exception {
        java.nio.file.Files.writeString(folder.resolve("Late.java"), """
                import java.util.concurrent.*;
                import wirespeed.gateway.core.*;
                public class Late implements Filter {
                    public Phase phase() { return Phase.PRE; }
                    public int order() { return 1; }
                    public Step apply(Context context) {
                        return Step.later(CompletableFuture.supplyAsync(() -> {
                            while (!Boolean.getBoolean("late.filter.decides")) {
                                Thread.onSpinWait();
                                java.util.concurrent.locks.LockSupport.parkNanos(10_000_000);
                            }
                            return Step.NEXT;
                        }));
                    }
                }
                """);
        Carrier gateway = gateway("\"127.0.0.1:" + origin.port() + "\"", "[filters]\nfolder = \""
                + folder + "\"\n");
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "", String.valueOf(seen.body().length()));
            return true;
        };
        int length = 32 << 20;
        AtomicInteger sent = new AtomicInteger();
        RawClient client = client(gateway);
        client.send("PUT /big HTTP/1.1\r\nHost: a\r\nContent-Length: " + length + "\r\n\r\n");
        Thread sender = new Thread(() -> {
            for (; sent.get() < length; sent.addAndGet(1 << 16)) {
                client.sendTolerant("u".repeat(1 << 16), 1 << 16);
            }
        });
        sender.setDaemon(true);
        sender.start();
        try {
            for (int before = -1; sent.get() == 0 || sent.get() != before;) {
                before = sent.get();
                Thread.sleep(500);
            }
            assertTrue(sent.get() < length / 2, sent + " bytes went nowhere");
        } finally {
            System.setProperty("late.filter.decides", "true");
        }
        assertEquals(String.valueOf(length), client.read().body());
        System.clearProperty("late.filter.decides");
    }

    @Test
    void a_client_that_asks_and_asks_and_reads_nothing_is_not_answered_for_ever()
            throws Exception {
        String body = "p".repeat(4000);
        Carrier gateway = gateway("\"127.0.0.1:" + origin.port() + "\"", "[[filter]]\n"
                + "type = \"static-response\"\nstatus = 200\nbody = \"" + body + "\"\n");
        RawClient client = client(gateway);
        Thread asking = new Thread(() -> client.sendTolerant(
                "GET /again HTTP/1.1\r\nHost: a\r\n\r\n".repeat(4500), 4000));
        asking.setDaemon(true);
        asking.start();
        long before = -1;
        while (answered(gateway) != before) {
            before = answered(gateway);
            Thread.sleep(300);
        }
        assertTrue(before < 3500, before + " answers of 4 KB wait for a client that reads none");
        for (int i = 0; i < 4500; i++) {
            assertEquals(body.length(), client.read().body().length());
        }
        asking.join();
    }

    private static long answered(Carrier gateway) {
        return gateway.runtime.gateway().meters().stream()
                .mapToLong(meters -> meters.get(Meters.Count.REQUESTS_ENDED)).sum();
    }

    @Test
    void a_body_that_stops_is_a_408() throws Exception {
        RawClient client = client("[timeouts]\nbody-idle = \"300ms\"\n");
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel");
        assertEquals(408, client.read().status());
        assertTrue(client.isClosed());
        assertEquals(List.of(), origin.seen);
    }

    @Test
    void a_client_that_reads_nothing_is_cut() throws Exception {
        CountDownLatch isCut = new CountDownLatch(1);
        String body = "x".repeat(20_000_000);
        origin.handler = (seen, out, socket) -> {
            try {
                RecordingOrigin.respond(out, 200, "", body);
            } catch (IOException cut) {
                isCut.countDown();
                throw cut;
            }
            return true;
        };
        RawClient client = client("[timeouts]\nsend = \"300ms\"\n");
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assertTrue(isCut.await(60, TimeUnit.SECONDS));
    }

    @Test
    void a_client_that_pauses_is_not_the_origins_failure() throws Exception {
        String body = "x".repeat(12_000_000);
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "", body);
            return true;
        };
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\nbody-idle = \"2s\"\n");
        for (int i = 0; i < 2; i++) {
            try (Socket small = new Socket()) {
                small.setReceiveBufferSize(8192);
                small.setSoTimeout(60_000);
                small.connect(gateway.address);
                small.getOutputStream().write(
                        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".getBytes());
                assertEquals('H', small.getInputStream().read());
                Thread.sleep(3000);
                int length = 1 + small.getInputStream().readAllBytes().length;
                assertTrue(length > body.length(), length + " bytes");
            }
        }
    }

    @Test
    void a_request_body_that_pauses_is_not_the_origins_failure() throws Exception {
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\nresponse = \"2s\"\n");
        // The pause is over after three seconds, and the origin's time after five.
        inTime(4500, () -> pauseInABody(gateway));
    }

    private void pauseInABody(Carrier gateway) throws Exception {
        RawClient client = client(gateway);
        client.send("POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
        Thread.sleep(3000);
        client.send("world");
        assertEquals("POST /p HTTP/1.1|helloworld", client.read().body());
    }

    @Test
    void an_exchange_ends_in_time_however_often_its_client_reads_a_little() throws Exception {
        String body = "x".repeat(40_000_000);
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "", body);
            return true;
        };
        RawClient client = client("[timeouts]\nexchange = \"800ms\"\n");
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        long length = 0;
        byte[] some = new byte[50_000];
        try {
            for (int count = 0; count >= 0; count = client.socket.getInputStream().read(some)) {
                length += count;
                Thread.sleep(20);
            }
        } catch (IOException cut) {
            // As it should be.
        }
        assertTrue(length < body.length(), "the exchange went on for 16 s");
    }

    @Test
    void empty_lines_keep_no_connection_open() throws Exception {
        RawClient client = client("[timeouts]\nhead = \"300ms\"\n");
        Thread feeding = new Thread(() -> {
            try {
                while (true) {
                    client.send("\r");
                    Thread.sleep(40);
                    client.send("\n");
                    Thread.sleep(40);
                }
            } catch (IOException | InterruptedException refused) {
                // The other thread sees the end.
            }
        });
        feeding.setDaemon(true);
        feeding.start();
        client.read();
        assertTrue(client.isClosed());
    }

    @Test
    void bytes_after_a_last_request_are_not_read() throws Exception {
        RawClient client = client("");
        client.send("GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
                + "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        assertEquals("GET /last HTTP/1.1|", client.read().body());
        assertTrue(client.isClosed());
        assertEquals(1, origin.seen.size());
    }

    @Test
    void clients_that_end_in_odd_ways_write_nothing_into_the_log() throws Exception {
        LogEar ear = closedLater(new LogEar());
        Carrier gateway = gateway("\"127.0.0.1:" + origin.port() + "\"", "");
        for (int i = 0; i < 100; i++) {
            try (RawClient client = gateway.client()) {
                client.send("GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
                assertEquals(200, client.read().status());
                client.sendTolerant("GET /more HTTP/1.1\r\nHost: a\r\n\r\n", 100);
                client.socket.shutdownOutput();
            } catch (IOException closedAlready) {
                // The answer was there; that is all a client can ask for.
            }
        }
        assertEquals(List.of(), ear.said);
    }

    @Test
    void a_final_answer_to_an_unanswered_expectation_closes() throws Exception {
        for (int status : new int[] {404, 200, 302}) {
            RawClient client = client("[[filter]]\ntype = \"static-response\"\nprefix = \"/\"\n"
                    + "status = " + status + "\nbody = \"no\"\n");
            client.send("POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n"
                    + "Expect: 100-continue\r\n\r\n");
            RawClient.Answer answer = client.read();
            assertEquals(status, answer.status());
            assertEquals("close", answer.header("Connection"));
            client.sendTolerant("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", 100);
            assertTrue(client.isClosed());
        }
    }

    @Test
    void a_body_that_trickles_behind_its_answer_ends_in_time() throws Exception {
        origin.handler = (seen, out, socket) -> socket.getInputStream().read() >= 0;
        for (String path : List.of("/own", "/late")) {
            // A client that is late with one byte gets 408, and on a busy machine it may be late.
            String idle = path.equals("/own") ? "1s" : "3s";
            Carrier gateway = gateway("\"127.0.0.1:" + origin.port() + "\"", "[timeouts]\nexchange = \"500ms\"\n"
                    + "body-idle = \"" + idle + "\"\nbody-rate = \"0B\"\n[[filter]]\ntype = \"static-response\"\n"
                    + "prefix = \"/own\"\nstatus = 404\nbody = \"no\"\n");
            RawClient client = client(gateway);
            trickle(client, "POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n");
            assertEquals(path.equals("/own") ? 404 : 504, client.read().status());
            assertTrue(client.isClosed(), path);
        }
    }

    @Test
    void half_a_request_and_a_closed_half_reach_no_origin() throws Exception {
        Carrier gateway = gateway("\"127.0.0.1:" + origin.port() + "\"", "");
        for (String half : List.of("GET / HT", "GET / HTTP/1.1\r\nHost: a\r\n",
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")) {
            RawClient client = client(gateway);
            client.send(half);
            client.socket.shutdownOutput();
            RawClient.Answer answer = client.read();
            assertTrue(answer.status() == 0 || answer.status() >= 400, half + answer);
            assertTrue(client.isClosed(), half);
        }
        assertEquals(List.of(), origin.seen);
    }

    @Test
    void a_reset_is_not_the_end_of_a_body_that_lasts_until_the_close() throws Exception {
        origin.handler = (seen, out, socket) -> {
            out.write("HTTP/1.1 200 OK\r\n\r\nhalf".getBytes());
            out.flush();
            socket.setSoLinger(true, 0);
            socket.close();
            return false;
        };
        RawClient.Answer answer = client("").get("/");
        assertFalse(answer.status() == 200 && answer.isComplete(), answer.toString());
    }

    @Test
    void any_method_is_tried_elsewhere_when_there_is_no_connection() throws Exception {
        // Taken, so that no other process gets it, and without a listener.
        Socket closed = closedLater(new Socket());
        closed.bind(new InetSocketAddress("127.0.0.1", 0));
        RawClient client = client(gateway("\"127.0.0.1:" + closed.getLocalPort() + "\", \"127.0.0.1:"
                + origin.port() + "\"", ""));
        for (int i = 0; i < 10; i++) {
            client.send("POST /" + i + " HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok");
            assertEquals("POST /" + i + " HTTP/1.1|ok", client.read().body());
        }
    }

    @Test
    void a_drain_waits_until_a_slow_client_has_its_answer() throws Exception {
        String body = "y".repeat(3_000_000);
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "", body);
            return true;
        };
        Carrier gateway = gateway("\"127.0.0.1:" + origin.port() + "\"", "");
        try (Socket small = new Socket()) {
            small.setReceiveBufferSize(8192);
            small.setSoTimeout(60_000);
            small.connect(new InetSocketAddress("127.0.0.1", gateway.address.getPort()));
            small.getOutputStream().write("GET / HTTP/1.1\r\nHost: a\r\n\r\n".getBytes());
            assertEquals('H', small.getInputStream().read());
            Thread stopping = new Thread(() -> gateway.carrier.stop(60_000));
            stopping.start();
            Thread.sleep(200);
            int length = 1 + small.getInputStream().readAllBytes().length;
            assertTrue(length > body.length(), length + " bytes");
            stopping.join();
        }
    }

    @Test
    void a_drain_answers_heads_that_have_begun_and_first_ones_that_are_under_way() throws Exception {
        // Clients that have just connected have a second for their first request.
        inTime(900, this::drain);
    }

    private void drain() throws Exception {
        Carrier gateway = gateway("\"127.0.0.1:" + origin.port() + "\"", "");
        RawClient used = client(gateway);
        assertEquals(200, used.get("/used").status());
        used.send("GET /second HTTP/1.1\r\nHo");
        RawClient begun = client(gateway);
        begun.send("GET /begun HTTP/1.1\r\nHo");
        RawClient fresh = client(gateway);
        assertEquals(200, client(gateway).get("/behind").status());
        Thread.sleep(100);
        Thread stopping = new Thread(() -> gateway.carrier.stop(60_000));
        stopping.start();
        while (!gateway.runtime.gateway().isDraining()) {
            // A thread that has been started need not run soon.
            Thread.sleep(5);
        }
        Thread.sleep(200);
        fresh.send("GET /fresh HTTP/1.1\r\nHost: a\r\n\r\n");
        begun.send("st: a\r\n\r\n");
        used.send("st: a\r\n\r\n");
        for (RawClient client : List.of(fresh, begun, used)) {
            RawClient.Answer answer = client.read();
            assertEquals(200, answer.status());
            assertEquals("close", answer.header("Connection"));
            assertTrue(client.isClosed());
        }
        stopping.join();
    }
}
