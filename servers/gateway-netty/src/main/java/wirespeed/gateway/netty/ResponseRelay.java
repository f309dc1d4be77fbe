// The response half of an exchange: held while filters decide, then passed through.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.Unpooled;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import wirespeed.gateway.core.BodyTap;
import wirespeed.gateway.core.BodyTransform;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.ExchangeMachine.Command;
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
    private boolean isEnded;

    ResponseRelay(Exchange exchange) {
        this.exchange = exchange;
        this.context = exchange.context;
        this.client = exchange.client;
    }

    /** Post filters run when the body they want is there. */
    void collect() {
        collected = new HeldBytes(exchange.loop.budget);
    }

    /** A piece of the origin's body; taken over. */
    void body(ByteBuf slice) {
        if (exchange.isOver()) {
            slice.release();
        } else if (exchange.machine.isHeadSent()) {
            pass(slice);
        } else if (exchange.machine.isReceiving()) {
            collect(slice);
        } else {
            if (early == null) {
                early = new ArrayDeque<>(4);
            }
            early.add(slice);
            exchange.pauseOrigin();
        }
    }

    private void collect(ByteBuf slice) {
        collected.add(slice);
        slice.release();
        Command next = exchange.machine.responseHeld(collected.bytes(),
                exchange.loop.budget.isUsedUp());
        if (next != Command.WAIT) {
            exchange.abandonOrigin();
            exchange.execute(next);
        }
    }

    private void pass(ByteBuf slice) {
        int count = slice.readableBytes();
        context.countResponseBytes(count);
        exchange.loop.meters.add(Meters.Count.RESPONSE_BODY_BYTES, count);
        ByteBuf piece;
        try {
            piece = filtered(slice);
        } catch (RuntimeException | Error failed) {
            // Not the fault of the origin.
            slice.release();
            exchange.fail(failed);
            return;
        }
        if (piece != slice) {
            slice.release();
        }
        client.sendBody(piece);
        if (!client.isWritable()) {
            exchange.pauseOrigin();
            client.stalled();
        }
    }

    /** Shows a piece to filters; gives back the piece itself, or a copy that they have changed. */
    private ByteBuf filtered(ByteBuf slice) {
        BodyTap tap = context.tap();
        if (tap != null) {
            tap.chunk(slice.nioBuffer().asReadOnlyBuffer());
        }
        BodyTransform transform = context.response().transform();
        return transform == null ? slice
                : changed(transform.chunk(slice.nioBuffer().asReadOnlyBuffer()));
    }

    /** A copy, which is the taker's. */
    private static ByteBuf changed(ByteBuffer bytes) {
        return bytes.hasRemaining() ? Unpooled.copiedBuffer(bytes) : Unpooled.EMPTY_BUFFER;
    }

    private void complete() {
        BodyTransform transform = context.response().transform();
        if (transform != null) {
            try {
                client.sendBody(changed(transform.end()));
            } catch (RuntimeException | Error failed) {
                exchange.fail(failed);
                return;
            }
        }
        exchange.machine.relayed();
        exchange.completed(trailers);
    }

    /**
     * The origin's response is complete.
     *
     * @param fit the trailers that may go on; null for none
     */
    void end(Headers fit) {
        isEnded = true;
        trailers = fit;
        if (exchange.machine.isReceiving()) {
            exchange.loop.meters.add(Meters.Count.BODIES_COLLECTED, 1);
            counted = collected.bytes();
            exchange.loop.budget.add(counted);
            context.response().body(collected.whole());
            exchange.execute(exchange.machine.collected());
        } else if (exchange.machine.isHeadSent()) {
            complete();
        }
    }

    /** Sends a response whose body is in memory. */
    void sendWhole() {
        // Bytes that the origin still sends do not belong to this response.
        exchange.abandonOrigin();
        reset();
        Response response = context.response();
        Framing framing = exchange.machine.framing();
        client.sendHead(exchange, framing);
        if (framing.length() > 0) {
            context.countResponseBytes(response.body().remaining());
            client.sendBody(takeCounted(Unpooled.wrappedBuffer(response.body())));
        }
        exchange.completed(null);
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

    /** The client cannot have the body, because of what it asked or of a filter's status. */
    void sendWithoutBody() {
        client.sendHead(exchange, exchange.machine.framing());
        exchange.abandonOrigin();
        reset();
        exchange.completed(null);
    }

    /** Sends the head, and what came of the body meanwhile; the rest follows as it comes. */
    void relay() {
        client.sendHead(exchange, client.clientFraming(exchange.machine.framing()));
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

    /** Releases what is held of a response that will not be sent. */
    void reset() {
        while (early != null && !early.isEmpty()) {
            early.poll().release();
        }
        if (collected != null) {
            collected.release();
        }
    }

    void over() {
        reset();
        exchange.loop.budget.add(-counted);
        counted = 0;
    }
}
