/** The stub over real sockets, on each transport that the machine has. */
package wirespeed.stuborigin;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(120)
class OriginTest {
    private static final int CONNECTIONS = 500;

    private static Server start(String... args) throws IOException {
        String[] all = java.util.Arrays.copyOf(args, args.length + 2);
        all[args.length] = "--port";
        all[args.length + 1] = "0";
        Settings settings = Settings.of(new CommandLine(Settings.OPTIONS, all));
        Throwable unavailable = settings.transport().unavailable();
        Assumptions.assumeTrue(unavailable == null, () -> String.valueOf(unavailable));
        return Server.start(settings);
    }

    private static String get(String... fields) {
        return "GET /x HTTP/1.1\r\nHost: x\r\n" + String.join("", fields) + "\r\n";
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void each_response_carries_its_requests_id_and_its_connections_number(Transport transport)
            throws Exception {
        try (Closing server = new Closing(start("--transport", transport.word(), "--latency", "20ms",
                "--distribution", "uniform", "--payload", "100"))) {
            List<RawClient> clients = new ArrayList<>();
            for (int each = 0; each < CONNECTIONS; each++) {
                clients.add(new RawClient(server.port()));
            }
            for (int round = 0; round < 3; round++) {
                for (int each = 0; each < CONNECTIONS; each++) {
                    clients.get(each).send(get("X-Request-Id: " + round + "-" + each + "\r\n"));
                }
                for (int each = 0; each < CONNECTIONS; each++) {
                    RawClient.Response response = clients.get(each).read();
                    assertEquals(round + "-" + each, response.field("X-Request-Id"));
                    assertEquals(100, response.body().length);
                    assertEquals(each + 1, Integer.parseInt(response.field("X-Connection")));
                }
            }
            for (RawClient client : clients) {
                client.close();
            }
        }
    }

    @Test
    void a_response_comes_not_before_its_latency() throws Exception {
        try (Closing server = new Closing(start("--latency", "30ms"));
                RawClient client = new RawClient(server.port())) {
            for (int each = 0; each < 5; each++) {
                long before = System.nanoTime();
                client.send(get()).read();
                assertTrue(System.nanoTime() - before >= 30_000_000);
            }
            long before = System.nanoTime();
            client.send(get("X-Stub-Latency: 90ms\r\n")).read();
            assertTrue(System.nanoTime() - before >= 90_000_000);
        }
    }

    @Test
    void chunks_carry_the_same_bytes_as_a_length() throws Exception {
        try (Closing plain = new Closing(start("--latency", "0", "--payload", "1000", "--seed", "9"));
                Closing chunked = new Closing(start("--latency", "0", "--payload", "1000", "--seed",
                        "9", "--chunked", "300"));
                RawClient one = new RawClient(plain.port());
                RawClient two = new RawClient(chunked.port())) {
            byte[] first = one.send(get()).read().body();
            assertEquals(1000, first.length);
            assertArrayEquals(first, two.send(get()).read().body());
            assertNotEquals(List.of(first), List.of(two.send(get()).read().body()));
            // HTTP/1.0 has no chunks.
            two.send("GET / HTTP/1.0\r\n\r\n");
            assertEquals("1000", two.read().field("Content-Length"));
            assertNull(two.read());
        }
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void bodies_and_pipelined_requests_are_read_to_their_end(Transport transport) throws Exception {
        try (Closing server = new Closing(start("--transport", transport.word(), "--latency", "1ms",
                "--payload", "3"));
                RawClient client = new RawClient(server.port())) {
            client.send("POST / HTTP/1.1\r\nX-Request-Id: 1\r\nContent-Length: 5\r\n\r\nGET /"
                    + "POST / HTTP/1.1\r\nX-Request-Id: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
                    + "5;a=b\r\nGET /\r\n0\r\nT: 1\r\n\r\n"
                    + "HEAD / HTTP/1.1\r\nX-Request-Id: 3\r\n\r\n" + get("X-Request-Id: 4\r\n"));
            assertEquals("1", client.read().field("X-Request-Id"));
            assertEquals("2", client.read().field("X-Request-Id"));
            assertEquals("3", client.readHead().field("X-Request-Id"));
            assertEquals("4", client.read().field("X-Request-Id"));
            client.send(get() + get() + get()).finish();
            for (int each = 0; each < 3; each++) {
                assertEquals(3, client.read().body().length);
            }
            assertNull(client.read());
        }
    }

    @Test
    void a_request_may_arrive_byte_by_byte() throws Exception {
        try (Closing server = new Closing(start("--latency", "0", "--payload", "3"));
                RawClient client = new RawClient(server.port())) {
            for (byte each : ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nX-Request-Id: ab\r\n\r\n"
                    + "3\r\nabc\r\n0\r\n\r\n").getBytes(StandardCharsets.US_ASCII)) {
                client.send(new byte[] {each});
            }
            assertEquals("ab", client.read().field("X-Request-Id"));
        }
    }

    @Test
    void a_client_that_expects_continue_gets_it_before_the_body() throws Exception {
        try (Closing server = new Closing(start("--latency", "0", "--payload", "3"));
                RawClient client = new RawClient(server.port())) {
            client.send("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
            assertEquals(100, client.readHead().status());
            assertEquals(200, client.send("ab").read().status());
        }
    }

    @Test
    void requests_that_cannot_be_framed_are_refused() throws Exception {
        try (Closing server = new Closing(start("--latency", "0"))) {
            for (String bad : List.of("nonsense\r\n\r\n", "GET / HTTP/1.1\r\nnonsense\r\n\r\n",
                    "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
                    "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
                    get("X-Stub-Fault: unknown\r\n"), get("X-Stub-Latency: soon\r\n"))) {
                try (RawClient client = new RawClient(server.port())) {
                    assertEquals(400, client.send(bad).read().status(), bad);
                    assertNull(client.read());
                }
            }
        }
    }

    @Test
    void statuses_and_wrong_lengths_are_sent_on_request() throws Exception {
        try (Closing server = new Closing(start("--latency", "0", "--payload", "100"));
                RawClient client = new RawClient(server.port())) {
            assertEquals(500, client.send(fault("500")).read().status());
            assertEquals("1", client.send(fault("503")).read().field("Retry-After"));
            assertEquals(200, client.send(get()).read().status());
            client.send(fault("length-short"));
            assertEquals(100, client.read().body().length);
            assertEquals(Responses.LENGTH_ERROR_BYTES, client.finish().rest().length);
        }
        try (Closing server = new Closing(start("--latency", "0", "--payload", "100"));
                RawClient client = new RawClient(server.port())) {
            assertEquals("116", client.send(fault("length-long")).readHead().field("Content-Length"));
            assertEquals(100, client.rest().length);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"before", "head", "body"})
    void a_response_can_end_at_each_place(String place) throws Exception {
        try (Closing server = new Closing(start("--latency", "0", "--payload", "100"))) {
            int whole = 0;
            try (RawClient client = new RawClient(server.port())) {
                client.send("GET / HTTP/1.1\r\nConnection: keep-alive\r\n\r\n").finish();
                whole = client.rest().length;
            }
            int sent;
            try (RawClient client = new RawClient(server.port())) {
                sent = client.send(fault("close-" + place)).rest().length;
            }
            int head = whole - 100;
            int expected = switch (place) {
                case "before" -> 0;
                case "head" -> head / 2;
                default -> head + 50;
            };
            // The close of the first connection is announced in its head, or not.
            assertTrue(Math.abs(sent - expected) <= "Connection: close\r\n".length(), sent + " of " + whole);
            try (RawClient client = new RawClient(server.port())) {
                client.send(fault("reset-" + place));
                assertThrows(SocketException.class, client::rest);
            }
            try (RawClient client = new RawClient(server.port())) {
                client.send(fault("stall-" + place));
                client.timeout(300);
                assertThrows(SocketTimeoutException.class, client::rest);
            }
        }
    }

    @Test
    void garbage_is_invalid_http_and_drip_is_complete() throws Exception {
        try (Closing server = new Closing(start("--latency", "0", "--payload", "100"))) {
            try (RawClient client = new RawClient(server.port())) {
                byte[] garbage = client.send(fault("garbage")).rest();
                assertEquals(64, garbage.length);
                assertFalse(new String(garbage, StandardCharsets.ISO_8859_1).startsWith("HTTP/"));
            }
            try (RawClient client = new RawClient(server.port())) {
                assertEquals(100, client.send(fault("drip")).read().body().length);
                assertEquals(100, client.send(get()).read().body().length);
            }
        }
    }

    @Test
    void received_bytes_are_recorded_unchanged(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("record");
        try (Closing server = new Closing(start("--latency", "0", "--record", file.toString()));
                RawClient client = new RawClient(server.port())) {
            client.send("GET /\"\\ HTTP/1.1\r\nX: \u00e9\r\n\r\n").read();
            assertEquals("{\"connection\":1,\"bytes\":\"GET /\\u0022\\u005c HTTP/1.1\\u000d\\u000a"
                    + "X: \\u00e9\\u000d\\u000a\\u000d\\u000a\"}\n", Files.readString(file));
        }
    }

    @Test
    void stopping_finishes_waiting_requests() throws Exception {
        Server server = start("--latency", "2s", "--payload", "10");
        try (RawClient idle = new RawClient(server.port());
                RawClient busy = new RawClient(server.port())) {
            idle.send(get("X-Stub-Latency: 0\r\n")).read();
            // Pipelined after a request with a response: the second one was read when this returns.
            busy.send(get("X-Stub-Latency: 0\r\n") + get()).read();
            server.stop();
            assertEquals("close", busy.read().field("Connection"));
            assertNull(busy.read());
            assertNull(idle.read());
            assertTrue(server.totals().startsWith("answered 3 requests, latency mean "),
                    server.totals());
        }
    }

    private static String fault(String word) {
        return get("X-Stub-Fault: " + word + "\r\n");
    }

    /** A server as a resource. */
    private record Closing(Server server) implements AutoCloseable {
        int port() {
            return server.port();
        }

        @Override
        public void close() {
            server.stop();
        }
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void every_request_before_a_half_close_gets_a_response(Transport transport) throws Exception {
        try (Closing server = new Closing(start("--transport", transport.word(), "--latency", "0ms"));
                RawClient client = new RawClient(server.port())) {
            client.send(get("X-Stub-Latency: 200ms\r\n") + get() + get() + get());
            client.finish();
            for (int each = 0; each < 4; each++) {
                assertEquals(200, client.read().status());
            }
            assertNull(client.read());
        }
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void a_response_that_fills_the_socket_of_a_half_closed_client_comes_whole(Transport transport)
            throws Exception {
        try (Closing server = new Closing(start("--transport", transport.word(), "--latency", "200ms",
                "--payload", "16MiB"));
                RawClient client = new RawClient(server.port())) {
            client.send(get()).finish();
            assertEquals(16 << 20, client.read().body().length);
            assertNull(client.read());
        }
    }
}
