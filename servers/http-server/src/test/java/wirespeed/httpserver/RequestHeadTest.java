/** The strict parser alone: fields, keep-alive, fuzzing, and agreement with another parser. */
package wirespeed.httpserver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.Unpooled;
import io.netty.channel.embedded.EmbeddedChannel;
import io.netty.handler.codec.http.HttpRequest;
import io.netty.handler.codec.http.HttpRequestDecoder;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.util.ReferenceCountUtil;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class RequestHeadTest {
    private static final int MUTATIONS = 40_000;
    private final RequestHead head = new RequestHead();

    @Test
    void a_head_has_a_length_and_the_rest_is_left() {
        byte[] bytes = bytes("GET /a?b HTTP/1.1\r\nHost: x\r\n\r\nGET /next");
        int length = head.read(bytes, 0, bytes.length);
        assertEquals(bytes.length - "GET /next".length(), length);
        assertEquals("/a?b", target(bytes));
        assertEquals(Method.GET, head.method);
        assertEquals(-1, head.bodyBytes);
    }

    @Test
    void an_absolute_target_is_reduced_to_path_and_query() {
        byte[] bytes = bytes("GET http://host:80/a?b HTTP/1.1\r\nHost: other\r\n\r\n");
        assertEquals(bytes.length, head.read(bytes, 0, bytes.length));
        assertEquals("/a?b", target(bytes));
    }

    @ParameterizedTest
    @CsvSource({"1.1,,true", "1.1,close,false", "1.1,'x, Close',false", "1.1,keep-alive,true",
        "1.1,'close, keep-alive',false", "1.1,'keep-alive, close',false", "1.0,,false",
        "1.0,keep-alive,true", "1.0,Keep-Alive,true", "1.0,'keep-alive, close',false",
        "1.1,closed,true"})
    void a_connection_is_kept_as_version_and_field_say(String version, String field, boolean kept) {
        byte[] bytes = bytes("GET / HTTP/" + version + "\r\nHost: x\r\n"
                + (field == null ? "" : "Connection: " + field + "\r\n") + "\r\n");
        assertEquals(bytes.length, head.read(bytes, 0, bytes.length));
        assertEquals(kept, head.isKeepAlive);
    }

    @Test
    void a_field_is_found_by_name_in_any_case() {
        byte[] bytes = bytes("GET / HTTP/1.1\r\nHost: x\r\nRANGE:  bytes=0-1 \r\nEmpty:\r\n\r\n");
        head.read(bytes, 0, bytes.length);
        assertEquals("bytes=0-1", head.field("range"));
        assertEquals("", head.field("empty"));
        assertNull(head.field("if-range"));
    }

    @Test
    void the_state_of_one_head_does_not_reach_the_next() {
        byte[] first = bytes("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nConnection: close\r\n"
                + "Expect: 100-continue\r\n\r\n");
        byte[] second = bytes("GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n");
        head.read(first, 0, first.length);
        head.read(second, 0, second.length);
        assertEquals(-1, head.bodyBytes);
        assertTrue(head.isKeepAlive);
        assertFalse(head.isContinueExpected);
    }

    /** A rejection is final: more bytes, or fewer, never change it. */
    @Test
    void mutated_heads_are_judged_alike_whole_and_in_parts() throws Exception {
        List<Corpus.Case> cases = Corpus.cases().filter(c -> c.bytes().length < 400).toList();
        SplittableRandom random = new SplittableRandom(7);
        for (int round = 0; round < MUTATIONS; round++) {
            byte[] bytes = mutated(cases.get(random.nextInt(cases.size())).bytes(), random);
            int whole = head.read(bytes, 0, bytes.length);
            assertTrue(whole <= bytes.length);
            int part = 0;
            for (int length = 0; length <= bytes.length && part == 0; length++) {
                part = head.read(bytes, 0, length);
            }
            assertEquals(whole, part, () -> text(bytes));
        }
    }

    /** An accepted head must mean the same to Netty's decoder. */
    @Test
    void accepted_heads_mean_the_same_to_another_parser() throws Exception {
        List<Corpus.Case> cases = Corpus.cases().filter(c -> c.bytes().length < 400).toList();
        SplittableRandom random = new SplittableRandom(11);
        int compared = 0;
        for (int round = 0; round < MUTATIONS; round++) {
            byte[] bytes = mutated(cases.get(random.nextInt(cases.size())).bytes(), random);
            int length = head.read(bytes, 0, bytes.length);
            if (length > 0) {
                compare(Arrays.copyOf(bytes, length));
                compared++;
            }
        }
        assertTrue(compared > MUTATIONS / 20, "only " + compared + " were accepted");
    }

    private void compare(byte[] bytes) {
        EmbeddedChannel other = new EmbeddedChannel(new HttpRequestDecoder());
        other.writeInbound(Unpooled.wrappedBuffer(bytes));
        Object message = other.readInbound();
        assertTrue(message instanceof HttpRequest, () -> "nothing decoded: " + text(bytes));
        HttpRequest request = (HttpRequest) message;
        assertTrue(request.decoderResult().isSuccess(),
                () -> request.decoderResult() + ": " + text(bytes));
        assertEquals(head.method == Method.OTHER, Arrays.stream(Method.values()).noneMatch(
                each -> each.name().equals(request.method().name())), () -> text(bytes));
        assertTrue(request.uri().endsWith(target(bytes)), () -> text(bytes));
        assertEquals(head.minorVersion, request.protocolVersion().minorVersion());
        assertEquals(head.isChunked, HttpUtil.isTransferEncodingChunked(request),
                () -> text(bytes));
        assertEquals(head.bodyBytes, HttpUtil.getContentLength(request, -1L), () -> text(bytes));
        ReferenceCountUtil.release(message);
        other.finishAndReleaseAll();
    }

    private static byte[] mutated(byte[] original, SplittableRandom random) {
        byte[] bytes = original.clone();
        for (int times = random.nextInt(3); times >= 0 && bytes.length > 4; times--) {
            int at = random.nextInt(bytes.length);
            switch (random.nextInt(4)) {
                case 0 -> bytes[at] = (byte) random.nextInt(256);
                case 1 -> bytes[at] = (byte) "\r\n\t :,;/0aG\0".charAt(random.nextInt(12));
                case 2 -> bytes = spliced(bytes, at, at + 1, new byte[0]);
                default -> {
                    int end = Math.min(bytes.length, at + 1 + random.nextInt(12));
                    bytes = spliced(bytes, at, at, Arrays.copyOfRange(bytes, at, end));
                }
            }
        }
        return bytes;
    }

    private static byte[] spliced(byte[] bytes, int from, int to, byte[] with) {
        byte[] out = new byte[bytes.length - (to - from) + with.length];
        System.arraycopy(bytes, 0, out, 0, from);
        System.arraycopy(with, 0, out, from, with.length);
        System.arraycopy(bytes, to, out, from + with.length, bytes.length - to);
        return out;
    }

    private String target(byte[] bytes) {
        return new String(bytes, head.targetFrom, head.targetTo - head.targetFrom,
                StandardCharsets.ISO_8859_1);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.ISO_8859_1);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.ISO_8859_1).replace("\r", "\\r")
                .replace("\n", "\\n");
    }
}
