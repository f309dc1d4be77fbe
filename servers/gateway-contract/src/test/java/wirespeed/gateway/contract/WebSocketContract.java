// Switching protocols; a carrier that cannot do it does not join this contract.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
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
                        + " \"2s\"\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n");
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
            long longest = 0;
            boolean isInUse = true;
            for (int i = 0; i < 6; i++) {
                long before = System.nanoTime();
                client.sendTolerant("x", 1);
                Thread.sleep(400);
                isInUse = isEnded.getCount() == 1;
                longest = Math.max(longest, System.nanoTime() - before);
            }
            // A client that the machine held up has not used it.
            assertTrue(isInUse || longest > 1_500_000_000, "a tunnel in use was ended");
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
            Thread.sleep(3300);
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

    /** Takes what its client sends until that shuts its half, and says how many bytes it were. */
    private static boolean countsToTheEnd(RecordingOrigin.Seen seen, OutputStream out, Socket socket)
            throws IOException {
        out.write("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n".getBytes());
        int count = socket.getInputStream().readAllBytes().length;
        out.write(("heard " + count + ".").getBytes());
        return false;
    }

    @Test
    void data_of_an_origin_arrives_at_a_client_that_has_shut_its_half() throws Exception {
        Certificate certificate = new Certificate(folder);
        try (RecordingOrigin plain = new RecordingOrigin();
                RecordingOrigin encrypted = new RecordingOrigin(certificate.context()
                        .getServerSocketFactory().createServerSocket(0, 50, plain.address()));
                Carrier gateway = new Carrier(factory(), options(), "[tls]\norigin-ca = \""
                        + certificate.certificate + "\"\n[origins.o]\naddresses = [\"127.0.0.1:"
                        + plain.port() + "\"]\n[origins.tls]\ntls = true\nconnect = \"1m\"\naddresses = [\"127.0.0.1:"
                        + encrypted.port() + "\"]\n[[route]]\nprefix = \"/tls\"\norigins = [\"tls\"]\n"
                        + "[[route]]\norigins = [\"o\"]\n")) {
            plain.handler = WebSocketContract::countsToTheEnd;
            encrypted.handler = WebSocketContract::countsToTheEnd;
            for (String path : List.of("/ws", "/tls")) {
                for (boolean isAwaited : new boolean[] {true, false}) {
                    try (RawClient client = gateway.client()) {
                        client.send(ASK.replace("/ws", path) + (isAwaited ? "" : "abc"));
                        if (isAwaited) {
                            assertEquals(101, client.read().status());
                            client.send("abc");
                        }
                        client.socket.shutdownOutput();
                        if (!isAwaited) {
                            assertEquals(101, client.read().status());
                        }
                        assertEquals("heard 3.", client.readText(8), path + " " + isAwaited);
                        assertTrue(client.isClosed());
                    }
                }
            }
        }
    }

    @Test
    void a_handshake_passes_whole_both_ways() throws Exception {
        String fields = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                + "Sec-WebSocket-Protocol: chat, superchat\r\nOrigin: http://a\r\n"
                + "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits, x-own\r\n";
        String answered = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
                + "Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Extensions: permessage-deflate\r\n";
        try (RecordingOrigin origin = new RecordingOrigin();
                Carrier gateway = new Carrier(factory(), options(), "[origins.o]\naddresses ="
                        + " [\"127.0.0.1:" + origin.port() + "\"]\n");
                RawClient client = gateway.client()) {
            origin.handler = (seen, out, socket) -> {
                out.write(("HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n" + answered
                        + "\r\n").getBytes());
                return false;
            };
            client.send("GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n"
                    + "Upgrade: WebSocket\r\n" + fields + "\r\n");
            RawClient.Answer answer = client.read();
            assertEquals(101, answer.status());
            answered.lines().forEach(line -> assertTrue(answer.head().contains(line + "\r\n"), answer.head()));
            String asked = origin.seen.get(0).head();
            fields.lines().forEach(line -> assertTrue(asked.contains(line + "\r\n"), asked));
            assertTrue(client.isClosed());
        }
    }

    @Test
    void a_refused_handshake_is_a_response_and_frames_behind_it_are_refused() throws Exception {
        try (RecordingOrigin origin = new RecordingOrigin();
                Carrier gateway = new Carrier(factory(), options(), "[origins.o]\naddresses ="
                        + " [\"127.0.0.1:" + origin.port() + "\"]\n");
                RawClient client = gateway.client()) {
            origin.handler = (seen, out, socket) -> {
                RecordingOrigin.respond(out, 426, "Sec-WebSocket-Version: 13\r\nUpgrade: websocket\r\n", "");
                return true;
            };
            client.send(ASK.replace("13", "7"));
            RawClient.Answer refused = client.read();
            assertEquals(426, refused.status());
            assertEquals("13", refused.header("Sec-WebSocket-Version"));
            client.send(ASK + new String(frame(0x81, "GET /smuggled HTTP/1.1".getBytes(), true),
                    StandardCharsets.ISO_8859_1) + "\r\nHost: a\r\n\r\n");
            assertEquals(426, client.read().status());
            assertEquals(400, client.read().status());
            assertTrue(client.isClosed());
            assertEquals(2, origin.seen.size());
        }
    }

    /** What a case sends, as a client and as a server, and in pieces of how many bytes. */
    private record Frames(String name, byte[] fromClient, byte[] fromServer, int piece) {
    }

    private static List<Frames> frames() throws IOException {
        List<Frames> cases = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of("src/test/resources/websocket.cases"))) {
            if (line.isEmpty() || line.startsWith("#")) {
                continue;
            }
            String[] words = line.split(" +");
            ByteArrayOutputStream fromClient = new ByteArrayOutputStream();
            ByteArrayOutputStream fromServer = new ByteArrayOutputStream();
            int piece = Integer.MAX_VALUE;
            for (int i = 1; i < words.length; i++) {
                if (words[i].startsWith("pieces=")) {
                    piece = Integer.parseInt(words[i].substring(7));
                    continue;
                }
                int first = Integer.parseInt(words[i].substring(0, 2), 16);
                byte[] payload = payload(words[i].substring(3));
                fromClient.write(frame(first, payload, true));
                fromServer.write(frame(first, payload, false));
            }
            cases.add(new Frames(words[0], fromClient.toByteArray(), fromServer.toByteArray(), piece));
        }
        return cases;
    }

    /** As hexadecimal digits behind "=", or as a length. */
    private static byte[] payload(String text) {
        if (text.startsWith("=")) {
            return HexFormat.of().parseHex(text.substring(1));
        }
        byte[] payload = new byte[Integer.parseInt(text)];
        Arrays.fill(payload, (byte) '*');
        return payload;
    }

    /** RFC 6455 §5.2. */
    private static byte[] frame(int first, byte[] payload, boolean isMasked) {
        ByteBuffer frame = ByteBuffer.allocate(payload.length + 14).put((byte) first);
        int mask = isMasked ? 0x80 : 0;
        if (payload.length < 126) {
            frame.put((byte) (mask | payload.length));
        } else if (payload.length < 65_536) {
            frame.put((byte) (mask | 126)).putShort((short) payload.length);
        } else {
            frame.put((byte) (mask | 127)).putLong(payload.length);
        }
        byte[] key = {0x37, (byte) 0xfa, 0x21, 0x3d};
        if (isMasked) {
            frame.put(key);
        }
        for (int i = 0; i < payload.length; i++) {
            frame.put((byte) (payload[i] ^ (isMasked ? key[i & 3] : 0)));
        }
        return Arrays.copyOf(frame.array(), frame.position());
    }

    private static void write(OutputStream out, byte[] bytes, int piece) throws IOException {
        for (int at = 0; at < bytes.length; at += Math.min(piece, bytes.length - at)) {
            out.write(bytes, at, Math.min(piece, bytes.length - at));
        }
    }

    @Test
    void frames_of_every_kind_pass_unchanged_both_ways() throws Exception {
        List<Frames> cases = frames();
        try (RecordingOrigin origin = new RecordingOrigin();
                Carrier gateway = new Carrier(factory(), options(), "[origins.o]\naddresses ="
                        + " [\"127.0.0.1:" + origin.port() + "\"]\n");
                RawClient client = gateway.client()) {
            origin.handler = (seen, out, socket) -> {
                out.write("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n".getBytes());
                for (Frames one : cases) {
                    byte[] arrived = socket.getInputStream().readNBytes(one.fromClient().length);
                    if (!Arrays.equals(one.fromClient(), arrived)) {
                        return false;
                    }
                    write(out, one.fromServer(), one.piece());
                }
                return false;
            };
            client.send(ASK);
            assertEquals(101, client.read().status());
            for (Frames one : cases) {
                write(client.socket.getOutputStream(), one.fromClient(), one.piece());
                byte[] arrived = client.readBytes(one.fromServer().length);
                assertTrue(Arrays.equals(one.fromServer(), arrived), one.name());
            }
            assertTrue(client.isClosed());
        }
        assertTrue(cases.size() > 100, "the table is incomplete");
    }
}
