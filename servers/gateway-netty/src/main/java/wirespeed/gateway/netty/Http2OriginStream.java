// One exchange on an HTTP/2 connection to an origin.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.handler.codec.http2.DefaultHttp2DataFrame;
import io.netty.handler.codec.http2.DefaultHttp2Headers;
import io.netty.handler.codec.http2.DefaultHttp2HeadersFrame;
import io.netty.handler.codec.http2.DefaultHttp2ResetFrame;
import io.netty.handler.codec.http2.Http2DataFrame;
import io.netty.handler.codec.http2.Http2Error;
import io.netty.handler.codec.http2.Http2Exception;
import io.netty.handler.codec.http2.Http2GoAwayFrame;
import io.netty.handler.codec.http2.Http2Headers;
import io.netty.handler.codec.http2.Http2HeadersFrame;
import io.netty.handler.codec.http2.Http2ResetFrame;
import io.netty.util.ReferenceCountUtil;
import io.netty.util.concurrent.Future;
import java.util.Map;
import wirespeed.gateway.core.Attempts;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Forwarding;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Loss;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Response;

/** Its answer obeys the rules that answers by HTTP/1 obey, so that it may go on by either version. */
final class Http2OriginStream extends ChannelInboundHandlerAdapter implements OriginStream {
    private static final int INTERIM_MAX = 8;

    private final Pool pool;
    private final Loop loop;
    private final Http2Origin connection;
    private final boolean wasUsed;
    private final Timer timer = new Timer();
    private ChannelHandlerContext channel;
    private Attempt attempt;
    private Client flushTarget;
    /** Written with what follows it. */
    private Http2Headers pendingHead;
    private Framing framing;
    private long received;
    private long begunNanos;
    private int interims;
    private boolean isRequestSent;
    private boolean isRefused;
    private boolean isEnded;
    private boolean isOver;

    Http2OriginStream(Pool pool, Loop loop, Http2Origin connection, boolean wasUsed) {
        this.pool = pool;
        this.loop = loop;
        this.connection = connection;
        this.wasUsed = wasUsed;
    }

    private final class Timer extends Wheel.Entry {
        @Override
        void onTimeout(long nowMillis) {
            // It may be the connection that is dead, which no byte would show.
            connection.retire();
            fail(Category.ORIGIN_TIMEOUT, null);
        }
    }

    @Override
    public void handlerAdded(ChannelHandlerContext context) {
        channel = context;
    }

    @Override
    public void begin(Attempt user) {
        attempt = user;
        flushTarget = user.client;
        begunNanos = loop.nowNanos();
        pendingHead = head(user.context);
    }

    private Http2Headers head(Context context) {
        Request request = context.request();
        Http2Headers head = new DefaultHttp2Headers(false).method(request.method())
                .scheme(pool.settings().tls() ? "https" : "http")
                .authority(Forwarding.authority(context, pool.address()))
                .path(Forwarding.target(context));
        request.headers().forEach((name, value) -> {
            boolean isOurs = name.equalsIgnoreCase("host") || name.equalsIgnoreCase("content-length");
            if (!isOurs) {
                head.add(Http2Names.lower(name), value);
            }
        });
        if (request.framing().kind() == Framing.Kind.LENGTH) {
            head.set(Http2Names.CONTENT_LENGTH, String.valueOf(request.framing().length()));
        }
        if (request.takesTrailers()) {
            head.set("te", "trailers");
        }
        return head;
    }

    private void writeHead(boolean isEnd) {
        if (pendingHead != null) {
            Http2Headers head = pendingHead;
            pendingHead = null;
            channel.write(new DefaultHttp2HeadersFrame(head, isEnd)).addListener(this::headWritten);
        }
    }

    /** The codec refuses what the origin's limits or its GOAWAY forbid; nothing was sent then. */
    private void headWritten(Future<? super Void> written) {
        isRefused |= written.cause() instanceof Http2Exception refused
                && refused.error() == Http2Error.REFUSED_STREAM;
    }

