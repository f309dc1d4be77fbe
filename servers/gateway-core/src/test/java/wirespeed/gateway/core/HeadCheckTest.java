// Each rule of the head check with a message that breaks only this rule.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Random;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

class HeadCheckTest {
    private static final String GET = "GET / HTTP/1.1\r\nHost: a\r\n";

    static Request parse(String head) {
        byte[] bytes = Ascii.bytes(head);
        int end = HeadCheck.end(bytes, 0, bytes.length, 0, Limits.DEFAULT);
        return end < 0 ? null : HeadCheck.request(bytes, 0, end, Limits.DEFAULT);
    }

    static Response parseResponse(String head) {
        byte[] bytes = Ascii.bytes(head);
        int end = HeadCheck.end(bytes, 0, bytes.length, 0, Limits.DEFAULT);
        return HeadCheck.response(bytes, 0, end, Limits.DEFAULT);
    }

    @Test
    void reads_a_plain_request() {
        Request request = parse("GET /a/b?c=d HTTP/1.1\r\nHost: Example.com:80\r\nX: \t1 \r\n\r\n");
        assertEquals("GET", request.method());
        assertEquals("/a/b", request.path());
        assertEquals("c=d", request.query());
        assertEquals("Example.com:80", request.host());
        assertEquals("1", request.headers().get("x"));
        assertEquals(Framing.NONE, request.framing());
        assertTrue(request.keepAlive());
    }

    @Test
    void waits_for_the_rest_at_every_split() {
        String head = GET + "Content-Length: 5\r\n\r\n";
        byte[] bytes = Ascii.bytes(head);
        for (int cut = 0; cut < bytes.length; cut++) {
            assertEquals(-1, HeadCheck.end(bytes, 0, cut, 0, Limits.DEFAULT));
            assertEquals(bytes.length, HeadCheck.end(bytes, 0, bytes.length, cut, Limits.DEFAULT),
                    "after " + cut + " bytes were scanned");
        }
    }

