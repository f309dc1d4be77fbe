// HTTP/2 as attackers and old clients speak it, and the life of its connections.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.netty.Main;

/** A test that hangs has its name and all stacks printed: see junit-platform.properties. */
@Timeout(240)
class NettyHttp2Test {
    @TempDir
    static Path folder;
    private static Certificate certificate;
    private final List<AutoCloseable> opened = new ArrayList<>();
    private RecordingOrigin origin;
    private Carrier gateway;

    @BeforeAll
    static void make() throws Exception {
        certificate = new Certificate(folder);
    }

    @AfterAll
    static void forget() {
        certificate = null;
    }

    @AfterEach
    void close() throws Exception {
        for (int i = opened.size() - 1; i >= 0; i--) {
            opened.get(i).close();
        }
    }

    private void start(String originOptions, String more) throws Exception {
        origin = new RecordingOrigin();
        opened.add(origin);
        // A machine that stands still for a while in the middle of a handshake fails no test.
        gateway = new Carrier(Main::carrier, Map.of("server.transport", "epoll",
                "server.threads", "1", "timeouts.head", "2m"), "[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\n" + originOptions + "\n" + more + "\n[tls]\ncertificate = \""
                + certificate.certificate + "\"\nkey = \"" + certificate.key + "\"\n");
        opened.add(gateway);
    }

    private RawHttp2 client() throws Exception {
        RawHttp2 client = new RawHttp2(certificate.context(), gateway.address);
        opened.add(client);
        return client;
    }

    @Test
    void an_answer_to_head_has_no_data_when_filters_change_bodies() throws Exception {
        start("", "[[filter]]\ntype = \"compress\"\n");
        origin.handler = (seen, out, socket) -> {
            out.write("HTTP/1.1 200 X\r\nContent-Type: text/plain\r\nContent-Length: 5000\r\n\r\n"
                    .getBytes());
            return true;
        };
        RawHttp2 client = client();
        client.headers(1, true, ":method", "HEAD", ":scheme", "https", ":authority", "a", ":path",
                "/", "accept-encoding", "gzip");
        RawHttp2.Answer answer = client.read(1);
        assertEquals(200, answer.status());
        assertEquals("", answer.body());
    }

    @Test
    void heads_are_as_textas_those_of_http_1_may_be() throws Exception {
        start("", "[limits]\nhead = \"1KiB\"\nline = \"300B\"\n");
        RawHttp2 client = client();
        String[] fields = get();
        for (int i = 0; i < 9; i++) {
            fields = Stream.concat(Stream.of(fields), Stream.of("x-" + i, "v".repeat(100)))
                    .toArray(String[]::new);
            int stream = 2 * i + 1;
            client.headers(stream, true, fields);
            // The tenth part of a head each.
            assertEquals(i < 8 ? 200 : 431, client.read(stream).status(), i + " fields");
        }
        client.headers(21, true, ":method", "GET", ":scheme", "https", ":authority", "a", ":path",
                "/" + "p".repeat(120) + "?q");
        assertEquals(200, client.read(21).status());
    }

    @Test
    void a_call_of_grpc_learns_that_the_origin_is_down() throws Exception {
        start("", "");
        origin.close();
        RawHttp2 client = client();
        client.headers(1, true, ":method", "POST", ":scheme", "https", ":authority", "a", ":path",
                "/shop.Orders/Get", "content-type", "application/grpc");
        RawHttp2.Answer answer = client.read(1);
        assertEquals(200, answer.status());
        assertEquals("14", answer.heads().get(0).get("grpc-status").toString());
        assertEquals("application/grpc", answer.heads().get(0).get("content-type").toString());
        assertEquals("", answer.body());
    }

    private record Case(String name, String body, String trailer, String... fields) {
    }

    private static Case head(String name, String... fields) {
        return new Case(name, null, null, fields);
    }

    private static final String[] GET = {":method", "GET", ":scheme", "https", ":authority", "a",
        ":path", "/smuggled"};

    private static String[] get(String... more) {
        return Stream.concat(Stream.of(GET), Stream.of(more)).toArray(String[]::new);
    }

    private static String[] with(String name, String value) {
        String[] fields = GET.clone();
        for (int i = 0; i < fields.length; i += 2) {
            if (fields[i].equals(name)) {
                fields[i + 1] = value;
            }
        }
        return fields;
    }

