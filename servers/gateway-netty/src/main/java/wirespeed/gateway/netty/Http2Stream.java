// One request that came by HTTP/2, as the client's side of an exchange.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.handler.codec.http2.DefaultHttp2DataFrame;
import io.netty.handler.codec.http2.DefaultHttp2Headers;
import io.netty.handler.codec.http2.DefaultHttp2HeadersFrame;
import io.netty.handler.codec.http2.DefaultHttp2ResetFrame;
import io.netty.handler.codec.http2.Http2DataFrame;
import io.netty.handler.codec.http2.Http2Error;
import io.netty.handler.codec.http2.Http2Exception;
import io.netty.handler.codec.http2.Http2Headers;
import io.netty.handler.codec.http2.Http2HeadersFrame;
import io.netty.handler.codec.http2.Http2ResetFrame;
import io.netty.util.ReferenceCountUtil;
import io.netty.util.concurrent.Future;
import wirespeed.gateway.core.BodyPace;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Limits;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.runtime.ThrottledLog;

/**
 * The fields become a request by the rules that HTTP/1 requests obey, so nothing that HTTP/1 could
 * not say reaches an origin (RFC 9113 §8.2, §8.3, §10.3).
 */
final class Http2Stream extends ChannelInboundHandlerAdapter implements Client, Drainable {
    /** Below this much room something waits already; the default of Netty's streams is 64 KiB. */
    private static final int NOTHING_WAITS_BYTES = 32 * 1024;

    private final Loop loop;
    private final Http2Connection connection;
    private final String scheme;
    private final ClientDeadline deadline;
    private ChannelHandlerContext stream;
    private Exchange exchange;
    private long declared = -1;
    private long received;
    private boolean isInputDone;
    private boolean isDone;
    private boolean isDirty;
    /** Both are written with what follows them, so that the end takes no frame of its own. */
    private Http2Headers pendingHead;
    private ByteBuf pendingBody;
    /** From then on a stream of requests may pause as long as the exchange may take. */
    private boolean isAnswering;
    private boolean isStalled;
    private boolean isBodyWaiting;
    private BodyPace pace;
    private Request awaitsEnd;
    private Request awaitsRead;

    Http2Stream(Loop loop, Http2Connection connection, String scheme) {
        this.loop = loop;
        this.connection = connection;
        this.scheme = scheme;
        deadline = new ClientDeadline(loop, this::timedOut);
    }

    private void timedOut() {
        if (exchange == null) {
            stream.close();
        } else if (!isDone && deadline.isExchangeOver()) {
            exchange.timedOut();
        } else if (isDone || isStalled) {
            // The client opens no window for what it asked for.
            gone();
            stream.writeAndFlush(new DefaultHttp2ResetFrame(Http2Error.CANCEL));
        } else if (!isInputDone && stream.channel().config().isAutoRead()) {
            exchange.clientTooSlow();
        } else {
            exchange.timedOut();
        }
    }

    @Override
    public void handlerAdded(ChannelHandlerContext context) {
        stream = context;
        loop.readClock();
        deadline.within(loop.timeouts.headMillis());
    }

    @Override
    public void exchangeWithin(int millis) {
        deadline.exchangeWithin(millis);
        boolean isReading = !isInputDone && stream.channel().config().isAutoRead();
        if (isReading) {
            deadline.withinExchange(loop.timeouts.bodyIdleMillis());
        } else {
            deadline.atExchangeEnd();
        }
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object frame) {
        loop.readClock();
        try {
            if (isDone) {
                return;
            }
            if (frame instanceof Http2HeadersFrame headers) {
                headers(headers);
            } else if (frame instanceof Http2DataFrame data) {
                data(data);
            }
        } catch (Refusal refusal) {
            refused(refusal);
        } finally {
            ReferenceCountUtil.release(frame);
        }
    }

    private void headers(Http2HeadersFrame frame) {
        if (exchange != null || awaitsEnd != null || awaitsRead != null) {
            trailers(frame);
            return;
        }
        Request request = Http2Fields.request(frame.headers(), !frame.isEndStream(), limits());
        request.clientAddress(ProxyHeader.clientAddress(stream.channel().parent()));
        request.scheme(scheme);
        request.clientCertificate(connection.certificate());
        declared = request.framing().kind() == Framing.Kind.LENGTH
                ? request.framing().length() : -1;
        if (frame.isEndStream() && declared > 0) {
            throw new Refusal(400, "Content-Length without a body");
        }
        isInputDone = frame.isEndStream();
        if (!isInputDone) {
            pace = loop.bodyPace();
            pace.begin(loop.nowMillis());
        }
        deadline.exchangeBegins();
        deadline.withinExchange(isInputDone ? loop.timeouts.exchangeMillis()
                : loop.timeouts.bodyIdleMillis());
        if (!isInputDone && declared == 0) {
            // Complete by its length and not by its stream: bytes that come now must stop it.
            awaitsEnd = request;
        } else {
            awaitsRead = request;
        }
    }

