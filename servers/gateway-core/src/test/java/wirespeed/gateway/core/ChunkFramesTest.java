// Chunked bodies, byte by byte.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;

class ChunkFramesTest {
    private final ChunkFrames frames = new ChunkFrames();

    /** The body; what follows the last frame is not looked at. */
    private String read(String wire, int pieceMax) {
        byte[] bytes = wire.getBytes(StandardCharsets.ISO_8859_1);
        StringBuilder body = new StringBuilder();
        frames.begin();
        int at = 0;
        while (!frames.isDone()) {
            if (frames.data() > 0) {
                int count = (int) Math.min(pieceMax, frames.data());
                body.append(wire, at, at + count);
                frames.took(count);
                at += count;
            } else {
                frames.frame(bytes[at++]);
            }
        }
        return body.toString() + "|" + wire.substring(at);
    }

    private int status(String wire) {
        return assertThrows(Refusal.class, () -> read(wire, 7), wire).status();
    }

    @Test
    void data_is_joined_and_the_next_message_left_alone() {
        String wire = "5;a=\"b;c\"\r\nhello\r\n00A\r\n0123456789\r\n0\r\n\r\nGET /";
        for (int piece = 1; piece < 12; piece++) {
            assertEquals("hello0123456789|GET /", read(wire, piece));
            assertNull(frames.trailers());
        }
    }

    @Test
    void trailers_are_kept() {
        read("1\r\nx\r\n0\r\nA: 1\r\nGrpc-Status:0 \r\nA: 2\r\n\r\n", 1);
        assertEquals("A: 1\r\nGrpc-Status: 0\r\nA: 2\r\n", frames.trailers().toString());
        read("0\r\n\r\n", 1);
        assertNull(frames.trailers());
    }

    @Test
    void an_invalid_frame_is_refused_at_its_first_wrong_byte() {
        for (String wire : new String[] {"5\n", "5 \r\n", "-5\r\n", "0x5\r\n", "\r\n", "5\rX",
            "5;a=\"b\r\n", "1\r\nxX", "1\r\nx\n", "1\r\nx\rX", "0\r\nno trailer\r\n",
            "0\r\n folded: x\r\n", "0\r\nA: \u0000\r\n", "0\r\n: x\r\n",
            "f".repeat(16) + "\r\n"}) {
            assertEquals(400, status(wire), wire);
        }
    }

    @Test
    void frames_are_bounded() {
        assertEquals(413, status("1;" + "x".repeat(3000) + "\r\n"));
        assertEquals(413, status(("1;" + "x".repeat(600) + "\r\nx\r\n").repeat(2)));
        assertEquals(431, status("0\r\nA: " + "x".repeat(3000)));
        assertEquals(431, status("0\r\n" + ("A: " + "x".repeat(1000) + "\r\n").repeat(9)));
        assertEquals(431, status("0\r\n" + "A: 1\r\n".repeat(101)));
    }

    @Test
    void trailers_that_decide_about_a_message_do_not_go_on() {
        read("0\r\nGrpc-Status: 0\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"
                + "Host: b\r\nX-Forwarded-For: 1\r\nAuthorization: x\r\nSet-Cookie: a\r\n"
                + "Content-Type: a\r\nIf-Match: a\r\nX-Forwarded-Mine: 1\r\n\r\n", 1);
        assertEquals("grpc-status: 0\r\n", Trailers.fit(frames.trailers()).toString());
        assertNull(Trailers.fit(null));
    }
}
