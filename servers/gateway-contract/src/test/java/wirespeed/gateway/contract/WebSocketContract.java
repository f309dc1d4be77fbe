// Switching protocols; a carrier that cannot do it does not join this contract.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Test;

abstract class WebSocketContract implements CarrierChoice {
    @org.junit.jupiter.api.io.TempDir
    java.nio.file.Path folder;

    static final String ASK = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"
            + "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n";

    @Test
    void bytes_pass_both_ways_after_the_origins_101() throws IOException {
        try (RecordingOrigin origin = new RecordingOrigin();
                Carrier gateway = new Carrier(factory(), options(), "[origins.o]\naddresses ="
                        + " [\"127.0.0.1:" + origin.port() + "\"]\n");
                RawClient client = gateway.client()) {
            origin.handler = (seen, out, socket) -> {
                assertEquals("websocket", seen.header("Upgrade"));
                out.write("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhi"
                        .getBytes());
                for (int i = 0; i < 3; i++) {
                    out.write(socket.getInputStream().read() + 1);
                }
                return false;
            };
            client.send(ASK);
            RawClient.Answer answer = client.read();
            assertEquals(101, answer.status());
            assertEquals("websocket", answer.header("Upgrade"));
            assertEquals('h', client.readByte());
            assertEquals('i', client.readByte());
            client.send("a");
            assertEquals('b', client.readByte());
            client.send("bc");
            assertEquals('c', client.readByte());
            assertEquals('d', client.readByte());
            assertTrue(client.isClosed());
        }
    }

    @Test
    void a_long_upload_goes_on_after_the_origin_has_paused() throws Exception {
        int length = 16 << 20;
        AtomicInteger sent = new AtomicInteger();
        try (RecordingOrigin origin = new RecordingOrigin();
                Carrier gateway = new Carrier(factory(), options(), "[origins.o]\naddresses ="
                        + " [\"127.0.0.1:" + origin.port() + "\"]\n");
                RawClient client = gateway.client()) {
            origin.handler = (seen, out, socket) -> {
                out.write("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
                        .getBytes());
                awaitStandstill(sent);
                socket.getInputStream().readNBytes(length);
                out.write('!');
                return false;
            };
            client.send(ASK);
            assertEquals(101, client.read().status());
            Thread sender = new Thread(() -> {
                for (; sent.get() < length; sent.addAndGet(1 << 16)) {
                    client.sendTolerant("u".repeat(1 << 16), 1 << 16);
                }
            });
            sender.setDaemon(true);
            sender.start();
            assertEquals('!', client.readByte());
        }
    }

    /** Until everything on the way is full. */
    private static void awaitStandstill(AtomicInteger sent) {
        int before = -1;
        while (sent.get() == 0 || sent.get() != before) {
            before = sent.get();
            LockSupport.parkNanos(500_000_000);
        }
    }

    @Test
    void a_tunnel_that_carries_nothing_ends_and_one_that_carries_something_lasts()
            throws Exception {
        try (RecordingOrigin origin = new RecordingOrigin();
                Carrier gateway = new Carrier(factory(), options(), "[origins.o]\nbody-idle ="
                        + " \"3s\"\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n");
                RawClient client = gateway.client()) {
            java.util.concurrent.CountDownLatch isEnded = new java.util.concurrent.CountDownLatch(1);
            origin.handler = (seen, out, socket) -> {
                out.write("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
                        .getBytes());
                try {
                    while (socket.getInputStream().read() >= 0) {
                        // Says nothing of its own.
                    }
                } finally {
                    isEnded.countDown();
                }
                return false;
            };
            client.send(ASK);
            assertEquals(101, client.read().status());
            for (int i = 0; i < 8; i++) {
                client.send("x");
                Thread.sleep(500);
            }
            assertEquals(1, isEnded.getCount(), "a tunnel in use was ended");
            assertTrue(client.isClosed());
            assertTrue(isEnded.await(60, java.util.concurrent.TimeUnit.SECONDS));
        }
    }

    @Test
    void a_tunnel_outlasts_the_time_in_which_an_origin_must_answer() throws Exception {
        try (RecordingOrigin origin = new RecordingOrigin();
                Carrier gateway = new Carrier(factory(), options(), "[origins.o]\nresponse ="
                        + " \"3s\"\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n");
                RawClient client = gateway.client()) {
            origin.handler = (seen, out, socket) -> {
                out.write("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
                        .getBytes());
                out.write(socket.getInputStream().read() + 1);
                return false;
            };
            client.send(ASK);
            assertEquals(101, client.read().status());
            Thread.sleep(4500);
            client.send("a");
            assertEquals('b', client.readByte());
        }
    }

