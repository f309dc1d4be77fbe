// Writes the answers on one HTTP/1 connection, and knows whether another one may follow.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.nio.charset.StandardCharsets;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Failure;
import wirespeed.gateway.core.Forwarding;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.HeadSink;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Response;

/** One object with the buffer: each object that a connection touches after a wait is a miss. */
final class ResponseOut extends OutBuffer {
    private static final byte[] CONTINUE =
            "HTTP/1.1 100 Continue\r\n\r\n".getBytes(StandardCharsets.US_ASCII);

    private final Loop loop;
    private boolean keepAlive;
    private boolean saidClose;
    private boolean isChunked;
    private boolean isModern;

    ResponseOut(Loop loop) {
        this.loop = loop;
    }

    /** The answer to this request is next. */
    void answers(Request request) {
        keepAlive = request.keepAlive();
        saidClose = !keepAlive;
        isModern = request.minor() == 1;
    }

    /** Whether the client knows chunks and interim answers: HTTP/1.1. */
    boolean isModern() {
        return isModern;
    }

    /** How a body with this framing of the origin's is sent to this client. */
    Framing framing(Framing fromOrigin) {
        boolean needsLength = fromOrigin.isChunked()
                || fromOrigin.kind() == Framing.Kind.UNTIL_CLOSE;
        if (!needsLength) {
            return fromOrigin;
        }
        return isModern ? Framing.CHUNKED : Framing.UNTIL_CLOSE;
    }

    boolean keepsAlive() {
        return keepAlive;
    }

    /** Whether the client itself said that its request is the last one. */
    boolean saidClose() {
        return saidClose;
    }

    /** What is written now is the last answer. */
    void markLast() {
        keepAlive = false;
    }

    void response(Context context, Framing framing) {
        boolean untilClose = framing.kind() == Framing.Kind.UNTIL_CLOSE;
        keepAlive &= !untilClose;
        isChunked = framing.isChunked();
        loop.sink.clear();
        Forwarding.writeResponse(context, framing, keepAlive, loop.date(), loop.sink);
        head(loop.sink);
    }

    /** A piece of the answer's body; takes it over. */
    void data(ByteBuf slice) {
        if (isChunked) {
            chunk(slice);
        } else {
            body(slice);
        }
    }

    /**
     * The answer's body is complete.
     *
     * @param trailers that follow it, where it is chunked; null for none
     */
    void end(Headers trailers) {
        if (isChunked) {
            lastChunk(trailers, loop.sink);
            isChunked = false;
        }
    }

    void goOn() {
        loop.sink.clear();
        head(loop.sink.put(CONTINUE));
    }

    void interim(Response response) {
        loop.sink.clear();
        Forwarding.writeInterim(response, loop.sink);
        head(loop.sink);
    }

    /** Raw bytes follow. */
    void switched(Response response, String protocol) {
        loop.sink.clear();
        Forwarding.writeSwitch(response, protocol, loop.sink);
        head(loop.sink);
        keepAlive = false;
        isChunked = false;
    }

    /** Answers a malformed request. */
    void refusal(Refusal refusal) {
        Response response = Failure.refused(refusal);
        Request nobody = new Request("GET", "/", 1, new Headers());
        Context context = new Context(loop.gateway.snapshot(), nobody, 0);
        context.response(response);
        HeadSink sink = loop.sink;
        sink.clear();
        Forwarding.writeResponse(context, response.framing(), false, loop.date(), sink);
        head(sink);
        body(Unpooled.wrappedBuffer(response.body()));
    }
}
