// One keep-alive connection to an address: sends requests, reads responses strictly.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.socket.DuplexChannel;
import io.netty.handler.ssl.SslCloseCompletionEvent;
import io.netty.handler.ssl.SslHandler;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.ThreadLocalRandom;
import javax.net.ssl.SSLException;
import wirespeed.gateway.core.Attempts;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Forwarding;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.HeadCheck;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Limits;
import wirespeed.gateway.core.Loss;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.Response;

/** Reading stays on while it is unused, so that a close or an unasked byte ends it at once. */
final class OriginConnection extends ChannelInboundHandlerAdapter
        implements OriginStream, BodyReader.Sink {
    private enum State { CONNECTING, UNUSED, HEAD, BODY, TUNNEL, CLOSED }

    private static final int INTERIM_MAX = 8;
    private static final int DROPPED_BYTES_MAX = 64 * 1024;
    private static final int DROPPED_MILLIS_MAX = 1000;

    private final Pool pool;
    private final Loop loop;
    private final OutBuffer out = new OutBuffer();
    private final MessageReader reader = new MessageReader();
    private final Timer timer = new Timer();
    private ChannelHandlerContext channel;
    private State state = State.CONNECTING;
    private Attempt attempt;
    private Client flushTarget;
    private int interims;
    private int requests;
    private long begunNanos;
    private boolean isRequestSent;
    private boolean isResponseBegun;
    private boolean isChunkedRequest;
    private boolean keepAlive;
    private long retireMillis;
    private long connectNanos;
    private boolean isCounted = true;
    private boolean isBroken;
    Attempt firstUser;

    OriginConnection(Pool pool, Loop loop) {
        this.pool = pool;
        this.loop = loop;
    }

    /** The wheel's handle: a connection has one deadline at a time. */
    private final class Timer extends Wheel.Entry {
        @Override
        void onTimeout(long nowMillis) {
            timedOut();
        }
    }

    @Override
    public void handlerAdded(ChannelHandlerContext context) {
        channel = context;
        out.attach(context);
    }

    /** The connection is established, and encrypted if it has to be. */
    void established() {
        loop.readClock();
        state = State.UNUSED;
        // Not all at once, as they were opened.
        long age = pool.settings().connectionAgeMillis();
        retireMillis = loop.nowMillis() + age * 9 / 10
                + ThreadLocalRandom.current().nextLong(age / 5 + 1);
    }

    /** How long the place took to accept it, without a TLS handshake. */
    void accepted(long nanos) {
        connectNanos = nanos;
    }

    long connectNanos() {
        return connectNanos;
    }

    /** Whether the pool still counts this connection as open. */
    boolean isCounted() {
        return isCounted;
    }

    void uncount() {
        isCounted = false;
    }

    void startUnused(long nowMillis) {
        loop.wheel.arm(timer, nowMillis + loop.timeouts.poolIdleMillis());
    }

    /** Sends the head of a request. */
    @Override
    public void begin(Attempt user) {
        attempt = user;
        if (flushTarget != null && flushTarget != user.client) {
            flushTarget.flush();
        }
        flushTarget = user.client;
        state = State.HEAD;
        interims = 0;
        requests++;
        begunNanos = loop.nowNanos();
        isRequestSent = false;
        isResponseBegun = false;
        isChunkedRequest = user.context.request().framing().isChunked();
        loop.sink.clear();
        Forwarding.writeRequest(user.context, pool.address(), loop.sink);
        out.head(loop.sink);
        // Until the request is complete, the client is waited for and not the origin.
        loop.wheel.disarm(timer);
    }

    @Override
    public void sendBody(ByteBuf slice) {
        if (isChunkedRequest) {
            out.chunk(slice);
        } else {
            out.body(slice);
        }
    }

    /** The request body waits for the origin to take what is written. */
    @Override
    public void stalled() {
        if (state == State.HEAD) {
            armResponse();
        }
    }

    private void armResponse() {
        loop.wheel.arm(timer, loop.nowMillis() + attempt.context.responseMillis());
    }

    @Override
    public void sendEnd(Headers trailers) {
        if (isChunkedRequest) {
            out.lastChunk(trailers, loop.sink);
        }
        isRequestSent = true;
        out.flush();
        if (state == State.HEAD) {
            armResponse();
        }
    }

    @Override
    public void sendRaw(ByteBuf bytes) {
        out.body(bytes);
        out.flush();
        armIdle();
    }

    @Override
    public void endRaw() {
        out.flush();
        channel.writeAndFlush(Unpooled.EMPTY_BUFFER).addListener(written -> {
            if (written.isSuccess()) {
                shutOutput();
            }
        });
    }

    private void shutOutput() {
        DuplexChannel socket = (DuplexChannel) channel.channel();
        SslHandler tls = channel.pipeline().get(SslHandler.class);
        if (tls == null) {
            socket.shutdownOutput();
        } else {
            tls.closeOutbound().addListener(said -> socket.shutdownOutput());
        }
    }

    @Override
    public void flush() {
        if (state != State.CLOSED) {
            out.flush();
        }
    }

    @Override
    public boolean isWritable() {
        return out.isWritable();
    }

    /** Stops or resumes reading the response; what is not read is not the origin's delay. */
    @Override
    public void read(boolean isOn) {
        if (isReading() == isOn) {
            return;
        }
        channel.channel().config().setAutoRead(isOn);
        if (!isOn) {
            loop.wheel.disarm(timer);
        } else if (state == State.BODY || state == State.TUNNEL) {
            armIdle();
        }
    }

    private boolean isReading() {
        return channel.channel().config().isAutoRead();
    }

    /** The exchange does not want the rest; others can use the connection once a short one is read. */
    @Override
    public void abandon() {
        attempt = null;
        if (state == State.TUNNEL) {
            endTunnel();
            return;
        }
        boolean isWorthReading = state == State.BODY && isRequestSent && keepAlive
                && reader.endsWithin(DROPPED_BYTES_MAX);
        if (isWorthReading) {
            read(true);
            loop.wheel.arm(timer, loop.nowMillis() + DROPPED_MILLIS_MAX);
        } else {
            close();
        }
    }

    /** Data that the client sent before it closed still goes to the origin, while that takes it. */
    private void endTunnel() {
        state = State.CLOSED;
        read(true);
        out.flush();
        loop.wheel.arm(timer, loop.nowMillis() + loop.timeouts.sendMillis());
        channel.writeAndFlush(Unpooled.EMPTY_BUFFER).addListener(written -> {
            if (written.isSuccess() && !pool.settings().tls()
                    && channel.channel() instanceof DuplexChannel plain) {
                // Closing with something unread would take back what is on its way.
                loop.wheel.arm(timer, loop.nowMillis() + DROPPED_MILLIS_MAX);
                plain.shutdownOutput();
            } else {
                channel.close();
            }
        });
    }

    void close() {
        state = State.CLOSED;
        loop.wheel.remove(timer);
        channel.close();
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
        ByteBuf in = (ByteBuf) message;
        boolean isLarge = in.readableBytes() >= LoopReceive.LARGE_BYTES;
        loop.readClock();
        try {
            in = reader.join(in);
            process(in);
        } catch (Refusal refusal) {
            fail(Category.ORIGIN_MALFORMED, refusal);
        } finally {
            if (!reader.isHolding(in)) {
                in.release();
            }
        }
        if (isLarge && flushTarget != null) {
            flushTarget.flush();
        }
    }

    private void process(ByteBuf in) {
        while (in.isReadable()) {
            switch (state) {
                case HEAD -> {
                    if (!head(in)) {
                        return;
                    }
                }
                case BODY -> {
                    if (attempt != null) {
                        // The rest of an abandoned response has to come within the running time.
                        armIdle();
                    }
                    reader.read(in, this);
                    endIfDone(in);
                }
                case TUNNEL -> {
                    armIdle();
                    attempt.client.sendBody(in.readRetainedSlice(in.readableBytes()));
                    attempt.client.flush();
                    if (!attempt.client.isWritable()) {
                        read(false);
                        attempt.client.stalled();
                    }
                }
                case UNUSED -> {
                    loop.meters.add(Meters.Count.UNSOLICITED, 1);
                    pool.broken(this);
                    close();
                    return;
                }
                default -> {
                    return;
                }
            }
        }
    }

    /** Reads the head of a response; false when it is not complete. */
    private boolean head(ByteBuf in) {
        Limits limits = attempt.context.snapshot().answerLimits();
        isResponseBegun = true;
        int length = reader.head(in, loop, limits);
        if (length < 0) {
            return false;
        }
        received(HeadCheck.response(loop.scratch(length), 0, length, limits), in);
        return true;
    }

    private void received(Response response, ByteBuf in) {
        if (response.status() == 101) {
            switchProtocol(response);
            return;
        }
        if (response.status() < 200) {
            if (++interims > INTERIM_MAX) {
                throw new Refusal(502, "more than " + INTERIM_MAX + " interim responses");
            }
            // RFC 9110 §15.2: 100 is about this connection only.
            if (response.status() != 100) {
                attempt.interim(response);
            }
            return;
        }
        Framing framing = response.answers(attempt.context.request().method());
        reader.begin(framing);
        keepAlive = response.keepAlive() && framing.kind() != Framing.Kind.UNTIL_CLOSE;
        state = State.BODY;
        armIdle();
        attempt.responseHead(response);
        endIfDone(in);
    }

    private void switchProtocol(Response response) {
        Forwarding.checkSwitch(attempt.context, response);
        state = State.TUNNEL;
        armIdle();
        attempt.switched(response);
    }

    private void endIfDone(ByteBuf in) {
        if (!reader.isDone() || state != State.BODY) {
            return;
        }
        Attempt user = attempt;
        attempt = null;
        // A byte after the end would be taken for the answer to the next request.
        boolean isKept = keepAlive && isRequestSent && !in.isReadable() && isYoung();
        if (!isKept) {
            if (in.isReadable()) {
                loop.meters.add(Meters.Count.UNSOLICITED, 1);
            }
            close();
        } else {
            state = State.UNUSED;
            read(true);
        }
        if (user != null) {
            user.responseEnd(reader.trailers());
        }
        // Last: a request that waits takes the connection at once, and with it the flush.
        if (isKept && state == State.UNUSED) {
            pool.release(this);
        }
    }

    private boolean isYoung() {
        return requests < pool.settings().connectionRequestsMax()
                && loop.nowMillis() < retireMillis && !loop.isStopping()
                && pool.leadsTo(remote());
    }

    /** Where the connection leads; null once it is closed. */
    InetAddress remote() {
        InetSocketAddress remote = (InetSocketAddress) channel.channel().remoteAddress();
        return remote == null ? null : remote.getAddress();
    }

    @Override
    public void body(ByteBuf slice) {
        if (attempt == null) {
            slice.release();
        } else {
            attempt.responseBody(slice);
        }
    }

    private void armIdle() {
        if (state != State.CLOSED && isReading()) {
            loop.wheel.arm(timer, loop.nowMillis() + pool.settings().idleBodyMillis());
        }
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext context) {
        Client target = flushTarget;
        if (target != null) {
            if (attempt == null) {
                flushTarget = null;
            }
            target.flush();
        }
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext context) {
        if (attempt != null && isWritable()) {
            if (state == State.HEAD && !isRequestSent) {
                loop.wheel.disarm(timer);
            }
            attempt.originWritable();
        }
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        loop.readClock();
        out.discard();
        reader.release();
        pool.closed(this);
        State before = state;
        state = State.CLOSED;
        loop.wheel.remove(timer);
        Attempt user = attempt;
        attempt = null;
        if (user == null) {
            return;
        }
        if (before == State.TUNNEL) {
            user.tunnelClosed();
        } else if (before == State.BODY && reader.endsWithClose() && !isBroken) {
            user.responseEnd(null);
            user.client.flush();
        } else {
            user.originFailed(Category.ORIGIN_RESET, null, isResponseBegun ? Loss.AFTER_ANSWER
                    : Attempts.withoutAnswer(requests > 1, loop.nowNanos() - begunNanos,
                    connectNanos));
        }
    }

    /**
     * RFC 9112 §9.8: the alert of TLS is the end, whenever that of the socket comes; without it anybody on
     * the way may have ended the connection.
     */
    @Override
    public void userEventTriggered(ChannelHandlerContext context, Object event) {
        isBroken |= event instanceof SslCloseCompletionEvent closed && !closed.isSuccess();
        context.fireUserEventTriggered(event);
        // Behind our own alert the event comes with the next data, too.
        if (event == SslCloseCompletionEvent.SUCCESS && state != State.CLOSED
                && context.pipeline().get(SslHandler.class).engine().isInboundDone()) {
            context.close();
        }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        // A reset does not end a body: one that lasts until the close must not look complete.
        isBroken = true;
        boolean isRead = state == State.HEAD || state == State.BODY;
        if (isRead && cause instanceof IOException && !(cause instanceof SSLException)) {
            // A write may have failed behind an answer that can still be read; reading sees the end.
            return;
        }
        // Resets end in channelInactive; what is left are faults, which must not stay unseen.
        if (!(cause instanceof IOException) && attempt != null) {
            fail(Category.ORIGIN_MALFORMED, cause);
        }
        context.close();
    }

    private void timedOut() {
        if (state == State.UNUSED) {
            pool.broken(this);
            close();
        } else if (state == State.TUNNEL) {
            // An idle WebSocket is not an error; a close informs both sides.
            channel.close();
        } else {
            fail(Category.ORIGIN_TIMEOUT, null);
        }
    }

    private void fail(Category category, Throwable cause) {
        Attempt user = attempt;
        attempt = null;
        close();
        if (user != null) {
            user.originFailed(category, cause, isResponseBegun
                    ? Loss.AFTER_ANSWER : Loss.BEFORE_ANSWER);
        }
    }
}
