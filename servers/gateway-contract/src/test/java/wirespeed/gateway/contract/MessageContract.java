// Messages in forms that clients and origins seldom send, on every carrier.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

abstract class MessageContract extends CarrierContract {
    private static final String HELLO = "HTTP/1.1 200 X\r\nContent-Length: 5\r\n\r\nhello";

    Carrier gateway(String more) {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n" + more);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.ISO_8859_1);
    }

    @Test
    void a_response_without_a_date_gets_one() throws IOException {
        String old = "Mon, 05 Jan 2026 00:00:00 GMT";
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, seen.line().contains("/old") ? "date: " + old + "\r\n" : "", "x");
            return true;
        };
        RawClient client = client(gateway(""));
        String date = client.get("/").header("Date");
        assertNotNull(ZonedDateTime.parse(date, DateTimeFormatter.RFC_1123_DATE_TIME), date);
        RawClient.Answer dated = client.get("/old");
        assertEquals(old, dated.header("Date"));
        assertEquals(1, dated.head().toLowerCase(java.util.Locale.ROOT).split("\r\ndate:").length - 1);
    }

    @Test
    void a_post_is_sent_once_whatever_becomes_of_its_connection() throws IOException {
        RecordingOrigin other = closedLater(new RecordingOrigin());
        for (RecordingOrigin one : List.of(origin, other)) {
            // Once at its first request and once on a connection that has served another.
            one.handler = (seen, out, socket) -> !seen.line().startsWith("POST")
                    && RecordingOrigin.ordinary(seen, out, socket);
        }
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\", \"127.0.0.1:"
                + other.port() + "\"]\nbalance = \"round-robin\"\nretries = 5\nretry-budget = 100\n");
        for (int i = 0; i < 6; i++) {
            for (int warm = 0; warm < i; warm++) {
                assertEquals(200, client(gateway).get("/warm").status());
            }
            RawClient client = client(gateway);
            client.send("POST /once" + i + " HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok");
            assertEquals(502, client.read().status());
        }
        for (int i = 0; i < 6; i++) {
            String line = "POST /once" + i + " HTTP/1.1";
            assertEquals(1, origin.seen.stream().filter(seen -> seen.line().equals(line)).count()
                    + other.seen.stream().filter(seen -> seen.line().equals(line)).count(), line);
        }
    }

    @Test
    void interim_responses_are_bounded_and_the_final_one_arrives() throws IOException {
        origin.handler = (seen, out, socket) -> {
            int count = seen.line().charAt("GET /".length()) - '0';
            String[] interims = {"HTTP/1.1 103 X\r\nLink: </a>\r\n\r\n", "HTTP/1.1 100 X\r\n\r\n",
                "HTTP/1.1 102 X\r\n\r\n"};
            for (int i = 0; i < count; i++) {
                out.write(bytes(interims[i % 3]));
            }
            out.write(bytes(HELLO));
            return true;
        };
        Carrier gateway = gateway("");
        for (int count : new int[] {0, 1, 3, 8}) {
            RawClient client = client(gateway);
            client.send("GET /" + count + " HTTP/1.1\r\nHost: a\r\n\r\n");
            RawClient.Answer answer = client.readOne(false);
            assertEquals(200, answer.status(), "after " + count);
            assertEquals("hello", answer.body());
        }
        assertEquals(502, client(gateway).get("/9").status());
    }

    @Test
    void ranges_pass_and_parts_are_never_stored() throws IOException {
        String control = "Cache-Control: max-age=600\r\nETag: \"1\"\r\n";
        String parts = "--b\r\nContent-Range: bytes 0-0/5\r\n\r\nh\r\n--b\r\nContent-Range: bytes 4-4/5\r\n\r\n"
                + "o\r\n--b--\r\n";
        origin.handler = (seen, out, socket) -> {
            String range = String.valueOf(seen.header("Range"));
            switch (range) {
                case "bytes=1-2" -> RecordingOrigin.respond(out, 206, control + "Content-Range: bytes 1-2/5\r\n", "el");
                case "bytes=0-0,4-4" -> RecordingOrigin.respond(out, 206, control
                        + "Content-Type: multipart/byteranges; boundary=b\r\n", parts);
                case "bytes=9-" -> RecordingOrigin.respond(out, 416, "Content-Range: bytes */5\r\n", "");
                default -> RecordingOrigin.respond(out, 200, control, "hello");
            }
            return true;
        };
        Carrier gateway = gateway("[cache]\nenabled = true\n");
        for (int i = 0; i < 3; i++) {
            RawClient.Answer part = range(gateway, "bytes=1-2");
            assertEquals(206, part.status());
            assertEquals("bytes 1-2/5", part.header("Content-Range"));
            assertEquals("el", part.body());
            assertEquals(parts, range(gateway, "bytes=0-0,4-4").body());
            RawClient.Answer none = range(gateway, "bytes=9-");
            assertEquals(416, none.status());
            assertEquals("bytes */5", none.header("Content-Range"));
            assertEquals("hello", client(gateway).get("/r").body());
        }
        // A stored response serves whole requests only.
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        long before = -1;
        while (before != origin.seen.size()) {
            assertTrue(System.nanoTime() < end, "the whole response is not stored");
            before = origin.seen.size();
            assertEquals("hello", client(gateway).get("/r").body());
        }
        assertEquals("el", range(gateway, "bytes=1-2").body());
    }

    private RawClient.Answer range(Carrier gateway, String range) throws IOException {
        RawClient client = client(gateway);
        client.send("GET /r HTTP/1.1\r\nHost: a\r\nRange: " + range + "\r\n\r\n");
        return client.read();
    }

    @Test
    void nothing_is_to_go_on_where_no_body_follows_or_none_is_taken() throws IOException {
        Carrier gateway = gateway("[limits]\nbody = \"1KiB\"\n");
        String expect = "Expect: 100-continue\r\n";
        for (String request : List.of("GET / HTTP/1.1\r\nHost: a\r\n" + expect + "\r\n",
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n" + expect + "\r\n",
                "POST / HTTP/1.0\r\nHost: a\r\nContent-Length: 2\r\n" + expect + "\r\nok")) {
            RawClient client = client(gateway);
            client.send(request);
            assertEquals(200, client.readOne(false).status(), request);
        }
        assertTrue(origin.seen.stream().allMatch(seen -> seen.header("Expect") == null));
        RawClient client = client(gateway);
        client.send("POST /long HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n" + expect + "\r\n");
        assertEquals(413, client.readOne(false).status());
        assertEquals(3, origin.seen.size());
    }

    @Test
    void answers_without_a_body_keep_their_connections_whatever_length_they_say() throws IOException {
        origin.handler = (seen, out, socket) -> {
            String path = seen.line().split(" ")[1];
            String status = path.startsWith("/304") ? "304" : path.startsWith("/204") ? "204" : "200";
            String length = path.endsWith("chunked") ? "Transfer-Encoding: chunked\r\n"
                    : path.endsWith("length") ? "Content-Length: 5000\r\n" : "";
            out.write(bytes(path.equals("/next") ? HELLO : "HTTP/1.1 " + status + " X\r\n" + length + "\r\n"));
            return true;
        };
        RawClient client = client(gateway(""));
        for (String request : List.of("HEAD /chunked", "HEAD /length", "HEAD /none", "GET /304length",
                "GET /304none", "GET /204none")) {
            client.send(request + " HTTP/1.1\r\nHost: a\r\n\r\n");
            RawClient.Answer answer = client.read(request.startsWith("HEAD"));
            assertEquals(request.startsWith("GET /3") ? 304 : request.startsWith("GET /2") ? 204 : 200,
                    answer.status(), request);
            assertEquals("hello", client.get("/next").body(), request);
        }
        assertEquals(1, origin.connections.get());
    }

    @Test
    void an_origin_that_ends_anywhere_leaves_no_answer_that_looks_complete() throws IOException {
        String length = "HTTP/1.1 200 X\r\nContent-Length: 5\r\n\r\n";
        String chunked = "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n";
        Carrier gateway = gateway("");
        for (String part : List.of("", "H", "HTTP/1.1 200 X\r\nContent-Le", length.substring(0, length.length() - 1),
                length, length + "hell", chunked, chunked + "5", chunked + "5\r\n", chunked + "5\r\nhell",
                chunked + "5\r\nhello", chunked + "5\r\nhello\r\n", chunked + "5\r\nhello\r\n0\r\n",
                chunked + "5\r\nhello\r\n0\r\nX: y\r\n")) {
            origin.handler = (seen, out, socket) -> {
                out.write(bytes(part));
                return false;
            };
            RawClient.Answer answer = client(gateway).get("/");
            assertTrue(answer.status() == 502 || !answer.isComplete(), part + "|" + answer);
            origin.handler = RecordingOrigin::ordinary;
            assertEquals(200, client(gateway).get("/").status());
        }
    }

    @Test
    void a_205_has_no_content() throws IOException {
        origin.handler = (seen, out, socket) -> {
            if (seen.line().contains("/205")) {
                out.write(bytes(HELLO.replace("200", "205")));
                return true;
            }
            return RecordingOrigin.ordinary(seen, out, socket);
        };
        RawClient client = client(gateway(""));
        RawClient.Answer answer = client.get("/205");
        assertEquals(205, answer.status());
        assertEquals("0", answer.header("Content-Length"));
        assertEquals("GET /next HTTP/1.1|", client.get("/next").body());
    }

    @Test
    void a_405_names_what_is_allowed() throws IOException {
        RawClient client = client(gateway(""));
        client.send("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n");
        RawClient.Answer answer = client.read();
        assertEquals(405, answer.status());
        assertTrue(answer.header("Allow").contains("GET"), answer.head());
    }

    @Test
    void a_client_of_http_1_0_gets_neither_chunks_nor_interim_responses() throws IOException {
        origin.handler = (seen, out, socket) -> {
            out.write(bytes("HTTP/1.1 103 X\r\nLink: </a>\r\n\r\nHTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n"
                    + "5\r\nhello\r\n0\r\n\r\n"));
            return true;
        };
        RawClient client = client(start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\ninterim = true\n"));
        client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
        RawClient.Answer answer = client.readOne(false);
        assertEquals(200, answer.status());
        assertNull(answer.header("Transfer-Encoding"));
        assertEquals("hello", answer.body());
        assertFalse(answer.head().contains("103"), answer.head());
    }

    @Test
    void a_question_about_the_way_ends_where_its_hops_do() throws IOException {
        Carrier gateway = gateway("");
        for (String line : List.of("OPTIONS * HTTP/1.1\r\n", "OPTIONS http://a HTTP/1.1\r\n", "OPTIONS /a HTTP/1.1\r\nMax-Forwards: 0\r\n",
                "TRACE /a HTTP/1.1\r\nMax-Forwards: 00\r\n")) {
            RawClient client = client(gateway);
            client.send(line + "Host: a\r\n\r\n");
            RawClient.Answer answer = client.read();
            assertEquals(line.startsWith("TRACE") ? 405 : 204, answer.status(), line);
            assertTrue(answer.header("Allow").contains("GET"), answer.head());
        }
        assertEquals(List.of(), origin.seen);
        for (String hops : List.of("7", "1", "999999999999", "0000000000002", "x")) {
            RawClient client = client(gateway);
            client.send("OPTIONS /a HTTP/1.1\r\nHost: a\r\nMax-Forwards: " + hops + "\r\n\r\n");
            assertEquals(200, client.read().status());
        }
        // Of other methods the field means nothing.
        RawClient client = client(gateway);
        client.send("GET /a HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n");
        assertEquals(200, client.read().status());
        assertEquals(List.of("6", "0", "999999999", "1", "x", "0"),
                origin.seen.stream().map(seen -> seen.header("Max-Forwards")).toList());
    }
}