    @Override
    public void sendBody(ByteBuf slice) {
        writeHead(false);
        channel.write(new DefaultHttp2DataFrame(slice, false));
    }

    @Override
    public void sendEnd(Headers trailers) {
        isRequestSent = true;
        if (trailers != null) {
            writeHead(false);
            Http2Headers last = new DefaultHttp2Headers(false);
            trailers.forEach(last::add);
            channel.write(new DefaultHttp2HeadersFrame(last, true));
        } else if (pendingHead != null) {
            writeHead(true);
        } else {
            channel.write(new DefaultHttp2DataFrame(true));
        }
        channel.flush();
        if (framing == null) {
            armResponse();
        }
    }

    private void armResponse() {
        loop.wheel.arm(timer, loop.nowMillis() + attempt.context.responseMillis());
    }

    @Override
    public void sendRaw(ByteBuf bytes) {
        bytes.release();
        throw new IllegalStateException("nothing is switched on HTTP/2");
    }

    @Override
    public void stalled() {
        if (framing == null && attempt != null) {
            armResponse();
        }
    }

    @Override
    public boolean isWritable() {
        return channel.channel().isWritable();
    }

    @Override
    public void read(boolean isOn) {
        if (isReading() == isOn) {
            return;
        }
        channel.channel().config().setAutoRead(isOn);
        if (!isOn) {
            loop.wheel.remove(timer);
        } else if (framing != null) {
            armIdle();
        }
    }

    private boolean isReading() {
        return channel.channel().config().isAutoRead();
    }

    private void armIdle() {
        if (!isOver && isReading()) {
            loop.wheel.arm(timer, loop.nowMillis() + pool.settings().idleBodyMillis());
        }
    }

    @Override
    public void flush() {
        if (!isOver) {
            writeHead(false);
            channel.flush();
        }
    }

    @Override
    public void abandon() {
        attempt = null;
        endOrReset();
    }

    /** A stream that both sides have ended needs no reset, which origins may count as an attack. */
    private void endOrReset() {
        if (isOver) {
            return;
        }
        if (isEnded && isRequestSent) {
            over();
        } else {
            reset();
        }
    }

    /** Ends the stream early, if it has not ended. */
    private void reset() {
        if (!isOver) {
            channel.writeAndFlush(new DefaultHttp2ResetFrame(Http2Error.CANCEL));
            over();
            channel.close();
        }
    }

    private void over() {
        isOver = true;
        pendingHead = null;
        loop.wheel.remove(timer);
        connection.streamEnded();
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object frame) {
        loop.readClock();
        try {
            if (isOver || attempt == null) {
                return;
            }
            if (frame instanceof Http2HeadersFrame headers) {
                headers(headers);
            } else if (frame instanceof Http2DataFrame data) {
                data(data);
            }
            if (attempt == null) {
                // A stream that has ended on both sides reads no more, and so does not complete a read.
                flushTarget.flush();
            }
        } catch (Refusal | IllegalArgumentException malformed) {
            fail(Category.ORIGIN_MALFORMED, malformed);
        } finally {
            ReferenceCountUtil.release(frame);
        }
    }

    private void headers(Http2HeadersFrame frame) {
        isEnded = frame.isEndStream();
        Headers fields = fields(frame.headers());
        if (framing != null) {
            if (!frame.isEndStream()) {
                throw new Refusal(502, "a second head in a response");
            }
            end(fields);
            return;
        }
        int status = status(frame.headers().status());
        if (status < 200) {
            interim(Response.received(status, fields, Framing.NONE), frame.isEndStream());
            return;
        }
        Response response = Response.fromFields(status, fields,
                attempt.context.request().method(), frame.isEndStream());
        framing = response.received();
        armIdle();
        attempt.responseHead(response);
        if (frame.isEndStream() && attempt != null) {
            end(null);
        }
    }

    private static int status(CharSequence text) {
        int status = 0;
        for (int i = 0; text != null && i < text.length(); i++) {
            char digit = text.charAt(i);
            status = digit >= '0' && digit <= '9' && status < 100 ? status * 10 + digit - '0' : 1000;
        }
        if (status < 100 || status > 599) {
            throw new Refusal(502, "response without a status");
        }
        return status;
    }

