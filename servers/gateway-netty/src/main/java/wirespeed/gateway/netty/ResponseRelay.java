// The response half of an exchange: held while filters decide, then passed through.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.Unpooled;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import wirespeed.gateway.core.BodyTap;
import wirespeed.gateway.core.BodyTransform;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.core.Response;

/** Bodies pass as slices; they are collected only when a post filter asked for that. */
final class ResponseRelay {
    private final Exchange exchange;
    private final Context context;
    private final Client client;
    /** Null while the whole body is not needed. */
    private HeldBytes collected;
    /** Of the budget, for a body that is in memory whole. */
    private long counted;
    private ArrayDeque<ByteBuf> early;
    private Headers trailers;
    private int collectMax;
    private boolean isCollecting;
    private boolean isHeadSent;
    private boolean isEnded;
    private boolean isPassedWhole;

    ResponseRelay(Exchange exchange) {
        this.exchange = exchange;
        this.context = exchange.context;
        this.client = exchange.client;
    }

    boolean isHeadSent() {
        return isHeadSent;
    }

    /** The head is there; post filters run now, or when the body they want is there too. */
    void head(Response response) {
        boolean hasBody = !response.received().isEmpty();
        collectMax = hasBody ? context.snapshot().chain().responseBodyBytesMax(context) : 0;
        isCollecting = collectMax > 0;
        if (isCollecting) {
            collected = new HeldBytes(exchange.loop.budget);
        } else {
            exchange.runPost();
        }
    }

    /** A piece of the origin's body; taken over. */
    void body(ByteBuf slice) {
        if (exchange.isOver()) {
            slice.release();
            return;
        }
        if (isHeadSent) {
            pass(slice);
            return;
        }
        if (isCollecting) {
            collected.add(slice);
            slice.release();
            checkCollected();
            return;
        }
        if (early == null) {
            early = new ArrayDeque<>(4);
        }
        early.add(slice);
        exchange.pauseOrigin();
    }

    private void checkCollected() {
        boolean isTooLong = collected.bytes() > collectMax;
        if (isTooLong || exchange.loop.budget.isUsedUp()) {
            exchange.abandonOrigin();
            exchange.fail(isTooLong ? 502 : 503, Category.LIMIT, new IllegalStateException(isTooLong
                    ? "response body is longer than the " + collectMax + " bytes a filter reads"
                    : "bodies that wait take too much memory"));
        }
    }

    private void pass(ByteBuf slice) {
        int count = slice.readableBytes();
        context.countResponseBytes(count);
        exchange.loop.meters.add(Meters.Count.RESPONSE_BODY_BYTES, count);
        BodyTap tap = context.tap();
        if (tap != null) {
            tap.chunk(slice.nioBuffer().asReadOnlyBuffer());
        }
        BodyTransform transform = context.response().transform();
        if (transform != null) {
            ByteBuf piece = slice;
            try {
                slice = changed(transform.chunk(piece.nioBuffer().asReadOnlyBuffer()));
            } catch (RuntimeException | Error failed) {
                filterFailed(failed);
                return;
            } finally {
                piece.release();
            }
        }
        client.sendBody(slice);
        if (!client.isWritable()) {
            exchange.pauseOrigin();
            client.stalled();
        }
    }

    /** A copy, which is the taker's. */
    private static ByteBuf changed(ByteBuffer bytes) {
        return bytes.hasRemaining() ? Unpooled.copiedBuffer(bytes) : Unpooled.EMPTY_BUFFER;
    }

    /** A body that a filter has changed is not the fault of the origin. */
    private void filterFailed(Throwable failed) {
        exchange.abandonOrigin();
        exchange.fail(500, Category.FILTER_ERROR, failed);
    }

    private void complete() {
        BodyTransform transform = context.response().transform();
        if (transform != null) {
            try {
                client.sendBody(changed(transform.end()));
            } catch (RuntimeException | Error failed) {
                filterFailed(failed);
                return;
            }
        }
        isPassedWhole = true;
        exchange.completed(context.response().status(), trailers);
    }

    /**
     * The origin's response is complete.
     *
     * @param fit the trailers that may go on; null for none
     */
    void end(Headers fit) {
        isEnded = true;
        trailers = fit;
        if (isCollecting) {
            isCollecting = false;
            collect();
            exchange.runPost();
        } else if (isHeadSent && !exchange.isOver()) {
            complete();
        }
    }

    private void collect() {
        exchange.loop.meters.add(Meters.Count.BODIES_COLLECTED, 1);
        counted = collected.bytes();
        exchange.loop.budget.add(counted);
        context.response().body(collected.whole());
    }

    /** Sends what the filters agreed on. */
    void sendResponse() {
        Response response = context.response();
        try {
            response.transformBody();
        } catch (RuntimeException | Error failed) {
            response.endTransform();
            filterFailed(failed);
            return;
        }
        isHeadSent = true;
        if (response.body() != null) {
            // Bytes that the origin still sends do not belong to this response.
            exchange.abandonOrigin();
            releaseEarly();
            sendWhole(response);
            return;
        }
        Framing framing = response.framingFor(context.request());
        if (framing.isEmpty()) {
            // Nothing follows the head, so a transform must not append its end.
            response.endTransform();
        }
        client.sendHead(exchange, client.clientFraming(framing));
        if (framing.isEmpty() && !response.received().isEmpty()) {
            // A body that the client cannot have, because of what it asked or of a filter's status.
            exchange.abandonOrigin();
            releaseEarly();
            exchange.completed(response.status(), null);
            return;
        }
        while (early != null && !early.isEmpty()) {
            pass(early.poll());
        }
        if (exchange.isOver()) {
            return;
        }
        if (isEnded) {
            complete();
        } else if (client.isWritable()) {
            exchange.clientWritable();
        }
    }

    private void sendWhole(Response response) {
        Framing framing = response.framingFor(context.request());
        client.sendHead(exchange, framing);
        if (framing.length() > 0) {
            context.countResponseBytes(response.body().remaining());
            client.sendBody(takeCounted(Unpooled.wrappedBuffer(response.body())));
        }
        exchange.completed(response.status(), null);
    }

    /** The client may take it long after the exchange is over. */
    private ByteBuf takeCounted(ByteBuf body) {
        if (counted == 0) {
            return body;
        }
        // Direct, or the transport would make a copy of its own that is not counted.
        ByteBuf direct = ByteBufAllocator.DEFAULT.directBuffer(body.readableBytes()).writeBytes(body);
        ByteBuf own = new CountedBytes(direct, exchange.loop.budget, counted);
        counted = 0;
        return own;
    }

    /** Forgets a response that will not be sent. */
    void reset() {
        isCollecting = false;
        releaseEarly();
    }

    void over(boolean isComplete) {
        releaseEarly();
        exchange.loop.budget.add(-counted);
        counted = 0;
        if (context.response() != null) {
            context.response().endTransform();
        }
        if (context.tap() != null) {
            context.tap().end(isComplete && isPassedWhole);
            context.tap(null);
        }
    }

    private void releaseEarly() {
        while (early != null && !early.isEmpty()) {
            early.poll().release();
        }
        if (collected != null) {
            collected.release();
        }
    }
}
