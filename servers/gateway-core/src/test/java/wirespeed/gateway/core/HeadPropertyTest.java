// Heads of any kind: refused with a reason, or of one meaning that forwarding keeps.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;

class HeadPropertyTest {
    private static final Origin ORIGIN = new Origin("o", List.of(new Address("10.0.0.1", 80)),
            Balancer.Method.ROUND_ROBIN, Origin.Settings.DEFAULT);
    private static final Forwarding FORWARDING = new Forwarding("gw-1", Networks.NONE);

    /** Pieces that servers are known to read differently, in any order and number. */
    @Provide
    Arbitrary<String> heads() {
        Arbitrary<String> method = Arbitraries.of("GET", "POST", "HEAD", "get", "M-SEARCH", "G ET",
                "", "OPTIONS", "CONNECT");
        Arbitrary<String> target = Arbitraries.of("/", "/a//b", "/a/../b", "/a;x/b", "/%2e%2e/a",
                "/a%2Fb", "*", "http://b/c", "http://b", "/a?b#c", "/\u00e4", "/a\tb", "//a", "/..;/a",
                "/a?b=/../c", "/a%00", "/%", "a");
        Arbitrary<String> version = Arbitraries.of("HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0",
                "http/1.1", "HTTP/1.1 ", "");
        Arbitrary<String> field = Arbitraries.of("Host: a", "Host: b:80", "Host:", "host: a@b",
                "Content-Length: 5", "Content-Length: +5", "Content-Length: 5, 5",
                "Content-Length : 5", "Transfer-Encoding: chunked", "Transfer-Encoding: xchunked",
                "Transfer-Encoding:\tchunked", "Transfer-Encoding: chunked, identity",
                "Connection: close", "Connection: Host", "Connection: keep-alive, X-A", "X-A: 1",
                " folded: x", "X-B: \u0000", "X-C: a\rb", "X-D: a\nb", ": x", "X-E", "Expect: 100-continue",
                "Upgrade: websocket", "Via: 1.1 gw-1", "TE: trailers", "X-Forwarded-For: 1.2.3.4");
        Arbitrary<String> end = Arbitraries.frequency(net.jqwik.api.Tuple.of(8, "\r\n"),
                net.jqwik.api.Tuple.of(1, "\n"), net.jqwik.api.Tuple.of(1, "\r"));
        Arbitrary<String> line = Combinators.combine(field, end).as((text, last) -> text + last);
        Arbitrary<String> good = Arbitraries.of("GET /a HTTP/1.1\r\nHost: a\r\n",
                "POST /a?b HTTP/1.1\r\nHost: a\r\n", "GET /a/./b;c HTTP/1.0\r\n");
        Arbitrary<String> any = Combinators.combine(method, target, version, end)
                .as((m, t, v, e) -> m + " " + t + " " + v + e);
        return Combinators.combine(Arbitraries.oneOf(good, any), line.list().ofMaxSize(5))
                .as((first, rest) -> first + String.join("", rest) + "\r\n");
    }

    private static Request read(String text) {
        byte[] bytes = text.getBytes(StandardCharsets.ISO_8859_1);
        int end = HeadCheck.end(bytes, 0, bytes.length, 0, Limits.DEFAULT);
        if (end != bytes.length) {
            throw new Refusal(400, "no head, or more than one");
        }
        return HeadCheck.request(bytes, 0, end, Limits.DEFAULT);
    }

    private static String forwarded(Request request) {
        FORWARDING.accept(request);
        FORWARDING.prepare(request);
        Context context = new Context(new Snapshot(1, new Chain(List.of()),
                new RouteTable(List.of()), Map.of(), Limits.DEFAULT, FORWARDING), request, 0);
        context.route(Route.toAll("r", ORIGIN));
        HeadSink sink = new HeadSink();
        Forwarding.writeRequest(context, ORIGIN.addresses().get(0), sink);
        return sink.toString();
    }

    @Property(tries = 2000)
    void what_is_forwarded_has_one_meaning_and_it_is_the_clients(@ForAll("heads") String head) {
        Request request;
        String sent;
        try {
            request = read(head);
            sent = forwarded(request);
        } catch (Refusal refused) {
            assertTrue(refused.status() >= 400 && refused.status() < 600);
            return;
        }
        if (request.path().equals("*")) {
            return;
        }
        Request again = read(sent);
        assertEquals(request.method(), again.method());
        assertEquals(request.path(), again.path());
        assertEquals(request.query(), again.query());
        assertEquals(request.framing(), again.framing());
        assertEquals(1, again.minor());
        assertEquals(1, again.headers().all("Host").size());
        assertTrue(again.headers().all("Content-Length").size()
                + again.headers().all("Transfer-Encoding").size() <= 1, sent);
    }

    @Property(tries = 2000)
    void any_bytes_are_a_head_or_are_refused(@ForAll byte[] some, @ForAll("heads") String head) {
        byte[] bytes = (head.substring(0, head.length() / 2)
                + new String(some, StandardCharsets.ISO_8859_1) + "\r\n\r\n")
                .getBytes(StandardCharsets.ISO_8859_1);
        try {
            int end = HeadCheck.end(bytes, 0, bytes.length, 0, Limits.DEFAULT);
            HeadCheck.request(bytes, 0, end, Limits.DEFAULT);
        } catch (Refusal refused) {
            assertTrue(refused.getMessage().length() > 0);
        }
        try {
            int end = HeadCheck.end(bytes, 0, bytes.length, 0, Limits.DEFAULT);
            HeadCheck.response(bytes, 0, end, Limits.DEFAULT);
        } catch (Refusal refused) {
            assertTrue(refused.status() >= 400);
        }
    }

    @Property(tries = 2000)
    void the_end_of_a_head_is_where_it_is_however_it_arrives(@ForAll("heads") String head) {
        byte[] bytes = head.getBytes(StandardCharsets.ISO_8859_1);
        String whole = end(bytes, bytes.length);
        String pieces = end(bytes, 1);
        assertEquals(whole, pieces);
    }

    private static String end(byte[] bytes, int piece) {
        int scanned = 0;
        try {
            for (int to = Math.min(piece, bytes.length); to <= bytes.length; to += piece) {
                int end = HeadCheck.end(bytes, 0, to, scanned, Limits.DEFAULT);
                if (end >= 0) {
                    return "ends at " + end;
                }
                scanned = to;
            }
            return "is incomplete";
        } catch (Refusal refused) {
            return refused.getMessage();
        }
    }

    @Provide
    Arbitrary<String> lines() {
        return Arbitraries.strings().withChars("0123456789abcdefABCDEF;= \t+-x\"\\\0\r\u00ff")
                .ofMaxLength(24);
    }

    @Property(tries = 2000)
    void a_chunk_size_is_the_number_that_everybody_reads(@ForAll("lines") String line) {
        byte[] bytes = line.getBytes(StandardCharsets.ISO_8859_1);
        try {
            long size = ChunkLineCheck.size(bytes, 0, bytes.length);
            int end = line.indexOf(';');
            assertEquals(Long.parseLong(end < 0 ? line : line.substring(0, end), 16), size);
            assertTrue(size >= 0 && Character.digit(line.charAt(0), 16) >= 0);
        } catch (Refusal refused) {
            assertEquals(400, refused.status());
        }
    }
}
