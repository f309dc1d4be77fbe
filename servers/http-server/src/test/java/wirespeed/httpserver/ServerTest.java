/** The server over real sockets, on each transport that the machine has. */
package wirespeed.httpserver;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@Timeout(120)
class ServerTest {
    private static final int LARGE_BYTES = 3 << 20;
    @TempDir
    Path folder;

    @ParameterizedTest
    @EnumSource(Transport.class)
    void a_payload_response_has_the_expected_fields(Transport transport) throws Exception {
        try (Running server = Running.payload(transport, 128); RawClient client = server.connect()) {
            RawClient.Response response = client.send(RawClient.get("/128?x")).read();
            assertEquals(200, response.status());
            assertArrayEquals(PayloadMaker.payload(128), response.body());
            assertEquals("text/plain", response.field("Content-Type"));
            assertEquals("wirespeed", response.field("Server"));
            assertTrue(response.field("Date").matches(
                    "\\w{3}, \\d\\d \\w{3} \\d{4} \\d\\d:\\d\\d:\\d\\d GMT"), response.head());
            assertNull(response.field("Connection"));
        }
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void a_connection_is_kept_and_pipelined_responses_are_in_order(Transport transport)
            throws Exception {
        for (int size = 1; size <= 40; size++) {
            Files.write(folder.resolve(String.valueOf(size)), PayloadMaker.payload(size));
        }
        try (Running server = Running.root(transport, folder, false);
                RawClient client = server.connect()) {
            StringBuilder all = new StringBuilder();
            for (int size = 1; size <= 40; size++) {
                all.append(RawClient.get("/" + size));
            }
            client.send(all.toString());
            for (int size = 1; size <= 40; size++) {
                assertEquals(size, client.read().body().length);
            }
            assertEquals(200, client.send(RawClient.get("/7")).read().status());
        }
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void a_long_unread_pipeline_gets_responses_when_the_client_reads(Transport transport)
            throws Exception {
        int count = 3000;
        try (Running server = Running.payload(transport, 4096); RawClient client = server.connect()) {
            Thread sender = new Thread(() -> {
                try {
                    for (int each = 0; each < count; each++) {
                        client.send(RawClient.get("/"));
                    }
                } catch (IOException ended) {
                    // the reader below notices what is missing
                }
            });
            sender.start();
            for (int each = 0; each < count; each++) {
                assertEquals(4096, client.read().body().length);
            }
            sender.join();
        }
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void large_files_arrive_whole_and_keep_their_turn(Transport transport) throws Exception {
        Files.write(folder.resolve("large"), PayloadMaker.payload(LARGE_BYTES));
        Files.write(folder.resolve("small"), PayloadMaker.payload(10));
        try (Running server = Running.root(transport, folder, false);
                RawClient client = server.connect()) {
            client.send(RawClient.get("/large") + RawClient.get("/small") + RawClient.get("/large"));
            assertArrayEquals(PayloadMaker.payload(LARGE_BYTES), client.read().body());
            assertEquals(10, client.read().body().length);
            assertEquals(LARGE_BYTES, client.read().body().length);
            client.send("HEAD /large HTTP/1.1\r\nHost: x\r\n\r\n");
            assertEquals("" + LARGE_BYTES, client.readHead().field("Content-Length"));
            client.send("GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            assertEquals(LARGE_BYTES, client.read().body().length);
            assertNull(client.read());
        }
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void a_large_payload_is_sent_without_being_copied(Transport transport) throws Exception {
        int bytes = 1 << 20;
        try (Running server = Running.payload(transport, bytes); RawClient client = server.connect()) {
            client.send(RawClient.get("/") + RawClient.get("/"));
            assertEquals(bytes, client.read().body().length);
            assertArrayEquals(PayloadMaker.payload(bytes), client.read().body());
        }
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void head_has_the_length_of_get_and_no_body(Transport transport) throws Exception {
        try (Running server = Running.payload(transport, 512); RawClient client = server.connect()) {
            client.send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n" + RawClient.get("/"));
            assertEquals("512", client.readHead().field("Content-Length"));
            assertEquals(512, client.read().body().length);
        }
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void close_and_version_1_0_end_the_connection(Transport transport) throws Exception {
        try (Running server = Running.payload(transport, 1)) {
            try (RawClient client = server.connect()) {
                client.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
                assertEquals("close", client.read().field("Connection"));
                assertNull(client.read());
            }
            try (RawClient client = server.connect()) {
                client.send("GET / HTTP/1.0\r\n\r\n");
                assertEquals(1, client.readAll().size());
            }
            try (RawClient client = server.connect()) {
                String kept = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
                assertEquals("keep-alive", client.send(kept).read().field("Connection"));
                assertEquals(200, client.send(kept).read().status());
            }
        }
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void an_unrequested_close_does_not_reset_bytes_that_the_client_still_sends(
            Transport transport) throws Exception {
        for (int turn = 1;; turn++) {
            long begin = System.nanoTime();
            try {
                sendBehindTheEnd(transport);
                return;
            } catch (IOException reset) {
                // The server reads on for a second or two: a delayed client has another turn.
                if (turn == 10 || System.nanoTime() - begin < 900_000_000) {
                    throw reset;
                }
            }
        }
    }

    private static void sendBehindTheEnd(Transport transport) throws Exception {
        try (Running server = Running.payload(transport, 16); RawClient client = server.connect()) {
            client.send("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n");
            assertEquals(405, client.read().status());
            for (int sent = 0; sent < 5; sent++) {
                client.send(RawClient.get("/behind"));
                Thread.sleep(20);
            }
            assertNull(client.finish().read());
        }
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void no_path_leads_out_of_the_root(Transport transport) throws Exception {
        Path root = Files.createDirectory(folder.resolve("root"));
        Files.writeString(folder.resolve("secret"), "secret");
        Files.writeString(root.resolve("file"), "file");
        Files.createDirectory(root.resolve("folder"));
        Files.createSymbolicLink(root.resolve("out"), folder.resolve("secret"));
        Files.createSymbolicLink(root.resolve("up"), folder);
        Files.createSymbolicLink(root.resolve("in"), root.resolve("file"));
        try (Running server = Running.root(transport, root, false);
                RawClient client = server.connect()) {
            for (String target : List.of("/../secret", "/x/../../secret", "/%2e%2e/secret",
                    "/..%2fsecret", "/%2E%2E%2Fsecret", "/.\\..\\secret", "/%00file", "/file%0a",
                    "/..", "/%zz", "/%4", "/./file", "/%c3%28")) {
                assertEquals(400, client.send(RawClient.get(target)).read().status(), target);
            }
            for (String target : List.of("/out", "/up/secret", "/folder", "/folder/", "/", "//file",
                    "/file/", "/missing", "/" + "a".repeat(300))) {
                assertEquals(404, client.send(RawClient.get(target)).read().status(), target);
            }
            for (String target : List.of("/file", "/fil%65", "/in", "/file?x=../..")) {
                assertEquals("file", client.send(RawClient.get(target)).read().text(), target);
            }
        }
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void a_head_that_takes_too_long_is_408_and_an_idle_connection_ends(Transport transport)
            throws Exception {
        try (Running server = Running.payload(transport, 1);
                RawClient slow = server.connect(); RawClient idle = server.connect()) {
            idle.send(RawClient.get("/")).read();
            slow.send(RawClient.get("/") + "GET / HT").read();
            awaitDeadline(server, 11);
            server.advance(11);
            assertEquals(408, slow.finish().read().status());
            assertNull(slow.read());
            assertEquals(200, idle.send(RawClient.get("/")).read().status());
            // The server's own tick may have set the clock back to the time of day in between.
            server.advance(11 + 301);
            assertNull(idle.read());
        }
    }

    /** The partial head may arrive in a separate read, after the first response. */
    private static void awaitDeadline(Running server, int withinS) throws Exception {
        Loop loop = server.server.loops().iterator().next();
        for (int attempt = 0; attempt < 12_000; attempt++) {
            long soonest = loop.executor.submit(loop::soonestDeadlineS).get();
            if (soonest - loop.nowS <= withinS) {
                return;
            }
            Thread.sleep(5);
        }
        throw new AssertionError("no connection waits for the rest of a head");
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void stopping_finishes_read_requests_and_closes_connections(Transport transport)
            throws Exception {
        Running server = Running.payload(transport, 1 << 20);
        try (server; RawClient idle = server.connect(); RawClient busy = server.connect()) {
            idle.send(RawClient.get("/")).read();
            busy.send(RawClient.get("/"));
            Thread stopper = new Thread(server::stop);
            // The response has started when stopping starts: its first byte is there.
            RawClient.Response first = busy.readHead();
            stopper.start();
            assertEquals(1 << 20, Integer.parseInt(first.field("Content-Length")));
            assertEquals(1 << 20, busy.drain());
            assertNull(idle.read());
            stopper.join();
            assertThrows(IOException.class, server::connect);
        }
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void a_request_allocates_less_than_a_kibibyte(Transport transport) throws Exception {
        Files.write(folder.resolve("128"), PayloadMaker.payload(128));
        var threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
        try (Running server = Running.root(transport, folder, false);
                RawClient client = server.connect()) {
            long thread = server.server.loops().iterator().next().executor
                    .submit(() -> Thread.currentThread().getId()).get();
            exchange(client, 3000);
            long bytes = Long.MAX_VALUE;
            long end = System.nanoTime() + 60_000_000_000L;
            // Until the compiler had its turn, which other work on the machine may put off.
            while (bytes >= 1024 && System.nanoTime() < end) {
                long before = threads.getThreadAllocatedBytes(thread);
                exchange(client, 3000);
                bytes = (threads.getThreadAllocatedBytes(thread) - before) / 3000;
            }
            assertTrue(bytes < 1024, bytes + " bytes per request");
        }
    }

    private static void exchange(RawClient client, int times) throws IOException {
        for (int each = 0; each < times; each++) {
            assertEquals(128, client.send(RawClient.get("/128")).read().body().length);
        }
    }

    @Test
    void several_threads_share_the_connections() throws Exception {
        Settings settings = new Settings("127.0.0.1", 0, null, 9, Transport.NIO, 3, false);
        try (Running server = Running.with(settings)) {
            for (int each = 0; each < 9; each++) {
                try (RawClient client = server.connect()) {
                    assertEquals(9, client.send(RawClient.get("/")).read().body().length);
                }
            }
        }
    }

    @Test
    void a_port_in_use_is_one_line_that_names_it() throws Exception {
        try (Running server = Running.payload(Transport.NIO, 1)) {
            Settings same = new Settings("127.0.0.1", server.server.port(), null, 1, Transport.NIO,
                    1, false);
            IOException failure = assertThrows(IOException.class, () -> Server.start(same));
            assertEquals(1, failure.getMessage().lines().count());
            assertTrue(failure.getMessage().contains("127.0.0.1:" + server.server.port()));
            assertNotNull(failure.getCause());
        }
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void a_file_before_a_close_arrives_whole_despite_later_bytes(
            Transport transport) throws Exception {
        Files.write(folder.resolve("large"), PayloadMaker.payload(LARGE_BYTES));
        try (Running server = Running.root(transport, folder, false);
                RawClient client = server.connect()) {
            client.send("GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                    + "Content-Length: 10\r\n\r\n");
            Thread.sleep(100);
            client.send("0123456789");
            Thread.sleep(100);
            assertEquals(LARGE_BYTES, client.read().body().length);
            assertEquals(0, client.drain());
        }
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void a_request_after_a_file_that_is_sent_at_once_is_read_once(Transport transport)
            throws Exception {
        Files.write(folder.resolve("file"), PayloadMaker.payload(100_000));
        try (Running server = Running.root(transport, folder, false);
                RawClient client = server.connect()) {
            client.send("GET /file HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n");
            Thread.sleep(50);
            client.send("\r\n");
            assertEquals(100_000, client.read().body().length);
            client.send("0123456789" + RawClient.get("/file"));
            assertEquals(200, client.read().status());
        }
    }
}
