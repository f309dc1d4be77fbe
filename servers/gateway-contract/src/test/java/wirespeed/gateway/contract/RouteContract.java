// What a route or an origin can be given of its own, and what changes bodies on their way.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.aayushatharva.brotli4j.Brotli4jLoader;
import com.aayushatharva.brotli4j.decoder.BrotliInputStream;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.zip.GZIPInputStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.runtime.ShortSeconds;

abstract class RouteContract extends CarrierContract {
    private static final String LONG = "Compression finds what comes again. ".repeat(1500);

    @TempDir
    Path folder;

    private String origins(String more) {
        return "[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n" + more;
    }

    private static String route(String prefix, String more) {
        return "[[route]]\nprefix = \"" + prefix + "\"\norigins = [\"o\"]\n" + more + "\n";
    }

    private static int post(RawClient client, String path, int length) throws IOException {
        client.sendTolerant("POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: " + length
                + "\r\n\r\n" + "x".repeat(length), 65536);
        return client.read().status();
    }

    @Test
    void queries_and_cookies_choose_a_route_and_a_session_keeps_its_origin() throws Exception {
        RecordingOrigin next = closedLater(new RecordingOrigin());
        Carrier gateway = start(origins("[origins.next]\naddresses = [\"127.0.0.1:" + next.port() + "\"]\n")
                + "[[route]]\norigins = [\"next\"]\nquery = { version = \"2\" }\n"
                + "[[route]]\norigins = [\"next\"]\ncookies = { beta = \"yes\" }\n"
                + "[[route]]\norigins = [\"o\", \"next\"]\nsticky = \"header:X-Session\"\n");
        RawClient client = client(gateway);
        assertEquals(200, client.get("/?a=b&version=2").status());
        client.send("GET /cookie HTTP/1.1\r\nHost: a\r\nCookie: a=b; beta=yes\r\n\r\n");
        assertEquals(200, client.read().status());
        assertEquals(2, next.seen.size());
        int here = 0;
        for (int session = 0; session < 20; session++) {
            int before = origin.seen.size();
            for (int i = 0; i < 3; i++) {
                client.send("GET /?version=1 HTTP/1.1\r\nHost: a\r\nX-Session: s" + session + "\r\n\r\n");
                assertEquals(200, client.read().status());
            }
            int more = origin.seen.size() - before;
            assertTrue(more == 0 || more == 3, "session " + session + " was at both");
            here += more / 3;
        }
        assertTrue(here > 0 && here < 20, here + " of 20 sessions at one origin");
    }

    @Test
    void a_pattern_on_the_path_chooses_a_route() throws Exception {
        RecordingOrigin images = closedLater(new RecordingOrigin());
        Carrier gateway = start(origins("[origins.images]\naddresses = [\"127.0.0.1:" + images.port() + "\"]\n")
                + "[limits]\nline = \"256KiB\"\nhead = \"512KiB\"\n[[route]]\norigins = [\"images\"]\n"
                + "pattern = \"^(/|a|b)*[.]png$\"\n" + route("/", ""));
        assertEquals("GET /a/b.png?c HTTP/1.1|", client(gateway).get("/a/b.png?c").body());
        assertEquals("GET /a/b.png/c HTTP/1.1|", client(gateway).get("/a/b.png/c").body());
        assertEquals(List.of("GET /a/b.png?c HTTP/1.1"),
                images.seen.stream().map(RecordingOrigin.Seen::line).toList());
        String deep = "/" + "ab".repeat(100_000);
        assertEquals(200, client(gateway).get(deep).status());
        assertEquals(1, images.seen.size());
        assertEquals(200, client(gateway).get(deep + ".png").status());
        assertEquals(2, images.seen.size());
    }