    /**
     * Requests begin when all that was read is known: one that its client resets in the same breath
     * costs neither filters nor origin anything.
     */
    private void begin() {
        if (awaitsRead != null) {
            Request request = awaitsRead;
            awaitsRead = null;
            exchange = new Exchange(loop, this, request);
            exchange.start();
        }
    }

    private void endWithoutBody(boolean isEnd) {
        if (isEnd) {
            isInputDone = true;
            deadline.atExchangeEnd();
            awaitsRead = awaitsEnd;
            awaitsEnd = null;
        }
    }

    private Limits limits() {
        return loop.gateway.snapshot().limits();
    }

    /** They end the body, which must be as long as it was announced. */
    private void trailers(Http2HeadersFrame frame) {
        if (!frame.isEndStream() || declared >= 0 && received != declared) {
            throw new Refusal(400, "body differs from Content-Length");
        }
        if (awaitsEnd != null) {
            endWithoutBody(true);
        } else {
            begin();
            inputDone(true, Http2Fields.trailers(frame.headers(), limits()));
        }
    }

    private void data(Http2DataFrame frame) {
        received += frame.content().readableBytes();
        boolean isWrong = declared >= 0
                && (received > declared || frame.isEndStream() && received != declared);
        if (isWrong) {
            throw new Refusal(400, "body differs from Content-Length");
        }
        if (awaitsEnd != null) {
            endWithoutBody(frame.isEndStream());
            return;
        }
        begin();
        awaitBody();
        if (!isAnswering && pace.isTooSlow(frame.content().readableBytes(), loop.nowMillis())
                && !frame.isEndStream()) {
            exchange.clientTooSlow();
            return;
        }
        if (frame.content().isReadable()) {
            exchange.requestBody(frame.content().retainedSlice());
        }
        inputDone(frame.isEndStream(), null);
    }

    private void inputDone(boolean isEnd, Headers trailers) {
        if (isEnd && !isInputDone) {
            isInputDone = true;
            deadline.atExchangeEnd();
            exchange.requestEnd(trailers);
        }
    }

    private void refused(Refusal refusal) {
        if (exchange != null && !exchange.isOver()) {
            exchange.abandonOrigin();
            exchange.badBody(refusal);
            return;
        }
        loop.meters.refused(Category.CLIENT_BAD, refusal.status());
        Http2Headers head = new DefaultHttp2Headers().status(String.valueOf(refusal.status()));
        write(new DefaultHttp2HeadersFrame(head, true));
        isDone = true;
        deadline.none();
        write(new DefaultHttp2ResetFrame(Http2Error.NO_ERROR));
        flush();
    }

    /** The codec hands resets on as events: they are not bound to flow control. */
    @Override
    public void userEventTriggered(ChannelHandlerContext context, Object event) {
        if (event instanceof Http2ResetFrame) {
            loop.readClock();
            gone();
        }
        context.fireUserEventTriggered(event);
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext context) {
        begin();
        flush();
        if (exchange != null) {
            exchange.flushOrigin();
        }
    }

    @Override
    public void sendHead(Exchange user, Framing framing) {
        // With the end of an empty body in it: gRPC reports an error so.
        pendingHead = Http2Fields.head(user.context.response(), framing, loop);
        deadline.atExchangeEnd();
        isAnswering = true;
    }

    /** The answer is that of the last frame; null when nothing was pending. */
    private ChannelFuture writePending(boolean isEnd) {
        ChannelFuture last = null;
        if (pendingHead != null) {
            Http2Headers head = pendingHead;
            pendingHead = null;
            last = write(new DefaultHttp2HeadersFrame(head, isEnd && pendingBody == null));
        }
        if (pendingBody != null) {
            ByteBuf body = pendingBody;
            pendingBody = null;
            boolean waits = stream.channel().bytesBeforeUnwritable() < NOTHING_WAITS_BYTES;
            last = write(new DefaultHttp2DataFrame(waits ? compact(body) : body, isEnd));
        }
        return last;
    }

    private void dropPending() {
        pendingHead = null;
        if (pendingBody != null) {
            pendingBody.release();
            pendingBody = null;
        }
    }

    private ChannelFuture write(Object frame) {
        isDirty = true;
        return stream.write(frame);
    }

    @Override
    public void sendBody(ByteBuf slice) {
        writePending(false);
        connection.sent(slice.readableBytes());
        pendingBody = slice;
    }

    /** Data that waits for a window takes the memory that it needs, not all that came with it. */
    private ByteBuf compact(ByteBuf slice) {
        int count = slice.readableBytes();
        if (count >= OutBuffer.BYTES / 2) {
            return slice;
        }
        try {
            return stream.alloc().directBuffer(count).writeBytes(slice);
        } finally {
            slice.release();
        }
    }