    private void interim(Response response, boolean isEnd) {
        if (isEnd || response.status() == 101 || ++interims > INTERIM_MAX) {
            throw new Refusal(502, "interim response that ends the stream, switches protocols or"
                    + " is one too many");
        }
        if (response.status() > 102) {
            attempt.interim(response);
        }
    }

    private Headers fields(Http2Headers received) {
        int fieldsMax = attempt.context.snapshot().answerLimits().fieldsMax();
        Headers fields = new Headers();
        for (Map.Entry<CharSequence, CharSequence> field : received) {
            String name = field.getKey().toString();
            if (name.startsWith(":")) {
                continue;
            }
            if (fields.size() >= fieldsMax) {
                throw new Refusal(502, "more than " + fieldsMax + " header fields");
            }
            String value = field.getValue().toString();
            if (Http2Fields.hasBlankEnds(value)) {
                throw new Refusal(502, "value of header " + name + " begins or ends with a blank");
            }
            fields.add(name, value);
        }
        return fields;
    }

    private void data(Http2DataFrame frame) {
        isEnded = frame.isEndStream();
        if (framing == null) {
            throw new Refusal(502, "body before its head");
        }
        received += frame.content().readableBytes();
        boolean isTooLong = framing.kind() == Framing.Kind.LENGTH && received > framing.length()
                || framing.kind() == Framing.Kind.NONE && received > 0;
        if (isTooLong) {
            throw new Refusal(502, "body is longer than its Content-Length");
        }
        armIdle();
        if (frame.content().isReadable()) {
            attempt.responseBody(frame.content().retainedSlice());
        }
        if (frame.isEndStream() && attempt != null) {
            end(null);
        }
    }

    private void end(Headers trailers) {
        if (framing.kind() == Framing.Kind.LENGTH && received != framing.length()) {
            throw new Refusal(502, "body is shorter than its Content-Length");
        }
        Attempt user = attempt;
        attempt = null;
        boolean wasSent = isRequestSent;
        endOrReset();
        user.responseEnd(wasSent, trailers);
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext context) {
        if (flushTarget != null) {
            flushTarget.flush();
        }
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext context) {
        if (attempt != null && isWritable()) {
            if (framing == null && !isRequestSent) {
                loop.wheel.remove(timer);
            }
            attempt.originWritable();
        }
    }

    @Override
    public void userEventTriggered(ChannelHandlerContext context, Object event) {
        if (event instanceof Http2GoAwayFrame) {
            // Sent to the streams only that the origin has not looked at (RFC 9113 §6.8).
            isRefused = true;
            // Each stream gets a frame of its own, which holds the buffer it was read into.
            ReferenceCountUtil.release(event);
        } else if (event instanceof Http2ResetFrame reset) {
            loop.readClock();
            isRefused |= reset.errorCode() == Http2Error.REFUSED_STREAM.code();
            // On a connection that lives a reset is the origin's own doing, and not staleness.
            lost(isRefused ? Loss.UNPROCESSED : Loss.BEFORE_ANSWER);
        }
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        loop.readClock();
        lost(isRefused ? Loss.UNPROCESSED
                : Attempts.withoutAnswer(wasUsed, loop.nowNanos() - begunNanos));
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        fail(Category.ORIGIN_MALFORMED, cause);
        context.close();
    }

    private void fail(Category category, Throwable cause) {
        Attempt user = attempt;
        attempt = null;
        reset();
        tell(user, category, cause, Loss.BEFORE_ANSWER);
    }

    /** The stream has ended without us. */
    private void lost(Loss loss) {
        if (isOver) {
            return;
        }
        Attempt user = attempt;
        attempt = null;
        over();
        tell(user, Category.ORIGIN_RESET, null, loss);
    }

    private void tell(Attempt user, Category category, Throwable cause, Loss loss) {
        if (user != null) {
            user.originFailed(category, cause,
                    framing == null ? loss : Loss.AFTER_ANSWER);
        }
    }
}
