// Cuts messages out of what a connection receives: heads as a whole, bodies in pieces.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import wirespeed.gateway.core.HeadCheck;
import wirespeed.gateway.core.Limits;

/** Holds what cannot be read yet: a part of a head, or what follows a message that is not over. */
final class MessageReader extends BodyReader {
    private ByteBuf held;
    private int scanned;

    boolean isHolding() {
        return held != null;
    }

    boolean isHolding(ByteBuf in) {
        return held == in;
    }

    /** Keeps what is left of a buffer; its owner releases it if it {@link #isHolding another}. */
    void hold(ByteBuf in) {
        // A buffer of which slices are in use elsewhere must not grow.
        held = in.refCnt() == 1 ? in : in.copy();
    }

    /** Joins the held bytes and the next ones in one buffer; takes over {@code in}. */
    ByteBuf join(ByteBuf in) {
        if (held == null) {
            return in;
        }
        if (held.maxWritableBytes() < in.readableBytes()) {
            grow(in.readableBytes());
        }
        held.writeBytes(in);
        in.release();
        return take();
    }

    /** A buffer of the allocator may have a largest capacity, which a long head exceeds. */
    private void grow(int more) {
        ByteBuf longer = held.alloc().directBuffer(2 * (held.readableBytes() + more));
        longer.writeBytes(held);
        held.release();
        held = longer;
    }

    /** The held bytes, which the caller then owns; null for none. */
    ByteBuf take() {
        ByteBuf taken = held;
        held = null;
        return taken;
    }

    void release() {
        if (held != null) {
            take().release();
        }
    }

    /** Takes an empty line off; RFC 9112 §2.2: some clients send one after a body. */
    boolean skipEmptyLine(ByteBuf in) {
        boolean isThere = scanned < 2 && in.readableBytes() >= 2
                && in.getByte(in.readerIndex()) == '\r'
                && in.getByte(in.readerIndex() + 1) == '\n';
        if (isThere) {
            in.skipBytes(2);
            scanned = 0;
        }
        return isThere;
    }

    /**
     * Moves a head to the beginning of the loop's scratch memory.
     *
     * @return its length, or -1 while it is incomplete; then the input is held
     */
    int head(ByteBuf in, Loop loop, Limits limits) {
        int length = Math.min(in.readableBytes(), limits.headBytesMax() + 1);
        byte[] bytes = loop.scratch(length);
        in.getBytes(in.readerIndex(), bytes, 0, length);
        int end = HeadCheck.end(bytes, 0, length, scanned, limits);
        if (end < 0) {
            scanned = length;
            hold(in);
        } else {
            scanned = 0;
            in.skipBytes(end);
        }
        return end;
    }
}
