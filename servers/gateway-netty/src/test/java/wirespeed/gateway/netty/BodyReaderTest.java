// Bodies in every framing, in pieces of every size.
package wirespeed.gateway.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Refusal;

class BodyReaderTest {
    private static String read(Framing framing, String wire, int piece) {
        BodyReader reader = new BodyReader();
        reader.begin(framing);
        StringBuilder body = new StringBuilder();
        for (int at = 0; at < wire.length() && !reader.isDone(); at += piece) {
            ByteBuf in = Unpooled.copiedBuffer(wire.substring(at,
                    Math.min(wire.length(), at + piece)), StandardCharsets.ISO_8859_1);
            reader.read(in, slice -> {
                body.append(slice.toString(StandardCharsets.ISO_8859_1));
                slice.release();
            });
            in.release();
            assertEquals(0, in.refCnt());
        }
        assertTrue(reader.isDone(), "not complete: " + body);
        return body.toString();
    }

    @Test
    void chunks_are_joined_whatever_the_pieces() {
        Random random = new Random(3);
        StringBuilder wire = new StringBuilder();
        StringBuilder body = new StringBuilder();
        for (int i = 0; i < 50; i++) {
            String data = "x".repeat(1 + random.nextInt(300));
            body.append(data);
            wire.append(Integer.toHexString(data.length())).append(i % 3 == 0 ? ";a=b" : "")
                    .append("\r\n").append(data).append("\r\n");
        }
        wire.append("0\r\nTrailer: y\r\n\r\n");
        for (int piece = 1; piece < 40; piece++) {
            assertEquals(body.toString(), read(Framing.CHUNKED, wire.toString(), piece));
        }
    }

    @Test
    void a_length_ends_exactly() {
        ByteBuf in = Unpooled.copiedBuffer("helloNEXT", StandardCharsets.US_ASCII);
        BodyReader reader = new BodyReader();
        reader.begin(Framing.length(5));
        reader.read(in, ByteBuf::release);
        assertTrue(reader.isDone());
        assertEquals("NEXT", in.toString(StandardCharsets.US_ASCII));
        in.release();
    }

    @Test
    void refuses_invalid_chunks() {
        for (String wire : new String[] {"5\nhello\r\n0\r\n\r\n", "5\r\nhelloX\r\n0\r\n\r\n",
            "5\r\nhello\n0\r\n\r\n", "0\r\nbad trailer\r\n\r\n", "5\rX", "5\r\nhello\rX",
            "f".repeat(16) + "\r\n"}) {
            assertThrows(Refusal.class, () -> read(Framing.CHUNKED, wire, 1000), wire);
        }
    }
}
