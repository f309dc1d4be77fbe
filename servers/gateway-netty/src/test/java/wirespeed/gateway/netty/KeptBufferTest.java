// Memory is used again only when no other code looks at it.
package wirespeed.gateway.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;

class KeptBufferTest {
    private final KeptBuffer kept = new KeptBuffer(64);

    private ByteBuf take() {
        return kept.take(() -> PooledByteBufAllocator.DEFAULT);
    }

    @Test
    void a_released_buffer_comes_again_and_is_empty() {
        ByteBuf first = take();
        first.writeInt(7);
        first.release();
        ByteBuf second = take();
        assertSame(first, second);
        assertEquals(0, second.readableBytes());
        second.release();
        kept.release();
        assertEquals(0, second.refCnt());
    }

    @Test
    void a_slice_that_somebody_keeps_is_never_overwritten() {
        ByteBuf first = take();
        first.writeCharSequence("kept by a slow socket", StandardCharsets.US_ASCII);
        ByteBuf slice = first.readRetainedSlice(first.readableBytes());
        first.release();
        ByteBuf second = take();
        assertNotSame(first, second);
        second.writeCharSequence("something else altogether", StandardCharsets.US_ASCII);
        assertEquals("kept by a slow socket", slice.toString(StandardCharsets.US_ASCII));
        slice.release();
        assertEquals(0, first.refCnt());
        second.release();
        kept.release();
        assertEquals(0, second.refCnt());
    }

    @Test
    void a_buffer_stays_usable_when_there_is_no_memory_for_another() {
        ByteBuf first = take();
        ByteBuf slice = first.writeInt(7).readRetainedSlice(4);
        first.release();
        assertThrows(OutOfMemoryError.class, () -> kept.take(() -> {
            throw new OutOfMemoryError("as Netty throws it");
        }));
        assertThrows(OutOfMemoryError.class, () -> kept.take(() -> new PooledByteBufAllocator() {
            @Override
            protected ByteBuf newDirectBuffer(int initial, int max) {
                throw new OutOfMemoryError("as Netty throws it");
            }
        }));
        assertEquals(7, slice.getInt(0));
        slice.release();
        ByteBuf second = take();
        assertEquals(2, second.refCnt());
        second.release();
        kept.release();
        assertEquals(0, second.refCnt());
    }
}
