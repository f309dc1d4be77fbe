// How much a socket is read at a time.
package wirespeed.gateway.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.channel.RecvByteBufAllocator;
import io.netty.channel.embedded.EmbeddedChannel;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.core.OptionTable;

class LoopReceiveTest {
    private final EmbeddedChannel channel = new EmbeddedChannel();
    private final RecvByteBufAllocator.Handle handle = new LoopReceive(4096).newHandle();

    /** How much the next read of this event may take; {@code count} is what it finds. */
    private int read(int count) {
        ByteBuf buffer = handle.allocate(PooledByteBufAllocator.DEFAULT);
        int size = buffer.capacity();
        handle.attemptedBytesRead(size);
        handle.lastBytesRead(Math.min(count, size));
        handle.incMessagesRead(1);
        buffer.release();
        return size;
    }

    @Test
    void a_full_read_is_followed_by_larger_ones_until_the_event_is_over() {
        for (int event = 0; event < 3; event++) {
            handle.reset(channel.config());
            assertEquals(4096, read(1 << 20));
            assertEquals(LoopReceive.LARGE_BYTES, read(1 << 20));
            assertEquals(LoopReceive.LARGE_BYTES, read(100));
        }
        handle.reset(channel.config());
        assertEquals(4096, read(100));
        assertEquals(4096, read(4096));
        assertEquals(LoopReceive.LARGE_BYTES, read(1));
        channel.close();
    }

    @Test
    void the_option_names_the_size_of_large_reads() {
        String text = OptionTable.find("server", "receive-buffer").text();
        assertTrue(text.contains(LoopReceive.LARGE_BYTES / 1024 + "KiB at a time"), text);
    }

    @Test
    void an_event_goes_on_after_a_full_read_and_ends_after_others_or_many() {
        handle.reset(channel.config());
        read(100);
        assertFalse(handle.continueReading());
        handle.reset(channel.config());
        int reads = 0;
        do {
            read(1 << 20);
            reads++;
        } while (handle.continueReading());
        assertEquals(8, reads);
        channel.close();
    }
}