    @Test
    void no_path_makes_a_pattern_backtrack() throws Exception {
        RecordingOrigin other = closedLater(new RecordingOrigin());
        Carrier gateway = start(origins("[origins.other]\naddresses = [\"127.0.0.1:" + other.port() + "\"]\n")
                + "[[filter]]\ntype = \"rewrite\"\npattern = \"(.*b){20}$\"\nreplacement = \"/b\"\n"
                + "[[route]]\norigins = [\"other\"]\npattern = \"(.*a){20}$\"\n" + route("/", ""));
        for (String letter : List.of("a", "b")) {
            String path = "/" + letter.repeat(4000) + "!";
            assertEquals("GET " + path + " HTTP/1.1|", client(gateway).get(path).body());
        }
        assertEquals(0, other.seen.size());
        assertEquals("GET /b HTTP/1.1|", client(gateway).get("/" + "b".repeat(4000)).body());
    }

    @Test
    void an_encoded_slash_reaches_only_origins_whose_route_takes_it() throws Exception {
        Carrier gateway = start(origins("") + route("/files", "encoded-slashes = true")
                + route("/", ""));
        assertEquals("GET /files/a%2Fb;v=1?q=%2F HTTP/1.1|",
                client(gateway).get("/files/a%2fb;v=1?q=%2F").body());
        for (String refused : new String[] {"/other/a%2Fb", "/files%2Fa", "/files/..%2Fa", "/files/a%2F.",
            "/files/a%2f%2e%2e/b", "/files/a%2F..;x/b", "/files/a%5Cb", "/files/a%00"}) {
            assertEquals(400, client(gateway).get(refused).status(), refused);
        }
        assertEquals(1, origin.seen.size());
    }

    @Test
    void spans_of_exchanges_reach_a_collector() throws Exception {
        closedLater(new ShortSeconds(20));
        BlockingQueue<String> exported = new LinkedBlockingQueue<>();
        RecordingOrigin collector = closedLater(new RecordingOrigin());
        collector.handler = (seen, out, socket) -> {
            exported.add(seen.line() + "\n" + seen.body());
            RecordingOrigin.respond(out, 200, "Content-Type: application/x-protobuf\r\n", "");
            return true;
        };
        Carrier gateway = start(origins(route("/", "name = \"shop\"")
                + "[tracing]\nservice = \"gw-7\"\nendpoint = \"http://127.0.0.1:"
                + collector.port() + "/v1/traces\"\n"));
        String trace = "0af7651916cd43dd8448eb211c80319c";
        RawClient client = client(gateway);
        client.send("GET /thing" + "g".repeat(3000) + " HTTP/1.1\r\nHost: a\r\ntraceparent: 00-" + trace
                + "-b7ad6b7169203331-01\r\n\r\n");
        assertEquals(200, client.read().status());
        String told = origin.seen.get(0).header("traceparent");
        assertTrue(told.matches("00-" + trace + "-[0-9a-f]{16}-01"), told);
        assertNotEquals("b7ad6b7169203331", told.substring(36, 52));
        String batch = exported.poll(60, TimeUnit.SECONDS);
        assertTrue(batch.startsWith("POST /v1/traces HTTP/1.1"), batch);
        for (String part : new String[] {"gw-7", "GET shop", "/thing", "http.route",
            "http.response.status_code", bytes(trace), bytes(told.substring(36, 52)),
            bytes("b7ad6b7169203331")}) {
            assertTrue(batch.contains(part), part);
        }
        // Many of them wait while a collector is slow.
        assertFalse(batch.contains("g".repeat(1024)), "the whole path is in the span");
    }

    private static String bytes(String hex) {
        return new String(java.util.HexFormat.of().parseHex(hex), StandardCharsets.ISO_8859_1);
    }

    /** Everything that comes until the gateway closes. */
    private static String exchange(Carrier gateway, String request) throws IOException {
        try (Socket socket = new Socket(gateway.address.getAddress(), gateway.address.getPort())) {
            socket.setSoTimeout(60_000);
            socket.getOutputStream().write(request.getBytes(StandardCharsets.US_ASCII));
            return new String(socket.getInputStream().readAllBytes(), StandardCharsets.US_ASCII);
        }
    }