    @Test
    void a_switch_of_protocols_speaks_for_its_address() throws IOException {
        try (RecordingOrigin origin = new RecordingOrigin();
                Carrier gateway = new Carrier(factory(), options(), "[origins.o]\nretries = 0\n"
                        + "persistence = \"cookie\"\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n")) {
            origin.handler = (seen, out, socket) -> {
                if (seen.header("Upgrade") != null) {
                    out.write("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
                            .getBytes());
                }
                return false;
            };
            for (String path : List.of("/1", "/2", "/3", "/4", "/ws", "/5")) {
                try (RawClient client = gateway.client()) {
                    if (path.equals("/ws")) {
                        client.send(ASK);
                        RawClient.Answer answer = client.read();
                        assertEquals(101, answer.status());
                        assertTrue(answer.header("Set-Cookie") != null, answer.head());
                    } else {
                        assertEquals(502, client.get(path).status());
                    }
                }
            }
            assertFalse(gateway.runtime.gateway().snapshot().origins().get("o").addresses().get(0)
                    .breaker().isOpen(), "five failures in a row, with a success among them");
        }
    }

    @Test
    void an_unrequested_101_is_a_502() throws IOException {
        try (RecordingOrigin origin = new RecordingOrigin();
                Carrier gateway = new Carrier(factory(), options(), "[origins.o]\naddresses ="
                        + " [\"127.0.0.1:" + origin.port() + "\"]\n[[route]]\norigins = [\"o\"]\n"
                        + "upgrade = false\n");
                RawClient client = gateway.client()) {
            origin.handler = (seen, out, socket) -> {
                out.write("HTTP/1.1 101 X\r\nUpgrade: websocket\r\n\r\n".getBytes());
                return false;
            };
            client.send(ASK);
            assertEquals(502, client.read().status());
        }
    }

    @Test
    void a_101_to_another_protocol_is_a_502() throws IOException {
        for (String upgrade : List.of("", "Upgrade: h2c\r\n", "Upgrade: websocket, h2c\r\n")) {
            try (RecordingOrigin origin = new RecordingOrigin();
                    Carrier gateway = new Carrier(factory(), options(), "[origins.o]\naddresses ="
                            + " [\"127.0.0.1:" + origin.port() + "\"]\n");
                    RawClient client = gateway.client()) {
                origin.handler = (seen, out, socket) -> {
                    out.write(("HTTP/1.1 101 X\r\nConnection: upgrade\r\n" + upgrade + "\r\n").getBytes());
                    return socket.getInputStream().read() >= 0;
                };
                client.send(ASK);
                assertEquals(502, client.read().status(), upgrade);
            }
        }
    }

    @Test
    void only_a_get_without_a_body_may_switch() throws IOException {
        String body = ASK.replace("Sec-WebSocket-Version: 13\r\n", "Content-Length: 3\r\n") + "abc";
        try (RecordingOrigin origin = new RecordingOrigin();
                Carrier gateway = new Carrier(factory(), options(), "[origins.o]\naddresses ="
                        + " [\"127.0.0.1:" + origin.port() + "\"]\n")) {
            String chunked = body.replace("Content-Length: 3", "Transfer-Encoding: chunked").replace("abc", "0\r\n\r\n");
            for (String ask : List.of(body, chunked, ASK.replace("GET", "POST"),
                    ASK.replace("HTTP/1.1", "HTTP/1.0"))) {
                origin.handler = RecordingOrigin::ordinary;
                try (RawClient client = gateway.client()) {
                    client.send(ask);
                    assertEquals(200, client.read().status(), ask);
                }
                RecordingOrigin.Seen seen = origin.seen.get(origin.seen.size() - 1);
                assertNull(seen.header("Upgrade"), seen.head());
                origin.handler = (request, out, socket) -> {
                    out.write("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n".getBytes());
                    return false;
                };
                try (RawClient client = gateway.client()) {
                    client.send(ask);
                    assertEquals(502, client.read().status(), ask);
                }
            }
        }
    }

    @Test
    void what_a_client_sent_before_it_closed_reaches_a_slow_origin() throws Exception {
        int length = 3 << 20;
        java.util.concurrent.CompletableFuture<Integer> arrived =
                new java.util.concurrent.CompletableFuture<>();
        try (RecordingOrigin origin = new RecordingOrigin();
                Carrier gateway = new Carrier(factory(), options(), "[origins.o]\naddresses ="
                        + " [\"127.0.0.1:" + origin.port() + "\"]\n[[filter]]\n"
                        + "type = \"access-log\"\nfile = \"" + folder.resolve("log") + "\"\n"
                        + "format = \"{status} {category}\"\n");
                RawClient client = gateway.client()) {
            origin.handler = (seen, out, socket) -> {
                out.write("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
                        .getBytes());
                LockSupport.parkNanos(700_000_000);
                try {
                    arrived.complete(socket.getInputStream().readAllBytes().length);
                } catch (IOException reset) {
                    arrived.completeExceptionally(reset);
                }
                return false;
            };
            client.send(ASK);
            assertEquals(101, client.read().status());
            client.send("u".repeat(length));
            client.socket.shutdownOutput();
            assertEquals(length, arrived.get(60, java.util.concurrent.TimeUnit.SECONDS));
            assertTrue(client.isClosed());
        }
        assertEquals("101 ok\n", java.nio.file.Files.readString(folder.resolve("log")));
    }
}