    private static List<Case> cases() {
        return List.of(
                head("CRLF in path", with(":path", "/ HTTP/1.1\r\nX: y\r\n\r\nGET /smuggled")),
                head("space in path", with(":path", "/a HTTP/1.1")),
                head("fragment in path", with(":path", "/a#b")),
                head("NUL in path", with(":path", "/a\0b")),
                head("absolute form in path", with(":path", "http://b/smuggled")),
                head("asterisk for GET", with(":path", "*")),
                head("empty path", with(":path", "")),
                head("method with a space", with(":method", "GET / HTTP/1.1")),
                head("method with CRLF", with(":method", "GET\r\n")),
                head("CONNECT with a path", with(":method", "CONNECT")),
                head("scheme that is none", with(":scheme", "http://b/?")),
                head("user in authority", with(":authority", "u@b")),
                head("authority with a path", with(":authority", "b/c")),
                head("authority with CRLF", with(":authority", "b\r\nX: y")),
                head("no method", ":scheme", "https", ":authority", "a", ":path", "/"),
                head("no path", ":method", "GET", ":scheme", "https", ":authority", "a"),
                head("no scheme", ":method", "GET", ":authority", "a", ":path", "/"),
                head("no authority", ":method", "GET", ":scheme", "https", ":path", "/"),
                head("two methods", get(":method", "POST")),
                head("two paths", get(":path", "/b")),
                head("unknown pseudo-field", get(":what", "b")),
                head("pseudo-field behind a field", "x", "y", ":method", "GET", ":scheme", "https",
                        ":authority", "a", ":path", "/"),
                head("status in a request", get(":status", "200")),
                head("other Host", get("host", "b")),
                head("two Hosts", get("host", "a", "host", "a")),
                head("upper-case name", get("X-Up", "y")),
                head("name with colon", get("x:y", "z")),
                head("name with CRLF", get("x\r\ny", "z")),
                head("name with space", get("transfer-encoding ", "chunked")),
                head("empty name", get("", "z")),
                head("value with CRLF", get("x", "y\r\ntransfer-encoding: chunked")),
                head("value with LF", get("x", "y\nz: 1")),
                head("value with NUL", get("x", "y\0z")),
                head("value with a blank before it", get("x-role", " admin")),
                head("value with a blank behind it", get("x-role", "admin ")),
                head("value with a tab behind it", get("x-role", "admin\t")),
                head("cookie with a blank behind it", get("cookie", "a=b ")),
                head("Connection", get("connection", "close")),
                head("Transfer-Encoding", get("transfer-encoding", "chunked")),
                head("Upgrade", get("upgrade", "h2c")),
                head("Keep-Alive", get("keep-alive", "1")),
                head("Proxy-Connection", get("proxy-connection", "close")),
                head("HTTP2-Settings", get("http2-settings", "AAMAAABk")),
                head("TE that is not trailers", get("te", "gzip")),
                head("length without a body", get("content-length", "5")),
                head("two lengths", get("content-length", "0", "content-length", "5")),
                head("length with a sign", get("content-length", "+0")),
                head("other expectation", get("expect", "miracles")),
                new Case("body shorter than its length", "abc", null, get("content-length", "5")),
                new Case("body longer than its length", "abcdefgh", null,
                        get("content-length", "5")),
                new Case("body where none was announced", "abc", null, get("content-length", "0")),
                new Case("body shorter than its length, trailers", "abc", "x",
                        get("content-length", "5")),
                new Case("pseudo-field in trailers", "abcde", ":path",
                        get("content-length", "5")),
                new Case("Transfer-Encoding with a body", "0\r\n\r\nGET /smuggled", null,
                        get("transfer-encoding", "chunked")));
    }

    @TestFactory
    Stream<DynamicTest> what_http_1_could_not_say_is_refused() throws Exception {
        start("", "");
        return cases().stream().map(one -> DynamicTest.dynamicTest(one.name(), () -> refuse(one)));
    }

    private void refuse(Case one) throws Exception {
        origin.seen.clear();
        try (RawHttp2 client = new RawHttp2(certificate.context(), gateway.address)) {
            client.headers(1, one.body() == null, one.fields());
            if (one.body() != null) {
                client.data(1, one.trailer() == null, one.body());
            }
            if (one.trailer() != null) {
                client.headers(1, true, one.trailer(), "1");
            }
            RawHttp2.Answer answer = client.read(1);
            assertTrue(answer.status() == 0 || answer.status() >= 400,
                    "status " + answer.status() + ", reset " + answer.reset());
        }
        assertEquals(List.of(), origin.seen, "reached the origin");
        try (RawHttp2 client = new RawHttp2(certificate.context(), gateway.address)) {
            client.headers(1, true, with(":path", "/behind"));
            RawHttp2.Answer answer = client.read(1);
            assertEquals("GET /behind HTTP/1.1|", answer.body());
        }
    }

    @Test
    void a_refused_stream_does_not_disturb_the_others() throws Exception {
        start("", "");
        RawHttp2 client = client();
        for (int stream = 1; stream < 40; stream += 4) {
            client.headers(stream, false, get("content-length", "5"));
            client.data(stream, false, "abcdefgh");
            client.data(stream, true, "abcdefgh");
            client.headers(stream + 2, true, with(":path", "/" + stream));
            assertEquals("GET /" + stream + " HTTP/1.1|", client.read(stream + 2).body());
        }
        assertEquals(10, origin.seen.size(), origin.seen.toString());
    }