    @Test
    void trailers_of_a_response_reach_a_client_that_takes_them() throws IOException {
        origin.handler = (seen, out, socket) -> {
            out.write(("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"
                    + "X-Sum: 42\r\nContent-Length: 3\r\nSet-Cookie: a=b\r\n\r\n")
                    .getBytes(StandardCharsets.US_ASCII));
            return true;
        };
        Carrier gateway = start(origins(""));
        RawClient client = client(gateway);
        client.send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\n\r\n");
        String taken = twoParts(client.socket.getInputStream());
        assertTrue(taken.toLowerCase().endsWith("\r\n0\r\nx-sum: 42\r\n\r\n"), taken);
        String dropped = exchange(gateway, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assertTrue(dropped.contains("hello") && !dropped.toLowerCase().contains("x-sum"), dropped);
    }

    @Test
    void trailers_of_a_request_go_on_where_that_is_wanted() throws Exception {
        StringBuffer received = new StringBuffer();
        try (ServerSocket bare = new ServerSocket(0, 10, InetAddress.getLoopbackAddress())) {
            Thread serving = new Thread(() -> serveOneAfterTheOther(bare, received));
            serving.setDaemon(true);
            serving.start();
            for (boolean isOn : new boolean[] {true, false}) {
                Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:"
                        + bare.getLocalPort() + "\"]\nrequest-trailers = " + isOn + "\n");
                received.setLength(0);
                String answer = exchange(gateway, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close"
                        + "\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 42\r\n"
                        + "X-Real-IP: 1.1.1.1\r\n\r\n");
                assertTrue(answer.startsWith("HTTP/1.1 200"), answer);
                assertTrue(received.toString().toLowerCase().endsWith(isOn
                        ? "\r\n0\r\nx-sum: 42\r\n\r\n" : "\r\n0\r\n\r\n"), received.toString());
            }
        }
    }

    /** A head ends with an empty line, and so does a body in chunks. */
    private static String twoParts(InputStream in) throws IOException {
        StringBuilder all = new StringBuilder();
        int ends = 0;
        while (ends < 2) {
            int next = in.read();
            if (next < 0) {
                throw new IOException("closed after " + all);
            }
            all.append((char) next);
            ends += all.length() > 3 && all.substring(all.length() - 4).equals("\r\n\r\n") ? 1 : 0;
        }
        return all.toString();
    }

    private static void serveOneAfterTheOther(ServerSocket bare, StringBuffer received) {
        while (!bare.isClosed()) {
            try (Socket socket = bare.accept()) {
                received.append(twoParts(socket.getInputStream()));
                RecordingOrigin.respond(socket.getOutputStream(), 200, "Connection: close\r\n",
                        "ok");
            } catch (IOException gone) {
                return;
            }
        }
    }

    @Test
    void a_route_has_a_body_limit_of_its_own() throws IOException {
        LogEar ear = closedLater(new LogEar());
        Carrier gateway = start(origins("[limits]\nbody = \"1KiB\"\n"
                + route("/small", "body = \"10B\"") + route("/large", "body = \"1MiB\"")
                + route("/", "")));
        assertEquals(200, post(client(gateway), "/small", 10));
        assertEquals(413, post(client(gateway), "/small", 11));
        assertEquals(413, client(gateway).postChunked("/small", 11).status());
        assertEquals(200, post(client(gateway), "/large", 5000));
        assertEquals(200, client(gateway).postChunked("/large", 5000).status());
        assertEquals(413, post(client(gateway), "/", 5000));
        assertEquals(413, client(gateway).postChunked("/", 5000).status());
        assertEquals(java.util.List.of(), ear.said);
    }

    @Test
    void a_route_has_times_of_its_own() throws IOException {
        origin.handler = RouteContract::answerThePatient;
        Carrier gateway = start(origins("response = \"500ms\"\n"
                + route("/patient", "response = \"30s\"")
                + route("/whole", "response = \"30s\"\ntimeout = \"600ms\"") + route("/", "")));
        assertEquals(504, client(gateway).get("/").status());
        assertEquals(200, client(gateway).get("/patient").status());
        assertEquals(504, client(gateway).get("/whole").status());
    }

