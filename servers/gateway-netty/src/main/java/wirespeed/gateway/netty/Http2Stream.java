// One request that came by HTTP/2, as the client's side of an exchange.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFuture;
import io.netty.handler.codec.http2.DefaultHttp2Headers;
import io.netty.handler.codec.http2.Http2Error;
import io.netty.handler.codec.http2.Http2Headers;
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
final class Http2Stream extends Http2Frames implements Client, Drainable {
    private final Loop loop;
    private final Http2Connection connection;
    private final ClientDeadline deadline;
    private Exchange exchange;
    private long declared = -1;
    private long received;
    private boolean isInputDone;
    private boolean isDone;
    private boolean isMalformed;
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

    Http2Stream(Loop loop, Http2Connection connection, Http2Codec codec,
            io.netty.handler.codec.http2.Http2Stream stream) {
        super(codec, stream);
        this.loop = loop;
        this.connection = connection;
        deadline = new ClientDeadline(loop, this::timedOut);
    }

    private void timedOut() {
        if (exchange == null) {
            end(Http2Error.CANCEL);
        } else if (!isDone && deadline.isExchangeOver()) {
            exchange.timedOut();
        } else if (isDone || isStalled) {
            // The client opens no window for what it asked for.
            end(Http2Error.CANCEL);
        } else if (!isInputDone && isReading()) {
            exchange.clientTooSlow();
        } else {
            exchange.timedOut();
        }
    }

    /** Ends it early, whatever is under way. */
    private void end(Http2Error error) {
        gone();
        writeReset(error);
    }

    @Override
    public boolean hasFairTime() {
        return deadline.hasFairTime();
    }

    @Override
    public void exchangeWithin(int millis) {
        deadline.exchangeWithin(millis);
        if (!isInputDone && isReading()) {
            deadline.withinExchange(loop.timeouts.bodyIdleMillis());
        } else {
            deadline.atExchangeEnd();
        }
    }

    /** An exception on one stream does not end the connection with all others. */
    @Override
    void faulted(Throwable fault) {
        ThrottledLog.fault("an HTTP/2 stream", fault);
        end(Http2Error.INTERNAL_ERROR);
    }

    /** The head of the request. */
    void begin(Http2Headers fields, String scheme, boolean isEnd) {
        try {
            request(fields, scheme, isEnd);
        } catch (Refusal refusal) {
            refused(refusal);
        } catch (RuntimeException | Error fault) {
            faulted(fault);
        }
    }

