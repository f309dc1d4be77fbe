// One direct buffer of a loop that is used again and again while no other code holds it.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import java.util.function.Supplier;

/**
 * Most messages are read, answered and released within one event, so the same memory serves all of
 * them and stays in the cache. A taker that keeps a reference longer (a slice in a slow socket's queue)
 * keeps the whole buffer; the next taker then gets a new one.
 */
final class KeptBuffer {
    private final int bytes;
    private ByteBuf buffer;

    KeptBuffer(int bytes) {
        this.bytes = bytes;
    }

    /**
     * An empty buffer with at least the agreed size; the taker releases it.
     *
     * @param allocator asked only when new memory is needed: finding it is a walk over a connection
     */
    ByteBuf take(Supplier<ByteBufAllocator> allocator) {
        if (buffer == null || buffer.refCnt() > 1) {
            replace(allocator.get());
        }
        return buffer.clear().retain();
    }

    int bytes() {
        return bytes;
    }

    private void replace(ByteBufAllocator allocator) {
        // Allocated first: without memory, the old buffer must stay what it is.
        ByteBuf fresh = allocator.directBuffer(bytes);
        if (buffer != null) {
            buffer.release();
        }
        buffer = fresh;
    }

    /** To be called when the loop ends. */
    void release() {
        if (buffer != null) {
            buffer.release();
            buffer = null;
        }
    }
}
