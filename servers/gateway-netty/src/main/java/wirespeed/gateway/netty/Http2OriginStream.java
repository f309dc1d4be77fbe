// One exchange on an HTTP/2 connection to an origin.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.handler.codec.http2.DefaultHttp2Headers;
import io.netty.handler.codec.http2.Http2Error;
import io.netty.handler.codec.http2.Http2Exception;
import io.netty.handler.codec.http2.Http2Exception.HeaderListSizeException;
import io.netty.handler.codec.http2.Http2Headers;
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
import wirespeed.gateway.runtime.ThrottledLog;

/** Its answer obeys the rules that answers by HTTP/1 obey, so that it may go on by either version. */
final class Http2OriginStream extends Http2Frames implements OriginStream {
    private static final int INTERIM_MAX = 8;

    private final Pool pool;
    private final Loop loop;
    private final Http2Origin connection;
    private final Http2Origins codec;
    private final boolean wasUsed;
    private final Timer timer = new Timer();
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
    /** Nothing comes any more, and what came may wait. */
    private boolean isCut;

    Http2OriginStream(Pool pool, Loop loop, Http2Origin connection, Http2Origins codec,
            boolean wasUsed) {
        super(codec, null);
        this.codec = codec;
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

    private void writePending(boolean isEnd) {
        if (pendingHead != null) {
            Http2Headers head = pendingHead;
            pendingHead = null;
            codec.begin(this, head, isEnd).addListener(this::headWritten);
        }
    }

    /** The codec refuses what the origin's limits or its GOAWAY forbid; nothing was sent then. */
    private void headWritten(Future<? super Void> written) {
        if (written.cause() instanceof HeaderListSizeException) {
            loop.executor.execute(this::headTooLarge);
        } else if (!written.isSuccess()) {
            isRefused |= written.cause() instanceof Http2Exception refused
                    && refused.error() == Http2Error.REFUSED_STREAM;
            loop.executor.execute(this::cut);
        }
    }

    @Override
    public void sendBody(ByteBuf slice) {
        writePending(false);
        writeData(slice, false);
    }

    @Override
    public void sendEnd(Headers trailers) {
        isRequestSent = true;
        if (trailers != null) {
            writePending(false);
            Http2Headers last = new DefaultHttp2Headers(false);
            trailers.forEach(last::add);
            writeHead(last, true);
        } else if (pendingHead != null) {
            writePending(true);
        } else {
            writeData(Unpooled.EMPTY_BUFFER, true);
        }
        flushWritten();
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
        endRaw();
    }

    @Override
    public void endRaw() {
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
        return isRoom();
    }

    @Override
    public void read(boolean isOn) {
        if (isReading() == isOn) {
            return;
        }
        if (!isOn) {
            loop.wheel.remove(timer);
        } else if (framing != null && !isOver) {
            loop.wheel.arm(timer, loop.nowMillis() + pool.settings().idleBodyMillis());
        }
        reading(isOn);
        if (isCut && !hasWaiting()) {
            loop.executor.execute(this::cut);
        }
    }

    private void armIdle() {
        if (!isOver && isReading()) {
            loop.wheel.arm(timer, loop.nowMillis() + pool.settings().idleBodyMillis());
        }
    }

    @Override
    public void flush() {
        if (!isOver) {
            writePending(false);
            flushWritten();
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
        if (isEnded && isRequestSent && isSent()) {
            over();
        } else {
            reset();
        }
    }

    /** Ends the stream early, if it has not ended. */
    private void reset() {
        if (!isOver) {
            writeReset(Http2Error.CANCEL);
            over();
        }
    }

    private void over() {
        isOver = true;
        pendingHead = null;
        forgetWaiting();
        loop.wheel.remove(timer);
        connection.streamEnded();
    }

    @Override
    boolean isDeaf() {
        return isOver || attempt == null;
    }

    @Override
    void take(ByteBuf data, Http2Headers head, boolean isEnd) {
        try {
            if (data != null) {
                body(data, isEnd);
            } else {
                headers(head, isEnd);
            }
        } catch (Refusal | IllegalArgumentException malformed) {
            fail(Category.ORIGIN_MALFORMED, malformed);
        }
    }

    @Override
    void faulted(Throwable fault) {
        ThrottledLog.fault("an HTTP/2 stream to an origin", fault);
        fail(Category.ORIGIN_MALFORMED, fault);
    }

    private void headers(Http2Headers head, boolean isEnd) {
        isEnded = isEnd;
        Headers fields = fields(head);
        if (framing != null) {
            if (!isEnd) {
                throw new Refusal(502, "a second head in a response");
            }
            end(fields);
            return;
        }
        int status = status(head.status());
        if (status < 200) {
            interim(Response.received(status, fields, Framing.NONE), isEnd);
            return;
        }
        Response response = Response.fromFields(status, fields,
                attempt.context.request().method(), isEnd);
        framing = response.received();
        armIdle();
        attempt.responseHead(response);
        if (isEnd && attempt != null) {
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
        if (response.status() != 100) {
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

    private void body(ByteBuf data, boolean isEnd) {
        isEnded = isEnd;
        if (framing == null) {
            throw new Refusal(502, "body before its head");
        }
        received += data.readableBytes();
        boolean isTooLong = framing.kind() == Framing.Kind.LENGTH && received > framing.length()
                || framing.kind() == Framing.Kind.NONE && received > 0;
        if (isTooLong) {
            throw new Refusal(502, "body is longer than its Content-Length");
        }
        armIdle();
        if (data.isReadable()) {
            attempt.responseBody(data.retainedSlice());
        }
        if (isEnd && attempt != null) {
            end(null);
        }
    }

    private void end(Headers trailers) {
        if (framing.kind() == Framing.Kind.LENGTH && received != framing.length()) {
            throw new Refusal(502, "body is shorter than its Content-Length");
        }
        Attempt user = attempt;
        attempt = null;
        endOrReset();
        user.responseEnd(trailers);
    }

    @Override
    void readComplete() {
        if (flushTarget != null) {
            flushTarget.flush();
        }
    }

    @Override
    void roomAgain() {
        if (framing == null && !isRequestSent) {
            loop.wheel.remove(timer);
        }
        attempt.originWritable();
    }

    /** The origin has not looked at it (RFC 9113 §6.8). */
    void unprocessed() {
        isRefused = true;
    }

    @Override
    void reset(long error) {
        if (isEndWaiting()) {
            // RFC 9113 §8.1: the answer is complete, the rest of the request is not needed.
            return;
        }
        isRefused |= error == Http2Error.REFUSED_STREAM.code();
        // On a connection that lives a reset is the origin's own doing, and not staleness.
        lost(isRefused ? Loss.UNPROCESSED : Loss.BEFORE_ANSWER);
    }

    @Override
    void closed() {
        isCut = true;
        if (!isOver && !hasWaiting()) {
            // Not within the event that has closed it, which may be one of the exchange's own.
            loop.executor.execute(this::cut);
        }
    }

    private void cut() {
        loop.readClock();
        lost(isRefused ? Loss.UNPROCESSED
                : Attempts.withoutAnswer(wasUsed, loop.nowNanos() - begunNanos,
                connection.connectNanos()));
    }

    /** The origin's SETTINGS_MAX_HEADER_LIST_SIZE forbids the fields of this request. */
    private void headTooLarge() {
        loop.readClock();
        Attempt user = attempt;
        attempt = null;
        reset();
        if (user != null) {
            user.tooLarge();
        }
    }

    @Override
    void broken(Throwable cause) {
        if (cause instanceof HeaderListSizeException size && !size.duringDecode()) {
            headTooLarge();
            return;
        }
        fail(Category.ORIGIN_MALFORMED, cause);
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
