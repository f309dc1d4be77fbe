// The pieces of a compressed body.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.Random;
import java.util.zip.GZIPInputStream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class CompressedBodyTest {
    /** An event of a stream may be as long as any piece, and the next one far away. */
    @ParameterizedTest
    @ValueSource(ints = {1, 10_000, 32_768})
    void a_piece_leaves_at_once(int length) throws IOException {
        byte[] event = new byte[length];
        new Random(1).nextBytes(event);
        CompressedBody body = CompressedBody.of("gzip");
        ByteBuffer sent = body.chunk(ByteBuffer.wrap(event));
        try (InputStream read = new GZIPInputStream(
                new ByteArrayInputStream(sent.array(), 0, sent.remaining()))) {
            assertArrayEquals(event, read.readNBytes(length));
        } finally {
            body.close();
        }
    }
}
