// Gives every read of a loop the same buffer, or a larger one behind a full one, and counts how far it got.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.channel.ChannelConfig;
import io.netty.channel.DefaultMaxMessagesRecvByteBufAllocator;
import io.netty.util.concurrent.FastThreadLocal;

/**
 * For transports that read at once when a socket is ready (epoll, NIO). A loop reads one socket at
 * a time, so one handle serves all of its connections: what a connection touches after 50 ms of
 * waiting comes from far memory, and this is not part of it any more. A socket that fills a buffer
 * has more, mostly a long body: the rest of the event reads into a larger one.
 */
final class LoopReceive extends DefaultMaxMessagesRecvByteBufAllocator {
    private static final FastThreadLocal<LoopHandle> OF_LOOP = new FastThreadLocal<>() {
        @Override
        protected void onRemoval(LoopHandle removed) {
            removed.kept.release();
            removed.large.release();
        }
    };

    /** What a read has to bring to be handed on at once: its buffer then serves the next read, from the cache. */
    static final int LARGE_BYTES = 32 * 1024;
    /** Of one socket in an event, before others get their turn. */
    private static final int READS_MAX = 8;

    private final int bytes;

    LoopReceive(int bytes) {
        super(READS_MAX);
        this.bytes = bytes;
    }

    @Override
    @SuppressWarnings("deprecation") // the method that implementations override
    public Handle newHandle() {
        LoopHandle own = OF_LOOP.getIfExists();
        if (own == null || own.kept.bytes() != bytes) {
            own = new LoopHandle();
            OF_LOOP.set(own);
        }
        return own;
    }

    private final class LoopHandle extends MaxMessageHandle {
        private final KeptBuffer kept = new KeptBuffer(bytes);
        private final KeptBuffer large = new KeptBuffer(Math.max(bytes, LARGE_BYTES));
        /** Whether this event has filled a buffer. */
        private boolean isLarge;
        private boolean isFirst;

        @Override
        public void reset(ChannelConfig config) {
            super.reset(config);
            isFirst = true;
            isLarge = false;
        }

        @Override
        public ByteBuf allocate(ByteBufAllocator allocator) {
            isLarge |= !isFirst && lastBytesRead() == attemptedBytesRead();
            isFirst = false;
            return (isLarge ? large : kept).take(() -> allocator);
        }

        @Override
        public int guess() {
            return isLarge ? large.bytes() : bytes;
        }
    }
}
