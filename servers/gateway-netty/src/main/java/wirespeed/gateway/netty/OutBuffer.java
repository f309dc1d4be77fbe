// Collects a head and a small body into one buffer, so that they leave in one write.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.unix.Socket;
import io.netty.util.concurrent.FastThreadLocal;
import io.netty.util.internal.PlatformDependent;
import java.io.IOException;
import java.nio.ByteBuffer;
import wirespeed.gateway.core.HeadSink;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Trailers;

/**
 * What is larger than the rest of the buffer is passed on as it came, without a copy. Holds no
 * memory between messages: 20,000 idle connections must fit.
 *
 * <p>On epoll without TLS, one buffer that nothing queues before goes straight to the socket: the
 * pipeline and its queue exist for what a socket does not take, and walking through them for each
 * message costs more than composing it.
 */
class OutBuffer {
    static final int BYTES = 4096;
    private static final ByteBuf LAST_CHUNK = constant("0\r\n\r\n");
    private static final ByteBuf CRLF = constant("\r\n");

    /** One a loop: nearly always only one connection has something collected. */
    private static final FastThreadLocal<KeptBuffer> KEPT = new FastThreadLocal<>() {
        @Override
        protected KeptBuffer initialValue() {
            return new KeptBuffer(BYTES);
        }

        @Override
        protected void onRemoval(KeptBuffer removed) {
            removed.release();
        }
    };

    private ChannelHandlerContext channel;
    private KeptBuffer kept;
    private Socket socket;
    private ByteBuf open;
    private boolean isDirty;
    private boolean isQueued;
    private boolean isAttached;

    private static ByteBuf constant(String text) {
        return Unpooled.unreleasableBuffer(Unpooled.directBuffer(text.length())
                .writeBytes(text.getBytes(java.nio.charset.StandardCharsets.US_ASCII)));
    }

    void attach(ChannelHandlerContext context) {
        channel = context;
        kept = KEPT.get();
    }

    /** Looked up at the first flush: then the pipeline is what it stays. */
    private Socket socket() {
        if (!isAttached) {
            isAttached = true;
            boolean isAlone = channel.pipeline().firstContext() == channel;
            if (isAlone && channel.channel() instanceof EpollSocketChannel epoll
                    && epoll.fd() instanceof Socket found) {
                socket = found;
            }
        }
        return socket;
    }

    void head(HeadSink sink) {
        reserve(sink.length());
        open.writeBytes(sink.array(), 0, sink.length());
    }

    /** Body bytes; takes the slice over. */
    void body(ByteBuf slice) {
        int count = slice.readableBytes();
        if (open != null && count <= open.writableBytes()) {
            append(slice);
            return;
        }
        writeOpen();
        if (count <= BYTES / 2 || count < pinned(slice) / 2 && !isQueueEmpty()) {
            // A copy of a little goes straight to the socket, as a message of a tunnel does. What
            // waits may wait for long: not with all of the buffer that it was read into.
            reserve(count);
            append(slice);
            return;
        }
        write(slice);
    }

    /** How much memory a slice keeps from being used again. */
    private static int pinned(ByteBuf slice) {
        ByteBuf whole = slice;
        while (whole.unwrap() != null) {
            whole = whole.unwrap();
        }
        return whole.capacity();
    }

    /** Copies a slice for which there is room; takes it over. Netty's own copy makes views of both. */
    private void append(ByteBuf slice) {
        int count = slice.readableBytes();
        if (open.hasMemoryAddress() && slice.hasMemoryAddress()) {
            PlatformDependent.copyMemory(slice.memoryAddress() + slice.readerIndex(),
                    open.memoryAddress() + open.writerIndex(), count);
            open.writerIndex(open.writerIndex() + count);
        } else {
            open.writeBytes(slice);
        }
        slice.release();
    }

    /** Body bytes as one chunk; takes the slice over. */
    void chunk(ByteBuf slice) {
        int count = slice.readableBytes();
        if (count == 0) {
            slice.release();
            return;
        }
        reserve(12);
        String size = Integer.toHexString(count);
        for (int i = 0; i < size.length(); i++) {
            open.writeByte(size.charAt(i));
        }
        open.writeShort('\r' << 8 | '\n');
        body(slice);
        if (open == null) {
            write(CRLF.duplicate());
        } else {
            reserve(2);
            open.writeShort('\r' << 8 | '\n');
        }
    }

    /**
     * The last chunk.
     *
     * @param trailers that follow it; null for none
     */
    void lastChunk(Headers trailers, HeadSink sink) {
        if (trailers != null) {
            sink.clear();
            Trailers.write(trailers, sink);
            head(sink);
            return;
        }
        lastChunk();
    }

    void lastChunk() {
        if (open != null && open.writableBytes() >= LAST_CHUNK.readableBytes()) {
            open.writeBytes(LAST_CHUNK, 0, LAST_CHUNK.readableBytes());
        } else {
            writeOpen();
            write(LAST_CHUNK.duplicate());
        }
    }

    /** Hands everything to the socket. */
    void flush() {
        if (open != null && !isDirty && socket() != null && isQueueEmpty()) {
            send();
        }
        writeOpen();
        if (isDirty) {
            isDirty = false;
            channel.flush();
        }
    }

    private boolean isQueueEmpty() {
        if (isQueued) {
            ChannelOutboundBuffer queue = channel.channel().unsafe().outboundBuffer();
            isQueued = queue == null || !queue.isEmpty();
        }
        return !isQueued;
    }

    /** Bytes that the socket does not take stay in the buffer, for the queue. */
    private void send() {
        // The number of a closed socket may be another connection's already.
        if (!socket.isOpen()) {
            return;
        }
        try {
            open.skipBytes(sendOpen());
        } catch (IOException gone) {
            // Written again through the queue, the same error closes the connection there.
            return;
        }
        if (!open.isReadable()) {
            discard();
        }
    }

    /** A Java without Unsafe knows buffers, not their addresses. */
    private int sendOpen() throws IOException {
        if (open.hasMemoryAddress()) {
            return socket.sendAddress(open.memoryAddress(), open.readerIndex(),
                    open.writerIndex());
        }
        ByteBuffer bytes = open.internalNioBuffer(open.readerIndex(), open.readableBytes());
        return socket.send(bytes, bytes.position(), bytes.limit());
    }

    /** Whether more may be written before what was written has left. */
    boolean isWritable() {
        return !isQueued || channel.channel().isWritable();
    }

    /** After a flush: whether the socket has taken everything. */
    boolean isAllSent() {
        return isQueueEmpty();
    }

    /** Drops what was collected and not written. */
    void discard() {
        if (open != null) {
            open.release();
            open = null;
        }
    }

    private void reserve(int count) {
        if (open != null && open.writableBytes() < count) {
            writeOpen();
        }
        if (open == null) {
            open = count <= kept.bytes() ? kept.take(channel::alloc)
                    : channel.alloc().directBuffer(count);
        }
    }

    private void writeOpen() {
        if (open != null) {
            ByteBuf full = open;
            open = null;
            write(isQueueEmpty() ? full : compact(full));
        }
    }

    /** Bytes that wait behind others take the memory that they need and not a whole buffer. */
    private ByteBuf compact(ByteBuf full) {
        int count = full.readableBytes();
        if (count >= BYTES / 2) {
            return full;
        }
        try {
            return channel.alloc().directBuffer(count).writeBytes(full);
        } finally {
            full.release();
        }
    }

    private void write(ByteBuf buffer) {
        isDirty = true;
        isQueued = true;
        channel.write(buffer, channel.voidPromise());
    }
}