    @Override
    public void sendEnd(Headers trailers) {
        if (isDone) {
            return;
        }
        isDone = true;
        // Until the client has taken it; then the stream is inactive.
        deadline.within(loop.timeouts.sendMillis());
        ChannelFuture written = writeEnd(trailers);
        awaitTaker();
        if (!isInputDone) {
            // Not before the last byte has left: a reset takes back what waits.
            written.addListener(this::stopInput);
        }
    }

    /** RFC 9113 §8.1: the response is complete, the rest of the request is not needed. */
    private void stopInput(Future<?> written) {
        if (written.isSuccess()) {
            write(new DefaultHttp2ResetFrame(Http2Error.NO_ERROR));
            flush();
        }
    }

    private ChannelFuture writeEnd(Headers trailers) {
        if (trailers == null && (pendingHead != null || pendingBody != null)) {
            return writePending(true);
        }
        if (trailers == null) {
            return write(new DefaultHttp2DataFrame(true));
        }
        writePending(false);
        Http2Headers last = new DefaultHttp2Headers(false);
        trailers.forEach(last::add);
        return write(new DefaultHttp2HeadersFrame(last, true));
    }

    @Override
    public void cut() {
        isDone = true;
        deadline.none();
        dropPending();
        stream.writeAndFlush(new DefaultHttp2ResetFrame(Http2Error.INTERNAL_ERROR));
    }

    @Override
    public void sendContinue() {
        stream.writeAndFlush(new DefaultHttp2HeadersFrame(
                new DefaultHttp2Headers(false).status("100"), false));
    }

    @Override
    public void flush() {
        writePending(false);
        if (isDirty) {
            isDirty = false;
            connection.flushSoon();
        }
    }

    @Override
    public boolean isWritable() {
        return stream.channel().isWritable();
    }

    @Override
    public void readBody(boolean isOn) {
        if (stream.channel().config().isAutoRead() != isOn) {
            stream.channel().config().setAutoRead(isOn);
        }
        bodyWaits(!isOn && !isInputDone);
        if (pace != null) {
            pace.reading(isOn, loop.nowMillis());
        }
        // Waiting for the origin is not the client's slowness.
        if (!isInputDone && exchange != null) {
            if (isOn) {
                awaitBody();
            } else {
                deadline.atExchangeEnd();
            }
        }
    }

    private void bodyWaits(boolean isWaiting) {
        if (isWaiting && !isBodyWaiting) {
            connection.bodyWaits();
        } else if (isBodyWaiting && !isWaiting) {
            connection.bodyGoesOn();
        }
        isBodyWaiting = isWaiting;
    }

    private void awaitBody() {
        if (isAnswering) {
            deadline.atExchangeEnd();
        } else {
            deadline.withinExchange(loop.timeouts.bodyIdleMillis());
        }
    }

    @Override
    public void sendSwitch(Response response, String protocol) {
        throw new IllegalStateException("HTTP/2 requests carry no Upgrade");
    }

    @Override
    public Framing clientFraming(Framing fromOrigin) {
        return fromOrigin;
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext context) {
        if (exchange != null && isWritable()) {
            if (isStalled) {
                isStalled = false;
                loop.stalledStreams.remove(this);
                deadline.atExchangeEnd();
            }
            exchange.clientWritable();
        }
    }

    @Override
    public void stalled() {
        if (!isStalled && isInputDone) {
            isStalled = true;
            awaitTaker();
            deadline.withinExchange(loop.timeouts.sendMillis());
        }
    }

    private void awaitTaker() {
        deadline.waits();
        loop.stalledStreams.add(this);
    }

    @Override
    public boolean relieve(long sinceMillis) {
        if (!deadline.waitsSince(sinceMillis)) {
            return false;
        }
        gone();
        stream.writeAndFlush(new DefaultHttp2ResetFrame(Http2Error.CANCEL));
        return true;
    }

    @Override
    public void drain() {
        // The connection's business.
    }

    @Override
    public boolean isWritten() {
        return true;
    }

    @Override
    public void sendInterim(Response response) {
        write(new DefaultHttp2HeadersFrame(Http2Fields.interim(response), false));
    }

    private void gone() {
        deadline.none();
        bodyWaits(false);
        loop.stalledStreams.remove(this);
        isDone = true;
        awaitsRead = null;
        dropPending();
        if (exchange != null) {
            exchange.clientGone();
        }
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        gone();
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        gone();
        if (cause instanceof Http2Exception fault) {
            // Said even when the request was complete: RFC 9113 §5.4.2.
            context.writeAndFlush(new DefaultHttp2ResetFrame(fault.error()));
        } else {
            ThrottledLog.fault("an HTTP/2 stream", cause);
        }
        context.close();
    }
}
