// Chunked bodies made by chance: one meaning however they arrive, or a refusal.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.List;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import net.jqwik.api.constraints.IntRange;

class ChunkFramesPropertyTest {
    private static final List<String> PIECES = List.of("0\r\n", "\r\n", "5\r\nhello\r\n",
            "A;x=y\r\n0123456789\r\n", "1\r\n\r\r\n", "2\r\n\r\n\r\n", "X-Sum: 42\r\n", "-1\r\n", "0x1\r\n",
            "1 \r\na\r\n", "1\na\n", "\r", "\n", ";\r\n", "00\r\n", "7fffffffffffffff\r\n", "GET / HTTP/1.1\r\n",
            "3\r\nab\r\n", "Content-Length: 5\r\n", " folded\r\n", "\0");

    @Provide
    Arbitrary<String> bodies() {
        Arbitrary<String> piece = Arbitraries.frequencyOf(
                net.jqwik.api.Tuple.of(9, Arbitraries.of(PIECES)),
                net.jqwik.api.Tuple.of(1, Arbitraries.strings().withCharRange('\0', '\u00ff')
                        .ofMaxLength(4)));
        return Combinators.combine(piece.list().ofMaxSize(8), Arbitraries.of("0\r\n\r\n", ""))
                .as((all, end) -> String.join("", all) + end);
    }

    /** Body, trailers and what is left; or a refusal; or that it ends too early. */
    private static String read(byte[] bytes, int pieceMax) {
        ChunkFrames frames = new ChunkFrames();
        StringBuilder body = new StringBuilder();
        frames.begin();
        int at = 0;
        try {
            while (!frames.isDone() && at < bytes.length) {
                if (frames.data() > 0) {
                    int count = (int) Math.min(Math.min(pieceMax, frames.data()),
                            bytes.length - at);
                    body.append(new String(bytes, at, count, StandardCharsets.ISO_8859_1));
                    frames.took(count);
                    at += count;
                } else {
                    frames.frame(bytes[at++]);
                }
            }
        } catch (Refusal refusal) {
            return "refused with " + refusal.status();
        }
        return frames.isDone() ? body + "|" + frames.trailers() + "|" + (bytes.length - at)
                : "unfinished";
    }

    /** Follows RFC 9112 §7.1 literally, and slowly; null for a body that is not complete. */
    private static String model(String wire) {
        StringBuilder body = new StringBuilder();
        String rest = wire;
        while (rest.matches("(?s)[0-9A-Fa-f]{1,7}(;[^\r\n]*)?\r\n.*")) {
            int line = rest.indexOf("\r\n");
            int size = Integer.parseInt(rest.substring(0, line).replaceAll(";.*", ""), 16);
            rest = rest.substring(line + 2);
            if (size == 0) {
                return body.toString();
            }
            if (rest.length() < size + 2 || !rest.startsWith("\r\n", size)) {
                return null;
            }
            body.append(rest, 0, size);
            rest = rest.substring(size + 2);
        }
        return null;
    }

    @Property(tries = 2000)
    void a_body_means_the_same_however_it_arrives(@ForAll("bodies") String wire,
            @ForAll @IntRange(min = 1, max = 20) int pieceMax) {
        byte[] bytes = wire.getBytes(StandardCharsets.ISO_8859_1);
        assertEquals(read(bytes, Integer.MAX_VALUE), read(bytes, pieceMax));
    }

    @Property(tries = 2000)
    void what_is_taken_is_the_body_that_everybody_reads(@ForAll("bodies") String wire) {
        String read = read(wire.getBytes(StandardCharsets.ISO_8859_1), Integer.MAX_VALUE);
        if (!read.startsWith("refused") && !read.equals("unfinished")) {
            String model = model(wire);
            assertTrue(model != null && read.startsWith(model + "|"), () -> read + " is not " + model);
        }
    }
}