    /** Sends the same frame again and again; whether the gateway ends the connection over it. */
    private boolean isFloodEnded(int type, int flags, int stream, byte[] payload, int count)
            throws Exception {
        RawHttp2 client = client();
        client.headers(1, false, with(":path", "/open"));
        try {
            client.frames(count, type, flags, stream, payload);
        } catch (java.io.IOException ended) {
            return true;
        }
        return client.isClosed();
    }

    /** Whether the gateway ends the connection over a head that goes on and on in such pieces. */
    private boolean isEndlessHeadEnded(byte[] piece) throws Exception {
        RawHttp2 client = client();
        client.frame(1, 0, 1, new byte[0]);
        try {
            client.frames(3000, 9, 0, 1, piece);
        } catch (java.io.IOException ended) {
            return true;
        }
        return client.isClosed();
    }

    @Test
    void a_head_of_endless_pieces_ends_its_connection() throws Exception {
        start("", "");
        assertTrue(isEndlessHeadEnded(new byte[0]), "empty CONTINUATION");
        // ":method: GET" by its place in HPACK's table.
        assertTrue(isEndlessHeadEnded(new byte[] {(byte) 0x82}), "short CONTINUATION");
        byte[] many = new byte[1000];
        java.util.Arrays.fill(many, (byte) 0x82);
        assertTrue(isEndlessHeadEnded(many), "long CONTINUATION");
        RawHttp2 client = client();
        client.headers(1, true, with(":path", "/after"));
        assertEquals("GET /after HTTP/1.1|", client.read(1).body());
        assertEquals(1, origin.seen.size());
    }

    @Test
    void floods_of_frames_that_cost_nothing_end_their_connection() throws Exception {
        start("", "");
        assertTrue(isFloodEnded(4, 0, 0, new byte[0], 200), "SETTINGS");
        assertTrue(isFloodEnded(6, 0, 0, new byte[8], 3000), "PING");
        assertTrue(isFloodEnded(2, 0, 1, new byte[] {0, 0, 0, 0, 1}, 3000), "PRIORITY");
        assertTrue(isFloodEnded(8, 0, 0, new byte[] {0, 0, 0, 1}, 3000), "WINDOW_UPDATE");
        assertTrue(isFloodEnded(99, 0, 0, new byte[3], 3000), "unknown type");
        assertTrue(isFloodEnded(0, 0, 1, new byte[1], 11_000), "tiny DATA");
        RawHttp2 client = client();
        client.headers(1, true, with(":path", "/after"));
        assertEquals("GET /after HTTP/1.1|", client.read(1).body());
    }

    @Test
    void resets_that_a_client_provokes_are_bounded_as_its_own() throws Exception {
        start("", "");
        RawHttp2 client = client();
        int streams = 0;
        try {
            for (int stream = 1; stream < 4000; stream += 2) {
                client.headers(stream, true, with(":path", "/made"));
                client.data(stream, true, "behind the end");
                streams++;
                if (streams % 50 == 0) {
                    Thread.sleep(50);
                }
            }
        } catch (java.io.IOException ended) {
            // As it should be.
        }
        assertTrue(client.isClosed());
        assertTrue(origin.seen.size() < 600, origin.seen.size() + " requests reached the origin");
    }

    @Test
    void requests_that_are_reset_in_the_same_breath_cost_the_origin_nothing() throws Exception {
        start("", "");
        RawHttp2 client = client();
        for (int stream = 1; stream < 200; stream += 2) {
            client.resetAtOnce(stream, with(":path", "/reset"));
        }
        client.headers(201, true, with(":path", "/kept"));
        assertEquals("GET /kept HTTP/1.1|", client.read(201).body());
        assertEquals(List.of("GET /kept HTTP/1.1"),
                origin.seen.stream().map(RecordingOrigin.Seen::line).toList());
        assertEquals(1, origin.connections.get());
    }

    @Test
    void the_connection_that_a_reset_request_asked_for_serves_the_next_one() throws Exception {
        // An origin that never answers a handshake: every connection stays on its way.
        RecordingOrigin silent = new RecordingOrigin();
        opened.add(silent);
        start("", "");
        gateway.close();
        gateway = new Carrier(Main::carrier, Map.of("server.threads", "1", "server.h2c", "true"),
                "[origins.o]\ntls = true\nconnect = \"1m\"\naddresses = [\"127.0.0.1:" + silent.port() + "\"]\n");
        opened.add(gateway);
        RawHttp2 client = new RawHttp2(new java.net.Socket(gateway.address.getAddress(),
                gateway.address.getPort()));
        opened.add(client);
        String[] get = {":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/"};
        for (int stream = 1; stream < 60; stream += 2) {
            client.headers(stream, true, get);
            Thread.sleep(10);
            client.reset(stream);
        }
        assertTrue(silent.connections.get() < 5,
                silent.connections + " connections for requests that were not sent");
    }