    private void request(Http2Headers fields, String scheme, boolean isEnd) {
        Request request = Http2Fields.request(fields, !isEnd, limits());
        request.clientAddress(connection.address());
        request.scheme(scheme);
        request.clientCertificate(connection.certificate());
        declared = request.framing().kind() == Framing.Kind.LENGTH
                ? request.framing().length() : -1;
        if (isEnd && declared > 0) {
            throw Refusal.malformed("Content-Length without a body");
        }
        isInputDone = isEnd;
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

    @Override
    void readComplete() {
        if (isClosed() || connection.isRefused()) {
            awaitsRead = null;
        }
        begin();
        flush();
        if (exchange != null) {
            exchange.flushOrigin();
        }
    }

    @Override
    boolean isDeaf() {
        return isDone;
    }

    /** A second head is the trailers of the request. */
    @Override
    void take(ByteBuf data, Http2Headers trailers, boolean isEnd) {
        try {
            if (data != null) {
                body(data, isEnd);
            } else {
                endOfBody(trailers, isEnd);
            }
        } catch (Refusal refusal) {
            refused(refusal);
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
    private void endOfBody(Http2Headers trailers, boolean isEnd) {
        if (!isEnd || declared >= 0 && received != declared) {
            throw Refusal.malformed("body differs from Content-Length");
        }
        if (awaitsEnd != null) {
            endWithoutBody(true);
        } else {
            begin();
            inputDone(true, Http2Fields.trailers(trailers, limits()));
        }
    }

    private void body(ByteBuf data, boolean isEnd) {
        received += data.readableBytes();
        boolean isWrong = declared >= 0
                && (received > declared || isEnd && received != declared);
        if (isWrong) {
            throw Refusal.malformed("body differs from Content-Length");
        }
        if (awaitsEnd != null) {
            endWithoutBody(isEnd);
            return;
        }
        begin();
        awaitBody();
        if (!isAnswering && pace.isTooSlow(data.readableBytes(), loop.nowMillis()) && !isEnd) {
            exchange.clientTooSlow();
            return;
        }
        if (data.isReadable()) {
            exchange.requestBody(data.retainedSlice());
        }
        inputDone(isEnd, null);
    }

    private void inputDone(boolean isEnd, Headers trailers) {
        if (isEnd && !isInputDone) {
            isInputDone = true;
            deadline.atExchangeEnd();
            exchange.requestEnd(trailers);
        }
    }

    private void refused(Refusal refusal) {
        isMalformed = refusal.isMalformed();
        if (exchange != null && !exchange.isOver()) {
            exchange.badBody(refusal);
            return;
        }
        loop.meters.refused(Category.CLIENT_BAD, refusal.status());
        isDone = true;
        awaitsRead = null;
        deadline.none();
        writeHead(Http2Fields.refusal(refusal, loop), true);
        writeReset(inputError());
    }

    private Http2Error inputError() {
        return isMalformed ? Http2Error.PROTOCOL_ERROR : Http2Error.NO_ERROR;
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
            last = writeHead(head, isEnd && pendingBody == null);
        }
        if (pendingBody != null) {
            ByteBuf body = pendingBody;
            pendingBody = null;
            last = writeData(body, isEnd);
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

    @Override
    void roomAgain() {
        if (exchange == null) {
            return;
        }
        if (isStalled) {
            isStalled = false;
            loop.stalledStreams.remove(this);
            deadline.atExchangeEnd();
        }
        exchange.clientWritable();
    }

    @Override
    void inputShut(boolean isBlocked) {
        boolean isIncomplete = !isDone && !isInputDone && !isEndWaiting();
        if (isIncomplete || isBlocked) {
            end(Http2Error.CANCEL);
        }
    }

    @Override
    public void sendBody(ByteBuf slice) {
        writePending(false);
        connection.sent(slice.readableBytes());
        pendingBody = slice;
    }

    @Override
    public void sendEnd(Headers trailers) {
        if (isDone) {
            return;
        }
        isDone = true;
        // Until the client has taken it; then the stream is closed.
        deadline.within(loop.timeouts.sendMillis());
        awaitTaker();
        ChannelFuture written = writeEnd(trailers);
        if (!isInputDone && written != null) {
            // Not before the last byte has left: a reset takes back what waits.
            written.addListener(this::stopInput);
        }
    }

    /** RFC 9113 §8.1: the response is complete, the rest of the request is not needed; §8.1.1: or it is malformed. */
    private void stopInput(Future<?> written) {
        if (written.isSuccess()) {
            writeReset(inputError());
        }
    }

    private ChannelFuture writeEnd(Headers trailers) {
        if (trailers == null && (pendingHead != null || pendingBody != null)) {
            return writePending(true);
        }
        if (trailers == null) {
            return writeData(Unpooled.EMPTY_BUFFER, true);
        }
        writePending(false);
        Http2Headers last = new DefaultHttp2Headers(false);
        trailers.forEach(last::add);
        return writeHead(last, true);
    }

    @Override
    public void cut() {
        isDone = true;
        deadline.none();
        dropPending();
        writeReset(Http2Error.INTERNAL_ERROR);
    }

    @Override
    public void sendContinue() {
        writeHead(new DefaultHttp2Headers(false).status("100"), false);
        flush();
    }

    @Override
    public void flush() {
        writePending(false);
        flushWritten();
    }

    @Override
    public boolean isWritable() {
        return isRoom();
    }

    @Override
    public void readBody(boolean isOn) {
        bodyWaits(!isOn && !isInputDone && !isDone);
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
        reading(isOn);
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
        end(Http2Error.CANCEL);
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
        writeHead(Http2Fields.interim(response), false);
    }

    /** Nobody waits for the answer any more. */
    private void gone() {
        isDone = true;
        awaitsEnd = null;
        awaitsRead = null;
        forget();
        dropPending();
        if (exchange != null) {
            exchange.clientGone();
        }
    }

    private void forget() {
        deadline.none();
        bodyWaits(false);
        loop.stalledStreams.remove(this);
        forgetWaiting();
    }

    @Override
    void reset(long error) {
        gone();
    }

    @Override
    void broken(Throwable cause) {
        gone();
    }

    @Override
    void closed() {
        if (isDone) {
            forget();
        } else {
            // Not within the event that has closed it, which may be one of the exchange's own.
            loop.executor.execute(this::gone);
        }
    }
}
