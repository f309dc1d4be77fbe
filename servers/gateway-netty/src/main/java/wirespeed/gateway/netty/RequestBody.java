// The part of a request body that the gateway holds: not sent yet, or kept for a second attempt.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import wirespeed.gateway.core.Request;

/** Nothing is allocated for the requests without a body, which are most. */
final class RequestBody {
    /** A body up to this size can be sent a second time. */
    private static final int KEPT_BYTES_MAX = 64 * 1024;

    private List<ByteBuf> held;
    private long bytes;
    private boolean isComplete;
    private boolean isReplayable;

    RequestBody(Request request) {
        isComplete = request.framing().isEmpty();
        isReplayable = request.isIdempotent();
    }

    boolean isComplete() {
        return isComplete;
    }

    /** Whether everything received so far can be sent again. */
    boolean isReplayable() {
        return isReplayable;
    }

    long bytes() {
        return bytes;
    }

    void complete() {
        isComplete = true;
    }

    /** Takes over a piece that cannot be sent now. */
    void hold(ByteBuf slice) {
        bytes += slice.readableBytes();
        if (held == null) {
            held = new ArrayList<>(2);
        }
        held.add(slice);
    }

    /** Sends a piece, and keeps it while the body stays small enough for a second attempt. */
    void pass(ByteBuf slice, OriginConnection origin) {
        bytes += slice.readableBytes();
        if (isReplayable && bytes <= KEPT_BYTES_MAX) {
            if (held == null) {
                held = new ArrayList<>(2);
            }
            held.add(slice.retainedDuplicate());
        } else {
            isReplayable = false;
            release();
        }
        origin.sendBody(slice);
    }

    /** Sends all that is held, to the first or to another address. */
    void replay(OriginConnection origin) {
        if (held == null) {
            return;
        }
        isReplayable &= bytes <= KEPT_BYTES_MAX;
        for (ByteBuf slice : held) {
            origin.sendBody(slice.retainedDuplicate());
        }
        if (!isReplayable) {
            release();
        }
    }

    /** Turns what is held into the body that filters see. */
    void collectInto(Request request) {
        ByteBuffer whole = ByteBuffer.allocate((int) bytes);
        if (held != null) {
            for (ByteBuf slice : held) {
                slice.getBytes(slice.readerIndex(),
                        whole.limit(whole.position() + slice.readableBytes()));
                whole.limit(whole.capacity());
            }
        }
        release();
        request.body(whole.flip());
    }

    /** Holds the body that filters saw or made, to be sent. */
    void holdCollected(Request request) {
        release();
        bytes = 0;
        if (request.body() != null && request.body().hasRemaining()) {
            hold(Unpooled.wrappedBuffer(request.body()));
        }
        isComplete = true;
    }

    void release() {
        if (held != null) {
            held.forEach(ByteBuf::release);
            held = null;
        }
    }
}