    @Test
    void an_upload_that_waits_for_its_origin_does_not_hold_up_the_others() throws Exception {
        RecordingOrigin busy = new RecordingOrigin();
        opened.add(busy);
        CountDownLatch mayAnswer = new CountDownLatch(1);
        busy.handler = (seen, out, socket) -> {
            RecordingOrigin.awaitQuietly(mayAnswer);
            RecordingOrigin.respond(out, 200, "", String.valueOf(seen.body().length()));
            return true;
        };
        start("", "[origins.busy]\naddresses = [\"127.0.0.1:" + busy.port()
                + "\"]\nconnections = 1\nresponse = \"2m\"\n[[route]]\nprefix = \"/busy\"\norigins = [\"busy\"]\n"
                + "[[route]]\norigins = [\"o\"]\n[timeouts]\npool-wait = \"2m\"\n");
        RawHttp2 client = client();
        client.headers(1, true, with(":path", "/busy/first"));
        awaitInFlight(1);
        int waiting = 6;
        for (int i = 0; i < waiting; i++) {
            // Each sends as much as it may without being read.
            int stream = 3 + 2 * i;
            client.headers(stream, false, post("/busy/waits"));
            awaitInFlight(2 + i);
            for (int piece = 0; piece < 4; piece++) {
                client.data(stream, false, "w".repeat(piece < 3 ? 16_384 : 16_383));
            }
        }
        client.headers(31, false, post("/goes-on"));
        awaitInFlight(2 + waiting);
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "", String.valueOf(seen.body().length()));
            return true;
        };
        int healthy = 20 * 15_000;
        for (int sent = 15_000; sent <= healthy; sent += 15_000) {
            client.awaitWindow(31, 15_000);
            client.data(31, sent == healthy, "g".repeat(15_000));
        }
        assertEquals(String.valueOf(healthy), client.read(31).body());
        mayAnswer.countDown();
        for (int i = 0; i < waiting; i++) {
            client.data(3 + 2 * i, true, "");
            assertEquals("65535", client.read(3 + 2 * i).body());
        }
        assertTrue(held() > 0, "nothing was reserved for the wider window");
        // The window that the client was granted is over when it has used it, on a connection that stays.
        for (int stream = 33; stream < 200 && held() > 0; stream += 2) {
            client.headers(stream, false, post("/again"));
            client.data(stream, true, "a".repeat((int) Math.min(16_000, client.window)));
            assertEquals(200, client.read(stream).status());
        }
        assertEquals(0, held());
    }

    @Test
    void an_upload_that_begins_behind_one_that_waits_is_not_held_up_by_it() throws Exception {
        CountDownLatch mayAnswer = new CountDownLatch(1);
        RecordingOrigin busy = new RecordingOrigin();
        opened.add(busy);
        busy.handler = (seen, out, socket) -> {
            RecordingOrigin.awaitQuietly(mayAnswer);
            RecordingOrigin.respond(out, 200, "", "late");
            return true;
        };
        start("", "[origins.busy]\naddresses = [\"127.0.0.1:" + busy.port()
                + "\"]\nconnections = 1\nresponse = \"2m\"\n[[route]]\nprefix = \"/busy\"\norigins = [\"busy\"]\n"
                + "[[route]]\norigins = [\"o\"]\n[timeouts]\npool-wait = \"2m\"\n");
        RawHttp2 first = client();
        first.headers(1, true, with(":path", "/busy/first"));
        awaitInFlight(1);
        RawHttp2 client = client();
        // A connection that is open already: the upload below waits for nothing.
        client.headers(1, true, GET);
        assertEquals(200, client.read(1).status());
        client.headers(3, false, post("/busy/waits"));
        awaitInFlight(2);
        for (int piece = 0; piece < 4; piece++) {
            client.data(3, false, "w".repeat(piece < 3 ? 16_384 : 16_383));
        }
        client.headers(5, false, post("/goes-on"));
        client.awaitWindow(5, 15_000);
        client.data(5, true, "g".repeat(15_000));
        assertEquals(200, client.read(5).status());
        mayAnswer.countDown();
        client.data(3, true, "");
        assertEquals("late", client.read(3).body());
    }

    @Test
    void an_upload_that_waits_for_its_origin_arrives_whole_and_in_order() throws Exception {
        CountDownLatch mayAnswer = new CountDownLatch(1);
        start("connections = 1\nresponse = \"2m\"\nrequest-trailers = true", "[timeouts]\npool-wait = \"2m\"\n");
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.awaitQuietly(mayAnswer);
            RecordingOrigin.respond(out, 200, "", seen.body());
            return true;
        };
        RawHttp2 client = client();
        client.headers(1, true, with(":path", "/first"));
        awaitInFlight(1);
        client.headers(3, false, post("/waits"));
        awaitInFlight(2);
        StringBuilder sent = new StringBuilder();
        for (int i = 0; i < 200; i++) {
            // Two bytes behind each piece are padding: they are credit, and no body.
            String piece = "piece " + i + ";";
            client.frame(0, 8, 3, ("\2" + piece + "\0\0").getBytes());
            sent.append(piece);
        }
        client.data(3, false, "l".repeat(16_000));
        sent.append("l".repeat(16_000));
        client.headers(3, true, "x-behind", "1");
        client.headers(5, true, with(":path", "/behind"));
        awaitInFlight(3);
        mayAnswer.countDown();
        assertEquals(200, client.read(1).status());
        assertEquals(sent.toString(), client.read(3).body());
        assertEquals(200, client.read(5).status());
        assertEquals(List.of(), client.resets);
    }

    @Test
    void an_answer_that_its_client_resets_before_it_fits_the_window_is_not_reset_twice()
            throws Exception {
        start("", "");
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "", "a".repeat(50_000));
            return true;
        };
        RawHttp2 client = client();
        client.streamWindow(0);
        for (int stream = 1; stream < 20; stream += 2) {
            client.headers(stream, true, GET);
            client.awaitHead(stream);
            client.reset(stream);
        }
        client.streamWindow(65_535);
        client.headers(21, true, GET);
        assertEquals(50_000, client.read(21).body().length());
        assertEquals(List.of(), client.resets);
    }

    @Test
    void an_answer_longer_than_its_window_goes_on_when_that_opens() throws Exception {
        start("", "");
        String text = "0123456789".repeat(200_000);
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "", text);
            return true;
        };
        RawHttp2 client = client();
        client.streamWindow(0);
        client.headers(1, true, GET);
        client.awaitHead(1);
        // Another stream is not held up by it.
        client.headers(3, true, with(":method", "HEAD"));
        client.awaitHead(3);
        client.streamWindow(3_000_000);
        assertEquals(text, client.read(1).body());
    }

    /** Eight pieces, of which a client that takes none leaves the last ones waiting in the gateway. */
    private static final byte[] PIECE = "p".repeat(16_384).getBytes();

    private static void answerLong(RawHttp2Origin.Connection connection, int stream) throws Exception {
        connection.frame(RawHttp2Origin.HEADERS, RawHttp2Origin.END_HEADERS, stream, (byte) 0x88);
        connection.frames(4, RawHttp2Origin.DATA, 0, stream, PIECE);
        for (int credit = 0; credit < 4 * PIECE.length;) {
            RawHttp2Origin.Frame update = connection.await(8);
            credit += update.stream() == 0 ? 0 : ByteBuffer.wrap(update.payload()).getInt();
        }
        connection.frames(3, RawHttp2Origin.DATA, 0, stream, PIECE);
        connection.frame(RawHttp2Origin.DATA, RawHttp2Origin.END_STREAM, stream, PIECE);
    }

    /** A client and an origin that both speak HTTP/2 without TLS. */
    private RawHttp2 between(RawHttp2Origin other) throws Exception {
        opened.add(other);
        gateway = new Carrier(Main::carrier, Map.of("server.threads", "1", "server.h2c", "true"),
                "[origins.o]\nhttp2 = \"prior-knowledge\"\naddresses = [\"127.0.0.1:" + other.port() + "\"]\n");
        opened.add(gateway);
        RawHttp2 client = new RawHttp2(new java.net.Socket(gateway.address.getAddress(),
                gateway.address.getPort()));
        opened.add(client);
        return client;
    }

    private static String[] clear(String method) {
        return new String[] {":method", method, ":scheme", "http", ":authority", "a", ":path", "/"};
    }

    @Test
    void an_answer_that_its_origin_has_ended_waits_for_a_slow_client() throws Exception {
        CountDownLatch isTaken = new CountDownLatch(1);
        RawHttp2 client = between(new RawHttp2Origin(connection -> {
            connection.frame(RawHttp2Origin.SETTINGS, 0, 0);
            answerLong(connection, connection.await(RawHttp2Origin.HEADERS).stream());
            connection.frame(RawHttp2Origin.PING, 0, 0, new byte[8]);
            connection.await(RawHttp2Origin.PING);
            isTaken.countDown();
        }));
        client.streamWindow(0);
        client.headers(1, true, clear("GET"));
        client.awaitHead(1);
        assertTrue(isTaken.await(60, TimeUnit.SECONDS));
        client.streamWindow(200_000);
        assertEquals(8 * PIECE.length, client.read(1).body().length());
    }

    /** Answers without end, as far as windows allow, to so many; one of this length to the next. */
    private static void answerAll(RawHttp2Origin.Connection connection, int many, int length)
            throws Exception {
        connection.frame(RawHttp2Origin.SETTINGS, 0, 0);
        Map<Integer, Long> windows = new java.util.TreeMap<>(Map.of(0, 65_535L));
        int last = 0;
        int sent = 0;
        while (true) {
            RawHttp2Origin.Frame frame = connection.read();
            if (frame.type() == RawHttp2Origin.HEADERS) {
                windows.put(frame.stream(), 65_536L);
                last = windows.size() == many + 2 ? frame.stream() : 0;
                connection.frame(RawHttp2Origin.HEADERS, RawHttp2Origin.END_HEADERS, frame.stream(),
                        (byte) 0x88);
            } else if (frame.type() == 8) {
                windows.merge(frame.stream(), (long) ByteBuffer.wrap(frame.payload()).getInt(),
                        Long::sum);
            }
            for (Map.Entry<Integer, Long> one : windows.entrySet()) {
                int stream = one.getKey();
                while (stream > 0 && Math.min(one.getValue(), windows.get(0)) >= PIECE.length
                        && sent < length) {
                    sent += stream == last ? PIECE.length : 0;
                    connection.frame(RawHttp2Origin.DATA,
                            sent >= length ? RawHttp2Origin.END_STREAM : 0, stream, PIECE);
                    one.setValue(one.getValue() - PIECE.length);
                    windows.merge(0, (long) -PIECE.length, Long::sum);
                }
            }
        }
    }

    @Test
    void an_answer_goes_on_while_most_others_of_its_origin_wait_for_their_clients() throws Exception {
        int waiting = 70;
        int last = 2 * waiting + 1;
        int length = 256 * PIECE.length;
        RawHttp2 client = between(new RawHttp2Origin(connection -> answerAll(connection, waiting, length)));
        client.streamWindow(0);
        for (int stream = 1; stream < last; stream += 2) {
            client.headers(stream, true, clear("GET"));
            client.awaitHead(stream);
        }
        client.headers(last, true, clear("GET"));
        client.frame(8, 0, last, ByteBuffer.allocate(4).putInt(length).array());
        assertEquals(length, client.read(last).body().length());
        // A gateway that stops at once releases nothing of what waits.
        for (int stream = 1; stream < last; stream += 2) {
            client.reset(stream);
        }
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (gateway.runtime.gateway().inFlight().get() > 0) {
            assertTrue(System.nanoTime() < end, "exchanges of streams that were reset go on");
            Thread.sleep(5);
        }
    }

    @Test
    void a_whole_answer_before_the_end_of_its_request_survives_the_reset_behind_it() throws Exception {
        CountDownLatch isTaken = new CountDownLatch(1);
        RawHttp2 client = between(new RawHttp2Origin(connection -> {
            connection.frame(RawHttp2Origin.SETTINGS, 0, 0);
            int stream = connection.await(RawHttp2Origin.HEADERS).stream();
            answerLong(connection, stream);
            // NO_ERROR: the rest of the request is not needed.
            connection.frame(RawHttp2Origin.RST_STREAM, 0, stream, new byte[4]);
            connection.frame(RawHttp2Origin.PING, 0, 0, new byte[8]);
            connection.await(RawHttp2Origin.PING);
            isTaken.countDown();
        }));
        client.streamWindow(0);
        client.headers(1, false, clear("POST"));
        client.data(1, false, "begun");
        client.awaitHead(1);
        assertTrue(isTaken.await(60, TimeUnit.SECONDS));
        client.streamWindow(200_000);
        assertEquals(8 * PIECE.length, client.read(1).body().length());
    }

    @Test
    void a_request_that_waits_for_a_window_is_reset_when_its_answer_is_complete() throws Exception {
        CountDownLatch isReset = new CountDownLatch(1);
        RawHttp2 client = between(new RawHttp2Origin(connection -> {
            // SETTINGS_INITIAL_WINDOW_SIZE = 0.
            connection.frame(RawHttp2Origin.SETTINGS, 0, 0, (byte) 0, (byte) 4, (byte) 0, (byte) 0,
                    (byte) 0, (byte) 0);
            connection.answer(connection.await(RawHttp2Origin.HEADERS).stream(), "first");
            // By now the gateway knows the window.
            int stream = connection.await(RawHttp2Origin.HEADERS).stream();
            connection.answer(stream, "second");
            while (connection.await(RawHttp2Origin.RST_STREAM).stream() != stream) {
                // Of the first stream, if its window came in time.
            }
            isReset.countDown();
        }));
        for (int stream = 1; stream <= 3; stream += 2) {
            client.headers(stream, false, clear("POST"));
            client.data(stream, true, "waits");
            assertEquals(200, client.read(stream).status());
        }
        assertTrue(isReset.await(60, TimeUnit.SECONDS));
    }

    @Test
    void nothing_of_a_stream_follows_its_reset() throws Exception {
        CountDownLatch isBegun = new CountDownLatch(1);
        List<Integer> behind = new java.util.concurrent.CopyOnWriteArrayList<>();
        RawHttp2 client = between(new RawHttp2Origin(connection -> {
            connection.frame(RawHttp2Origin.SETTINGS, 0, 0);
            connection.await(RawHttp2Origin.HEADERS);
            isBegun.countDown();
            connection.await(RawHttp2Origin.RST_STREAM);
            RawHttp2Origin.Frame next = connection.read();
            while (next.type() != RawHttp2Origin.HEADERS) {
                behind.add(next.type());
                next = connection.read();
            }
            connection.answer(next.stream(), "next");
        }));
        client.headers(1, false, clear("POST"));
        client.data(1, false, "first");
        assertTrue(isBegun.await(60, TimeUnit.SECONDS));
        client.dataAndReset(1, "last");
        client.headers(3, true, clear("GET"));
        assertEquals("next", client.read(3).body());
        assertTrue(!behind.contains(RawHttp2Origin.DATA), "frames " + behind);
    }

    @Test
    void uploads_that_are_answered_early_do_not_end_their_connection() throws Exception {
        start("", "[[filter]]\ntype = \"static-response\"\nstatus = 403\nbody = \"not here\"\n");
        RawHttp2 client = client();
        int streams = 60;
        for (int i = 0; i < streams; i++) {
            int stream = 1 + 2 * i;
            client.headers(stream, false, post("/"));
            assertEquals("not here", client.read(stream).body());
            assertEquals(0, client.read(stream).reset());
            for (int piece = 0; piece < 5; piece++) {
                // Was on its way when the gateway reset the stream.
                client.data(stream, false, "on its way");
            }
        }
        client.headers(999, true, GET);
        assertEquals(403, client.read(999).status());
        assertEquals(streams, client.resets.size());
    }

    @Test
    void fields_that_an_origin_does_not_take_are_refused_and_not_its_failure() throws Exception {
        RawHttp2 client = between(new RawHttp2Origin(connection -> {
            // SETTINGS_MAX_HEADER_LIST_SIZE = 1024.
            connection.frame(RawHttp2Origin.SETTINGS, 0, 0, (byte) 0, (byte) 6, (byte) 0, (byte) 0,
                    (byte) 4, (byte) 0);
            while (true) {
                connection.answer(connection.await(RawHttp2Origin.HEADERS).stream(), "small");
            }
        }));
        client.headers(1, true, clear("GET"));
        assertEquals("small", client.read(1).body());
        String[] large = clear("GET");
        for (int i = 0; i < 10; i++) {
            large = Stream.concat(Stream.of(large), Stream.of("x-" + i, "v".repeat(100)))
                    .toArray(String[]::new);
        }
        for (int stream = 3; stream < 23; stream += 2) {
            client.headers(stream, true, large);
            assertEquals(431, client.read(stream).status());
        }
        client.headers(23, true, clear("GET"));
        assertEquals("small", client.read(23).body());
    }

    private long held() {
        return gateway.runtime.gateway().gauges().get("held.bodies.bytes").getAsLong();
    }

    private static String[] post(String path) {
        String[] fields = with(":path", path);
        fields[1] = "POST";
        return fields;
    }

    private void awaitInFlight(int count) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (gateway.runtime.gateway().inFlight().get() < count) {
            assertTrue(System.nanoTime() < end, "never " + count + " exchanges in flight");
            Thread.sleep(5);
        }
    }

    @Test
    void a_stream_that_its_client_has_ended_is_over() throws Exception {
        start("", "");
        for (int again : new int[] {3, 1}) {
            RawHttp2 client = client();
            client.headers(3, true, with(":path", "/three"));
            assertEquals("GET /three HTTP/1.1|", client.read(3).body());
            client.headers(again, true, with(":path", "/again"));
            assertTrue(client.isClosed(), "stream " + again);
        }
        assertEquals(2, origin.seen.size());
    }

    @Test
    void http_2_without_tls_is_taken_where_it_is_wanted() throws Exception {
        start("", "");
        gateway.close();
        gateway = new Carrier(Main::carrier, Map.of("server.threads", "1", "server.h2c", "true"),
                "[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n");
        opened.add(gateway);
        RawHttp2 client = new RawHttp2(new java.net.Socket(gateway.address.getAddress(),
                gateway.address.getPort()));
        opened.add(client);
        client.headers(1, true, ":method", "GET", ":scheme", "http", ":authority", "a", ":path",
                "/clear");
        assertEquals("GET /clear HTTP/1.1|", client.read(1).body());
        assertEquals("http", origin.seen.get(0).header("X-Forwarded-Proto"));
        try (RawClient old = gateway.client()) {
            assertEquals("GET /one HTTP/1.1|", old.get("/one").body());
        }
    }

    @Test
    void an_invalid_preface_without_tls_is_refused_as_http_2_and_http_1_stays_http_1()
            throws Exception {
        start("", "");
        gateway.close();
        gateway = new Carrier(Main::carrier, Map.of("server.threads", "1", "server.h2c", "true"),
                "[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n");
        opened.add(gateway);
        for (String invalid : new String[] {"INVALID CONNECTION PREFACE\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "PRI * HTTP/1.1\r\nHost: a\r\n\r\n"}) {
            byte[] answer = everything(invalid);
            // SETTINGS first, then GOAWAY with PROTOCOL_ERROR; no text.
            assertTrue(answer.length > 17 && answer[3] == 4, invalid + answer.length);
            byte[] last = java.util.Arrays.copyOfRange(answer, 9 + answer[2], answer.length);
            assertEquals(7, last[3], invalid);
            assertEquals(1, last[16], invalid);
        }
        for (String one : new String[] {"GET / HTTP/9.9\r\n\r\n",
            "PUT / HTTP/1.1\r\nHo st: a\r\n\r\n"}) {
            String answer = new String(everything(one), java.nio.charset.StandardCharsets.US_ASCII);
            assertTrue(answer.startsWith("HTTP/1.1 "), one + answer);
        }
        assertEquals(0, origin.seen.size());
    }

    private byte[] everything(String sent) throws Exception {
        try (java.net.Socket socket = new java.net.Socket(gateway.address.getAddress(),
                gateway.address.getPort())) {
            socket.setSoTimeout(60_000);
            socket.getOutputStream().write(sent.getBytes(
                    java.nio.charset.StandardCharsets.US_ASCII));
            return socket.getInputStream().readAllBytes();
        }
    }

    @Test
    void a_drain_says_goaway_and_answers_what_was_begun() throws Exception {
        start("", "");
        CountDownLatch isAsked = new CountDownLatch(1);
        CountDownLatch mayAnswer = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            isAsked.countDown();
            RecordingOrigin.awaitQuietly(mayAnswer);
            RecordingOrigin.respond(out, 200, "", "last");
            return true;
        };
        RawHttp2 client = client();
        client.headers(1, true, GET);
        assertTrue(isAsked.await(60, TimeUnit.SECONDS));
        Thread stopping = new Thread(() -> gateway.carrier.stop(60_000));
        stopping.start();
        for (int i = 0; i < 100 && client.lastStream < 0; i++) {
            // Stream 3 does not exist: reading returns with the GOAWAY that excludes it.
            client.read(3);
        }
        assertEquals(1, client.lastStream);
        mayAnswer.countDown();
        assertEquals("last", client.read(1).body());
        assertTrue(client.isClosed());
        stopping.join();
    }

    @Test
    void an_unused_connection_is_closed() throws Exception {
        start("", "[timeouts]\nkeep-alive = \"3s\"\n");
        RawHttp2 client = client();
        client.headers(1, true, with(":path", "/one"));
        assertEquals("GET /one HTTP/1.1|", client.read(1).body());
        assertTrue(client.isClosed());
    }

    @Test
    void an_answer_before_the_end_of_the_request_arrives_whole() throws Exception {
        start("", "[[filter]]\ntype = \"static-response\"\nstatus = 403\nbody = \"not here\"\n");
        RawHttp2 client = client();
        for (int stream = 1; stream < 20; stream += 2) {
            client.headers(stream, false, with(":method", "POST"));
            RawHttp2.Answer answer = client.read(stream);
            assertEquals(403, answer.status());
            assertEquals("not here", answer.body(), "a reset came first");
            assertEquals(0, client.read(stream).reset());
        }
    }

    @Test
    void interim_responses_pass_where_they_are_wanted() throws Exception {
        start("interim = true", "");
        origin.handler = (seen, out, socket) -> {
            out.write("HTTP/1.1 103 X\r\nLink: </a.css>\r\n\r\n".getBytes());
            RecordingOrigin.respond(out, 200, "", "done");
            return true;
        };
        RawHttp2 client = client();
        client.headers(1, true, GET);
        RawHttp2.Answer answer = client.read(1);
        assertEquals("103", answer.heads().get(0).status().toString());
        assertEquals("</a.css>", answer.heads().get(0).get("link").toString());
        assertEquals(200, answer.status());
        assertEquals("done", answer.body());
    }
}
