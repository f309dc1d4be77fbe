// Collects a head and a small body into one buffer, so that they leave in one write.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandlerContext;
import wirespeed.gateway.core.HeadSink;

/**
 * What is larger than the rest of the buffer is passed on as it came, without a copy. Holds no
 * memory between messages: 20,000 idle connections must fit.
 */
final class OutBuffer {
    static final int BYTES = 4096;
    private static final ByteBuf LAST_CHUNK = constant("0\r\n\r\n");
    private static final ByteBuf CRLF = constant("\r\n");

    private ChannelHandlerContext channel;
    private ByteBuf open;
    private boolean isDirty;

    private static ByteBuf constant(String text) {
        return Unpooled.unreleasableBuffer(Unpooled.directBuffer(text.length())
                .writeBytes(text.getBytes(java.nio.charset.StandardCharsets.US_ASCII)));
    }

    void attach(ChannelHandlerContext context) {
        channel = context;
    }

    void head(HeadSink sink) {
        reserve(sink.length());
        open.writeBytes(sink.array(), 0, sink.length());
    }

    /** Body bytes; takes the slice over. */
    void body(ByteBuf slice) {
        int count = slice.readableBytes();
        if (open != null && count <= open.writableBytes()) {
            open.writeBytes(slice);
            slice.release();
            return;
        }
        writeOpen();
        write(slice);
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
        if (count + 2 <= open.writableBytes()) {
            open.writeBytes(slice);
            open.writeShort('\r' << 8 | '\n');
            slice.release();
            return;
        }
        writeOpen();
        write(slice);
        write(CRLF.duplicate());
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
        writeOpen();
        if (isDirty) {
            isDirty = false;
            channel.flush();
        }
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
            open = channel.alloc().directBuffer(Math.max(BYTES, count));
        }
    }

    private void writeOpen() {
        if (open != null) {
            ByteBuf full = open;
            open = null;
            write(full);
        }
    }

    private void write(ByteBuf buffer) {
        isDirty = true;
        channel.write(buffer, channel.voidPromise());
    }
}