    /** After 1.5 s under the paths of the patient routes, and else never. */
    private static boolean answerThePatient(RecordingOrigin.Seen seen, OutputStream out, Socket socket)
            throws IOException {
        if (!seen.line().contains("/patient")) {
            return socket.getInputStream().read() >= 0;
        }
        LockSupport.parkNanos(1_500_000_000);
        return RecordingOrigin.ordinary(seen, out, socket);
    }

    @Test
    void an_attempt_that_takes_too_long_is_followed_by_one_elsewhere() throws IOException {
        RecordingOrigin slow = closedLater(new RecordingOrigin());
        slow.handler = (seen, out, socket) -> {
            LockSupport.parkNanos(60_000_000_000L);
            return false;
        };
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + slow.port()
                + "\", \"127.0.0.1:" + origin.port() + "\"]\nbalance = \"round-robin\"\n"
                + "response = \"1s\"\n");
        int asked = 0;
        RawClient.Answer answer = RawClient.NONE;
        // Until the slow one was asked first. On a busy machine the other one may be late, too.
        while (asked < 20 && (answer.status() != 200 || !isAmong(slow, asked))) {
            answer = client(gateway).get("/" + ++asked);
        }
        assertEquals("GET /" + asked + " HTTP/1.1|", answer.body());
        assertTrue(isAmong(slow, asked), "the slow one is never asked");
    }

    private static boolean isAmong(RecordingOrigin asked, int number) {
        return asked.seen.stream().anyMatch(seen -> seen.line().startsWith("GET /" + number + " "));
    }

    @Test
    void a_route_may_take_longer_than_the_others() throws IOException {
        origin.handler = RouteContract::answerThePatient;
        Carrier gateway = start(origins("[timeouts]\nexchange = \"600ms\"\n"
                + route("/patient", "timeout = \"1m\"") + route("/", "")));
        assertEquals(504, client(gateway).get("/").status());
        assertEquals(200, client(gateway).get("/patient").status());
    }

    @Test
    void connections_to_origins_are_renewed_after_requests_and_time() throws Exception {
        Carrier gateway = start(origins("connection-requests = 3\n"));
        RawClient client = client(gateway);
        for (int i = 0; i < 7; i++) {
            assertEquals(200, client.get("/" + i).status());
        }
        java.util.List<Integer> served = origin.seen.stream()
                .map(RecordingOrigin.Seen::connection).toList();
        // Two loops or threads may each have a connection; none serves a fourth request.
        for (int connection : served) {
            assertTrue(served.stream().filter(one -> one == connection).count() <= 3,
                    served.toString());
        }
        Carrier aging = start(origins("connection-age = \"500ms\"\n"));
        RawClient other = client(aging);
        other.get("/young");
        int before = origin.seen.get(origin.seen.size() - 1).connection();
        Thread.sleep(1200);
        other.get("/old");
        other.get("/old");
        assertNotEquals(before, origin.seen.get(origin.seen.size() - 1).connection());
    }

    private RawClient.Answer ask(Carrier gateway, String method, String accepts)
            throws IOException {
        RawClient client = client(gateway);
        client.send(method + " /text HTTP/1.1\r\nHost: a\r\n" + (accepts == null ? ""
                : "Accept-Encoding: " + accepts + "\r\n") + "\r\n");
        return client.read(method.equals("HEAD"));
    }

    private static String decoded(RawClient.Answer answer) throws IOException {
        InputStream bytes = new ByteArrayInputStream(
                answer.body().getBytes(StandardCharsets.ISO_8859_1));
        try (InputStream plain = answer.header("Content-Encoding").equals("br")
                ? new BrotliInputStream(bytes) : new GZIPInputStream(bytes)) {
            return new String(plain.readAllBytes(), StandardCharsets.ISO_8859_1);
        }
    }

    @Test
    void responses_are_compressed_for_clients_that_can_undo_it() throws IOException {
        Brotli4jLoader.ensureAvailability();
        origin.handler = (seen, out, socket) -> {
            String fields = "Content-Type: text/plain\r\nETag: \"1\"\r\n";
            if (seen.line().startsWith("HEAD")) {
                out.write(("HTTP/1.1 200 X\r\n" + fields + "Content-Length: 54000\r\n\r\n")
                        .getBytes());
            } else {
                RecordingOrigin.respond(out, 200, fields, LONG);
            }
            return true;
        };
        Carrier gateway = start(origins("[[filter]]\ntype = \"compress\"\n"));
        for (String encoding : java.util.List.of("gzip", "br")) {
            RawClient.Answer answer = ask(gateway, "GET", encoding);
            assertEquals(encoding, answer.header("Content-Encoding"));
            assertEquals("Accept-Encoding", answer.header("Vary"));
            assertEquals("W/\"1\"", answer.header("ETag"));
            assertTrue(answer.body().length() < LONG.length() / 10);
            assertEquals(LONG, decoded(answer));
        }
        assertEquals("br", ask(gateway, "GET", "gzip, br").header("Content-Encoding"));
        assertEquals("gzip", ask(gateway, "GET", "br;q=0, *").header("Content-Encoding"));
        assertEquals("gzip", ask(gateway, "GET", ";, gzip ; q = 1, br ; q=0.00").header("Content-Encoding"));
        assertEquals(LONG, ask(gateway, "GET", ";").body());
        RawClient.Answer plain = ask(gateway, "GET", null);
        assertNull(plain.header("Content-Encoding"));
        assertEquals("Accept-Encoding", plain.header("Vary"));
        assertEquals(LONG, plain.body());
        RawClient.Answer head = ask(gateway, "HEAD", "gzip");
        assertEquals("gzip", head.header("Content-Encoding"));
        assertNull(head.header("Content-Length"));
    }

    @Test
    void what_is_short_encoded_a_part_or_another_type_stays_as_it_is() throws IOException {
        Carrier gateway = start(origins("[[filter]]\ntype = \"compress\"\n"));
        for (String fields : java.util.List.of("Content-Type: image/png\r\n",
                "Content-Type: ;\r\n", "Content-Type: text/plain\r\nContent-Encoding: zstd\r\n",
                "Content-Type: text/plain\r\nCache-Control: no-transform\r\n",
                "Content-Type: text/plain\r\nCache-Control: max-age=9\r\nCache-Control: No-Transform\r\n", "")) {
            origin.handler = (seen, out, socket) -> {
                RecordingOrigin.respond(out, 200, fields, LONG);
                return true;
            };
            RawClient.Answer answer = ask(gateway, "GET", "gzip");
            assertNotEquals("gzip", answer.header("Content-Encoding"), fields);
            assertEquals(LONG, answer.body());
        }
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "Content-Type: text/plain\r\n", "short");
            return true;
        };
        assertEquals("short", ask(gateway, "GET", "gzip").body());
    }

    @Test
    void a_filter_changes_a_body_piece_by_piece() throws IOException {
        Files.writeString(folder.resolve("Loud.java"), """
                import java.nio.ByteBuffer;
                import wirespeed.gateway.core.*;
                public class Loud implements Filter {
                    public Phase phase() { return Phase.POST; }
                    public int order() { return 5; }
                    public Step apply(Context context) {
                        context.response().transform(new BodyTransform() {
                            public ByteBuffer chunk(ByteBuffer piece) {
                                ByteBuffer out = ByteBuffer.allocate(piece.remaining());
                                while (piece.hasRemaining()) {
                                    out.put((byte) Character.toUpperCase((char) piece.get()));
                                }
                                return out.flip();
                            }
                            public ByteBuffer end() { return ByteBuffer.wrap("!".getBytes()); }
                        });
                        return Step.NEXT;
                    }
                }
                """);
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "", seen.line().contains("/long") ? LONG : "hello");
            return true;
        };
        Carrier gateway = start(origins("[filters]\nfolder = \"" + folder + "\"\n[[filter]]\n"
                + "type = \"static-response\"\nprefix = \"/own\"\nbody = \"ours\"\n"));
        RawClient client = client(gateway);
        assertEquals("HELLO!", client.get("/").body());
        assertEquals(LONG.toUpperCase(java.util.Locale.ROOT) + "!", client.get("/long").body());
        assertEquals("OURS!", client.get("/own").body());
        assertEquals("HELLO!", client.get("/again").body());
    }
}
