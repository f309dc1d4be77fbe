// What RFC 9113 asks of a server and of an intermediary, frame by frame; gateway-netty only.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.handler.codec.http2.Http2Headers;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import wirespeed.gateway.netty.Main;
import wirespeed.gateway.runtime.Launcher;

@Timeout(240)
class NettyHttp2RulesTest extends CarrierContract {
    private static final int PROTOCOL_ERROR = 1;

    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("server.transport", "epoll", "server.threads", "1", "server.h2c", "true");
    }

    private Carrier gateway(String originOptions) {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n" + originOptions);
    }

    private RawHttp2 http2(Carrier gateway) throws Exception {
        return closedLater(new RawHttp2(new Socket(gateway.address.getAddress(), gateway.address.getPort())));
    }

    private static String[] get(String path, String... more) {
        String[] fields = {":method", "GET", ":scheme", "http", ":authority", "a", ":path", path};
        return java.util.stream.Stream.concat(List.of(fields).stream(), List.of(more).stream())
                .toArray(String[]::new);
    }

    @Test
    void a_malformed_head_resets_its_stream_as_one() throws Exception {
        RawHttp2 client = http2(gateway(""));
        List<String[]> heads = List.of(get(""), get("b"), get("/a b"), get("/", ":protocol", "websocket"),
                get("/", "x", " y"), get("/", "host", "b"), get("/", "http2-settings", "AAMAAABk"),
                new String[] {":method", "CONNECT", ":scheme", "http", ":authority", "a", ":path", "/",
                    ":protocol", "websocket"});
        for (int i = 0; i < heads.size(); i++) {
            int stream = 2 * i + 1;
            client.headers(stream, true, heads.get(i));
            RawHttp2.Answer answer = client.read(stream);
            // RFC 9113 §8.1.1: a response may come first.
            int reset = answer.reset() >= 0 ? answer.reset() : client.read(stream).reset();
            assertEquals(PROTOCOL_ERROR, reset, String.join(" ", heads.get(i)));
        }
        assertEquals(List.of(), origin.seen);
    }

    /** A request of the table, and what becomes of it. */
    private static final class Smuggled {
        final String result;
        final String what;
        final List<String> fields = new ArrayList<>(List.of(":method", "POST", ":scheme", "http",
                ":authority", "a", ":path", "/x"));
        final List<String> trailers = new ArrayList<>();
        final List<String> body = new ArrayList<>();

        Smuggled(String title) {
            result = title.substring(0, title.indexOf(' '));
            what = title.substring(result.length() + 1);
        }

        void line(String line) {
            if (line.startsWith("> ")) {
                body.add(CorpusContract.unescape(line.substring(2)));
            } else if (line.startsWith("T ")) {
                trailers.addAll(field(line.substring(2)));
            } else if (line.startsWith("- ")) {
                int at = fields.indexOf(line.substring(2));
                fields.subList(at, at + 2).clear();
            } else if (line.startsWith("+")) {
                fields.addAll(field(line.substring(1)));
            } else {
                List<String> field = field(line);
                int at = line.startsWith(":") ? fields.indexOf(field.get(0)) : -1;
                if (at >= 0) {
                    fields.set(at + 1, field.get(1));
                } else {
                    fields.addAll(field);
                }
            }
        }

        /** The name of a pseudo-field begins with a colon; an empty one is before a colon, too. */
        private static List<String> field(String line) {
            int colon = line.startsWith(": ") ? 0 : line.indexOf(':', 1);
            String value = line.substring(colon + 1);
            return List.of(CorpusContract.unescape(line.substring(0, colon)),
                    CorpusContract.unescape(value.startsWith(" ") ? value.substring(1) : value));
        }

        void send(RawHttp2 client, int stream) throws IOException {
            client.headers(stream, body.isEmpty() && trailers.isEmpty(), fields.toArray(String[]::new));
            for (int i = 0; i < body.size(); i++) {
                client.data(stream, trailers.isEmpty() && i == body.size() - 1, body.get(i));
            }
            if (!trailers.isEmpty()) {
                client.headers(stream, true, trailers.toArray(String[]::new));
            }
        }
    }

    private static List<Smuggled> smuggled() throws IOException {
        List<Smuggled> cases = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of("src/test/resources/http2-smuggling.cases"))) {
            if (line.startsWith("== ")) {
                cases.add(new Smuggled(line.substring(3)));
            } else if (!line.isEmpty() && !line.startsWith("#")) {
                cases.get(cases.size() - 1).line(line);
            }
        }
        return cases;
    }

    private static String result(RawHttp2 client, int stream, Smuggled one) throws Exception {
        one.send(client, stream);
        RawHttp2.Answer answer = client.read(stream);
        // RFC 9113 §8.1.1: a response may come first.
        int reset = answer.reset() >= 0 ? answer.reset() : client.resetBy(stream);
        return reset == PROTOCOL_ERROR ? "malformed" : String.valueOf(answer.status());
    }

    @Test
    void requests_that_http_1_cannot_hold_are_malformed_and_reach_no_origin() throws Exception {
        Carrier gateway = gateway("");
        RawHttp2 client = http2(gateway);
        List<Smuggled> cases = smuggled();
        List<String> wrong = new ArrayList<>();
        int stream = 1;
        for (Smuggled one : cases) {
            int before = origin.seen.size();
            String result = result(client, stream, one);
            boolean isPassed = origin.seen.size() > before;
            if (!result.equals(one.result) || isPassed != result.equals("200")) {
                wrong.add(one.what + ": " + result + (isPassed ? ", passed" : ""));
            }
            stream += 2;
        }
        assertEquals(List.of(), wrong);
        assertTrue(cases.size() > 80, "the table is incomplete");
        for (RecordingOrigin.Seen seen : origin.seen) {
            assertTrue(seen.line().matches("(POST|GET) /x HTTP/1.1|POST /b/x HTTP/1.1"), seen.line());
            long lengths = seen.head().lines().filter(line -> line.startsWith("Content-Length: ")).count();
            assertTrue(lengths + (seen.header("Transfer-Encoding") == null ? 0 : 1) <= 1, seen.head());
        }
    }

    @Test
    void a_head_that_is_merely_too_long_is_a_431() throws Exception {
        RawHttp2 client = http2(gateway("[limits]\nhead = \"1KiB\"\nfields = 10\n"));
        String[] fields = get("/");
        for (int i = 0; i < 10; i++) {
            fields = java.util.stream.Stream.concat(java.util.Arrays.stream(fields),
                    java.util.stream.Stream.of("x-" + i, "v".repeat(100))).toArray(String[]::new);
        }
        // By RFC 9113 1,511 bytes of fields; up to 1,344 are announced, and the codec reads a quarter more.
        client.headers(1, true, fields);
        assertEquals(431, client.read(1).status());
        client.headers(3, true, get("/next"));
        assertEquals("GET /next HTTP/1.1|", client.read(3).body());
        assertEquals(1, origin.seen.size());
    }

    @Test
    void malformed_trailers_reset_their_stream_as_a_malformed_head_does() throws Exception {
        RawHttp2 client = http2(gateway("request-trailers = true\n"));
        client.headers(1, false, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/up");
        client.data(1, false, "body");
        client.headers(1, true, "x-sum", " 7");
        RawHttp2.Answer answer = client.read(1);
        assertEquals(PROTOCOL_ERROR, answer.reset() >= 0 ? answer.reset() : client.read(1).reset());
    }

    @Test
    void what_is_merely_refused_resets_nothing_as_malformed() throws Exception {
        RawHttp2 client = http2(gateway(""));
        client.headers(1, true, get("/../up"));
        RawHttp2.Answer refused = client.read(1);
        assertEquals(400, refused.status());
        assertNotNull(refused.heads().get(0).get("date"));
        assertEquals(0, client.read(1).reset());
        client.headers(3, true, ":method", "CONNECT", ":authority", "a:80");
        RawHttp2.Answer connect = client.read(3);
        assertEquals(405, connect.status());
        assertTrue(connect.heads().get(0).get("allow").toString().contains("GET"));
    }

    @Test
    void a_head_without_a_stream_is_an_error_of_the_protocol() throws Exception {
        RawHttp2 client = http2(gateway(""));
        client.headers(0, true, get("/"));
        try {
            client.read(1);
        } catch (IOException reset) {
            // The connection is gone for frames that the client sent meanwhile.
        }
        assertEquals(PROTOCOL_ERROR, client.goAwayError);
    }

    @Test
    void fields_that_end_at_each_hop_are_taken_and_do_not_go_on() throws Exception {
        RawHttp2 client = http2(gateway("request-trailers = true\n"));
        client.headers(1, false, ":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/up",
                "trailer", "x-sum", "proxy-authorization", "Basic YTpi", "te", "trailers");
        client.data(1, false, "body");
        client.headers(1, true, "x-sum", "7");
        assertEquals("POST /up HTTP/1.1|body", client.read(1).body());
        RecordingOrigin.Seen seen = origin.seen.get(0);
        assertNull(seen.header("Proxy-Authorization"), seen.head());
        assertTrue(seen.header("Via").startsWith("2.0 wirespeed"), seen.head());
    }

    @Test
    void an_interim_response_names_no_length() throws Exception {
        origin.handler = (seen, out, socket) -> {
            out.write("HTTP/1.1 103 X\r\nLink: </a.css>\r\nContent-Length: 0\r\n\r\n".getBytes());
            return RecordingOrigin.ordinary(seen, out, socket);
        };
        RawHttp2 client = http2(gateway("interim = true\n"));
        client.headers(1, true, get("/"));
        Http2Headers hints = client.read(1).heads().get(0);
        assertEquals("103", hints.status().toString());
        assertEquals("</a.css>", hints.get("link").toString());
        assertFalse(hints.contains("content-length"), hints.toString());
    }

    @Test
    void secrets_of_clients_are_not_in_the_table_that_they_share() throws Exception {
        BlockingQueue<String> heads = new LinkedBlockingQueue<>();
        RawHttp2Origin shared = closedLater(new RawHttp2Origin(connection -> {
            connection.frame(RawHttp2Origin.SETTINGS, 0, 0);
            while (true) {
                RawHttp2Origin.Frame head = connection.await(RawHttp2Origin.HEADERS);
                heads.add(new String(head.payload(), StandardCharsets.ISO_8859_1));
                connection.answer(head.stream(), "read");
            }
        }));
        RawHttp2 client = http2(start("[origins.o]\naddresses = [\"127.0.0.1:" + shared.port()
                + "\"]\nhttp2 = \"prior-knowledge\"\n"));
        for (int stream = 1; stream <= 3; stream += 2) {
            client.headers(stream, true, get("/", "authorization", "Bearer of-kim", "cookie", "sid=of-kim-too",
                    "x-plain", "known-by-now"));
            assertEquals("read", client.read(stream).body());
            String head = heads.poll(60, TimeUnit.SECONDS);
            assertTrue(head.contains("Bearer of-kim") && head.contains("sid=of-kim-too"), "stream " + stream);
            assertEquals(stream == 1, head.contains("known-by-now"));
        }
    }
}