    static Stream<Arguments> refused() {
        return Stream.of(
                Arguments.of(400, "GET / HTTP/1.1\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET / HTTP/1.1\rHost: a\r\n\r\n"),
                Arguments.of(400, "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n"),
                Arguments.of(400, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET /  HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET / HTTP/1.1 \r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET /\u000b HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, " GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "\0GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET /\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "G(T / HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "A".repeat(33) + " / HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET /\u00e9 HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET /a\\b HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET a HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET * HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(405, "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET http://u@h/x HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET /..%2fx HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET /%5cx HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET /a/../../b HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET /%2e%2e/b HTTP/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(505, "GET / HTTP/0.9\r\nHost: a\r\n\r\n"),
                Arguments.of(505, "GET / HTTP/1.9\r\nHost: a\r\n\r\n"),
                Arguments.of(505, "GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET / http/1.1\r\nHost: a\r\n\r\n"),
                Arguments.of(400, "GET / HTTP/1.1\r\n\r\n"),
                Arguments.of(400, GET + "Host: a\r\n\r\n"),
                Arguments.of(400, "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"),
                Arguments.of(400, "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"),
                Arguments.of(400, "GET / HTTP/1.1\r\nHost: a:x\r\n\r\n"),
                Arguments.of(400, "GET / HTTP/1.1\r\nHost: a:70000\r\n\r\n"),
                Arguments.of(400, "GET / HTTP/1.1\r\nHost: \r\n\r\n"),
                Arguments.of(400, GET + "X : a\r\n\r\n"),
                Arguments.of(400, GET + " X: a\r\n\r\n"),
                Arguments.of(400, GET + "X: a\r\n b\r\n\r\n"),
                Arguments.of(400, GET + "X\r\n\r\n"),
                Arguments.of(400, GET + ": a\r\n\r\n"),
                Arguments.of(400, GET + "X(: a\r\n\r\n"),
                Arguments.of(400, GET + "X: a\0b\r\n\r\n"),
                Arguments.of(400, GET + "X: a\u0001b\r\n\r\n"),
                Arguments.of(400, GET + "Content-Length: 5\r\nContent-Length: 5\r\n\r\n"),
                Arguments.of(400, GET + "Content-Length: 5, 5\r\n\r\n"),
                Arguments.of(400, GET + "Content-Length: +5\r\n\r\n"),
                Arguments.of(400, GET + "Content-Length: -1\r\n\r\n"),
                Arguments.of(400, GET + "Content-Length: 0x5\r\n\r\n"),
                Arguments.of(400, GET + "Content-Length: 5 5\r\n\r\n"),
                Arguments.of(400, GET + "Content-Length:\r\n\r\n"),
                Arguments.of(400, GET + "Content-Length: 9223372036854775808\r\n\r\n"),
                Arguments.of(400, GET + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
                Arguments.of(400, GET + "Transfer-Encoding: xchunked\r\n\r\n"),
                Arguments.of(501, GET + "Transfer-Encoding: identity\r\n\r\n"),
                Arguments.of(501, GET + "Transfer-Encoding: gzip\r\n\r\n"),
                Arguments.of(400, GET + "Transfer-Encoding: chunked, x\r\n\r\n"),
                Arguments.of(400, GET + "Transfer-Encoding: chunked,\r\n\r\n"),
                Arguments.of(400, GET + "Transfer-Encoding: chunked, chunked\r\n\r\n"),
                Arguments.of(400, GET
                        + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
                Arguments.of(400, "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
                Arguments.of(417, GET + "Expect: 200-ok\r\n\r\n"),
                Arguments.of(431, GET + "X: y\r\n".repeat(100) + "\r\n"),
                Arguments.of(431, GET + "X: " + "y".repeat(17_000) + "\r\n\r\n"),
                Arguments.of(414, "GET /" + "a".repeat(9000)),
                Arguments.of(414, "GET /" + "a".repeat(8400) + " HTTP/1.1\r\nHost: a\r\n\r\n"));
    }

    @ParameterizedTest
    @MethodSource("refused")
    void refuses_what_two_servers_may_read_differently(int status, String head) {
        Refusal refusal = assertThrows(Refusal.class, () -> parse(head));
        assertEquals(status, refusal.status(), refusal.getMessage());
    }

    @Test
    void lets_the_target_win_over_host() {
        Request request = parse("GET http://b.example/x HTTP/1.1\r\nHost: a\r\n\r\n");
        assertEquals("b.example", request.host());
        assertEquals("b.example", request.headers().get("Host"));
        assertEquals("/x", request.path());
        assertEquals("/", parse("GET http://b HTTP/1.1\r\nHost: b\r\n\r\n").path());
    }

    @Test
    void forwards_the_normal_form_of_a_path() {
        assertEquals("/b/~x%20", parse(
                "GET /a/../b/./%7ex%20 HTTP/1.1\r\nHost: a\r\n\r\n").path());
        assertEquals("/a/", TargetPath.normalise("/a/."));
        assertEquals("/", TargetPath.normalise("/a/.."));
        assertEquals("/a/b/", TargetPath.normalise("//a//b//"));
        assertEquals("/.well-known/x", TargetPath.normalise("/.well-known/x"));
    }

    @Test
    void keeps_a_connection_by_version_and_option() {
        assertFalse(parse("GET / HTTP/1.0\r\n\r\n").keepAlive());
        assertTrue(parse("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").keepAlive());
        assertFalse(parse(GET + "Connection: x, close\r\n\r\n").keepAlive());
    }

    @Test
    void expects_continue_only_for_a_body() {
        assertTrue(parse(GET + "Expect: 100-Continue\r\nContent-Length: 1\r\n\r\n")
                .expectsContinue());
        assertFalse(parse(GET + "Expect: 100-continue\r\n\r\n").expectsContinue());
    }

    @Test
    void refuses_a_malformed_response_with_502() {
        String[] heads = {"HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 099 OK\r\n\r\n", "HTTP/1.1 200 O\0K\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "HTTP/1.1 200 OK\r\n A: b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HI THERE\r\n\r\n"};
        for (String head : heads) {
            Refusal refusal = assertThrows(Refusal.class, () -> parseResponse(head), head);
            assertEquals(502, refusal.status(), head);
        }
    }

    @Test
    void takes_the_framing_of_a_response_from_its_request() {
        Response response = parseResponse("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n");
        assertEquals(Framing.length(7), response.answers("GET"));
        assertEquals(Framing.NONE, response.answers("HEAD"));
        assertEquals(Framing.UNTIL_CLOSE, parseResponse("HTTP/1.1 200\r\n\r\n").answers("GET"));
        assertEquals(Framing.NONE, parseResponse("HTTP/1.1 304 x\r\n\r\n").answers("GET"));
        assertNull(parseResponse("HTTP/1.1 200 \r\n\r\n").framing());
    }

    /** For any bytes, the check returns a message or a refusal; seeds are fixed. */
    @Test
    void survives_mutated_heads_and_never_reads_its_own_output_differently() {
        String seed = "POST /a/b?c HTTP/1.1\r\nHost: h:1\r\nContent-Length: 12\r\nX-A: b c\r\n"
                + "Connection: keep-alive\r\n\r\n";
        String alphabet = "\r\n\t :;,/%.0159aHT\0\u0080Content-Length";
        Random random = new Random(20260421);
        int accepted = 0;
        for (int round = 0; round < 60_000; round++) {
            StringBuilder text = new StringBuilder(seed);
            for (int edits = random.nextInt(4); edits >= 0; edits--) {
                int at = random.nextInt(text.length());
                char character = alphabet.charAt(random.nextInt(alphabet.length()));
                switch (random.nextInt(3)) {
                    case 0 -> text.setCharAt(at, character);
                    case 1 -> text.insert(at, character);
                    default -> text.deleteCharAt(at);
                }
            }
            Request request;
            try {
                request = parse(text.toString());
            } catch (Refusal refusal) {
                continue;
            }
            if (request != null) {
                accepted++;
                Request again = parse(request.method() + " " + request.path()
                        + (request.query() == null ? "" : "?" + request.query()) + " HTTP/1."
                        + request.minor() + "\r\n" + request.headers() + "\r\n");
                assertEquals(request.path(), again.path());
                assertEquals(request.framing(), again.framing());
                assertEquals(request.host(), again.host());
            }
        }
        assertTrue(accepted > 1000, "only " + accepted + " mutants were accepted");
    }
}
