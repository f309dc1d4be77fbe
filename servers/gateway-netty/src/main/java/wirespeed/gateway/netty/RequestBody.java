// The part of a request body that the gateway holds: not sent yet, or kept for a second attempt.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.nio.ByteBuffer;
import wirespeed.gateway.core.BodyBudget;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Request;

/** Nothing is allocated for the requests without a body, which are most. */
final class RequestBody {
    /** A body up to this size can be sent a second time. */
    private static final int KEPT_BYTES_MAX = 64 * 1024;

    private final BodyBudget budget;
    private HeldBytes held;
    private ByteBuffer collected;
    /** Of the budget, for the body that filters see. */
    private long counted;
    private long bytes;
    private boolean isComplete;
    private boolean isReplayable;
    private Headers trailers;

    RequestBody(Request request, BodyBudget budget) {
        this.budget = budget;
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

    /** Keeps it whatever the method: this origin may say that it has not processed a request. */
    void keepForRefusal() {
        isReplayable = true;
    }

    long bytes() {
        return bytes;
    }

    /**
     * The body is complete.
     *
     * @param fit the trailers that may go on; null for none
     */
    void complete(Headers fit) {
        isComplete = true;
        trailers = fit;
    }

    Headers trailers() {
        return trailers;
    }

    /** Takes over a piece that cannot be sent now. */
    void hold(ByteBuf slice) {
        bytes += slice.readableBytes();
        keep(slice);
        slice.release();
    }

    private void keep(ByteBuf slice) {
        if (held == null) {
            held = new HeldBytes(budget);
        }
        held.add(slice);
    }

    /** Sends a piece, and keeps it while the body stays small enough for a second attempt. */
    void pass(ByteBuf slice, OriginStream origin) {
        bytes += slice.readableBytes();
        if (isReplayable && bytes <= KEPT_BYTES_MAX && !budget.isUsedUp()) {
            keep(slice);
        } else {
            isReplayable = false;
            release();
        }
        origin.sendBody(slice);
    }

    /** Sends all that is held, to the first or to another address. */
    void replay(OriginStream origin) {
        if (collected != null) {
            origin.sendBody(Unpooled.wrappedBuffer(collected));
            return;
        }
        if (held == null) {
            return;
        }
        isReplayable &= bytes <= KEPT_BYTES_MAX;
        held.forEach(origin::sendBody);
        if (!isReplayable) {
            release();
        }
    }

    /** Turns what is held into the body that filters see. */
    void collectInto(Request request) {
        request.body(held == null ? ByteBuffer.allocate(0) : held.whole());
        count(bytes);
    }

    /** Filters may keep what they see until the exchange is over. */
    private void count(long now) {
        budget.add(now - counted);
        counted = now;
    }

    /** Holds the body that filters saw or made, to be sent. */
    void holdCollected(Request request) {
        release();
        bytes = request.body() == null ? 0 : request.body().remaining();
        collected = bytes == 0 ? null : request.body();
        isReplayable &= bytes <= KEPT_BYTES_MAX;
        isComplete = true;
        count(Math.max(counted, bytes));
    }

    /** The exchange is over. */
    void over() {
        release();
        count(0);
    }

    /** Nothing is sent again. */
    void release() {
        collected = null;
        if (held != null) {
            held.release();
        }
    }
}
