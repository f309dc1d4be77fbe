/** The bodies of responses, created once at start. */
package wirespeed.stuborigin;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.nio.charset.StandardCharsets;
import java.util.SplittableRandom;

/** Different random blocks, used in turn, with chunk framing if they are sent in chunks. */
final class Payloads {
    private static final int BLOCKS = 64;
    /** Large blocks are fewer. */
    private static final int MEMORY_BYTES_MAX = 16 << 20;

    final int payloadBytes;
    final boolean isChunked;
    private final ByteBuf[] blocks;
    private final ByteBuf[] chunked;

    Payloads(int payloadBytes, int chunkBytes, long seed) {
        this.payloadBytes = payloadBytes;
        isChunked = chunkBytes > 0;
        SplittableRandom random = new SplittableRandom(seed);
        int fitting = MEMORY_BYTES_MAX / Math.max(1, payloadBytes);
        blocks = new ByteBuf[Math.max(1, Math.min(BLOCKS, fitting))];
        chunked = new ByteBuf[isChunked ? blocks.length : 0];
        for (int at = 0; at < blocks.length; at++) {
            byte[] bytes = new byte[payloadBytes];
            random.nextBytes(bytes);
            blocks[at] = Unpooled.directBuffer(Math.max(1, bytes.length)).writeBytes(bytes);
            if (isChunked) {
                chunked[at] = chunks(bytes, chunkBytes);
            }
        }
    }

    /** The body of the n-th response of a loop; shared, so the caller copies or duplicates it. */
    ByteBuf body(long number, boolean inChunks) {
        return (inChunks ? chunked : blocks)[(int) (number % blocks.length)];
    }

    /** Frees the memory. */
    void release() {
        for (ByteBuf block : blocks) {
            block.release();
        }
        for (ByteBuf block : chunked) {
            block.release();
        }
    }

    private static ByteBuf chunks(byte[] bytes, int chunkBytes) {
        ByteBuf out = Unpooled.directBuffer(bytes.length + 16 * (bytes.length / chunkBytes + 2));
        for (int at = 0; at < bytes.length; at += chunkBytes) {
            int size = Math.min(chunkBytes, bytes.length - at);
            out.writeCharSequence(Integer.toHexString(size) + "\r\n", StandardCharsets.US_ASCII);
            out.writeBytes(bytes, at, size).writeCharSequence("\r\n", StandardCharsets.US_ASCII);
        }
        out.writeCharSequence("0\r\n\r\n", StandardCharsets.US_ASCII);
        return out;
    }
}
