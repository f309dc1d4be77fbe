// What a route or an origin can be given of its own, and what changes bodies on their way.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.aayushatharva.brotli4j.Brotli4jLoader;
import com.aayushatharva.brotli4j.decoder.BrotliInputStream;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;
import java.util.zip.GZIPInputStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

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

    private static int postChunked(RawClient client, String path, int length) throws IOException {
        client.sendTolerant("POST " + path + " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked"
                + "\r\n\r\n" + Integer.toHexString(length) + "\r\n" + "x".repeat(length)
                + "\r\n0\r\n\r\n", 65536);
        return client.read().status();
    }

    @Test
    void a_route_has_a_body_limit_of_its_own() throws IOException {
        LogEar ear = closedLater(new LogEar());
        Carrier gateway = start(origins("[limits]\nbody = \"1KiB\"\n"
                + route("/small", "body = \"10B\"") + route("/large", "body = \"1MiB\"")
                + route("/", "")));
        assertEquals(200, post(client(gateway), "/small", 10));
        assertEquals(413, post(client(gateway), "/small", 11));
        assertEquals(413, postChunked(client(gateway), "/small", 11));
        assertEquals(200, post(client(gateway), "/large", 5000));
        assertEquals(200, postChunked(client(gateway), "/large", 5000));
        assertEquals(413, post(client(gateway), "/", 5000));
        assertEquals(413, postChunked(client(gateway), "/", 5000));
        assertEquals(java.util.List.of(), ear.said);
    }

    @Test
    void a_route_has_times_of_its_own() throws IOException {
        origin.handler = (seen, out, socket) -> {
            LockSupport.parkNanos(1_500_000_000);
            return RecordingOrigin.ordinary(seen, out, socket);
        };
        Carrier gateway = start(origins("response = \"500ms\"\n"
                + route("/patient", "response = \"30s\"")
                + route("/whole", "response = \"30s\"\ntimeout = \"600ms\"") + route("/", "")));
        assertEquals(504, client(gateway).get("/").status());
        assertEquals(200, client(gateway).get("/patient").status());
        assertEquals(504, client(gateway).get("/whole").status());
    }

    @Test
    void a_route_may_take_longer_than_the_others() throws IOException {
        origin.handler = (seen, out, socket) -> {
            LockSupport.parkNanos(1_500_000_000);
            return RecordingOrigin.ordinary(seen, out, socket);
        };
        Carrier gateway = start(origins("[timeouts]\nexchange = \"600ms\"\n"
                + route("/long", "timeout = \"1m\"") + route("/", "")));
        assertEquals(504, client(gateway).get("/").status());
        assertEquals(200, client(gateway).get("/long").status());
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
                "Content-Type: text/plain\r\nContent-Encoding: zstd\r\n",
                "Content-Type: text/plain\r\nCache-Control: no-transform\r\n", "")) {
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
