// One HTTP/1 connection of a client: reads requests strictly, one at a time, and answers in order.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.handler.ssl.SslCloseCompletionEvent;
import wirespeed.gateway.core.BodyPace;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.HeadCheck;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Limits;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Response;

/** The only handler of the connection (behind TLS, if there is any). */
final class ClientConnection extends ClientSocket implements Client, BodyReader.Sink {
    private enum State {
        /** Waits for a request head, or has a part of one. */
        HEAD,
        /** Reads the request body. */
        BODY,
        /** The request is complete, its response is not; what comes now has to wait. */
        RESPONSE,
        /** The response is complete, the rest of the request body is dropped. */
        DROP,
        TUNNEL
    }

    private static final int DROPPED_BYTES_MAX = 64 * 1024;

    private final MessageReader reader = new MessageReader();
    private State state = State.HEAD;
    private Exchange exchange;
    private long dropped;
    private BodyPace pace;
    private boolean isHeadBegun;
    private boolean isContinued;
    private boolean isStalled;
    private boolean isProcessing;
    private boolean hasAsked;
    private boolean isFinalHeadAwaited;

    ClientConnection(Loop loop, boolean isTls) {
        super(loop, isTls);
    }

    @Override
    public boolean hasFairTime() {
        return deadline.hasFairTime();
    }

    @Override
    public void exchangeWithin(int millis) {
        deadline.exchangeWithin(millis);
        boolean isReading = state == State.BODY && isReading();
        if (isReading) {
            deadline.withinExchange(loop.timeouts.bodyIdleMillis());
        } else {
            deadline.atExchangeEnd();
        }
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
        ByteBuf in = (ByteBuf) message;
        boolean isLarge = in.readableBytes() >= LoopReceive.LARGE_BYTES;
        loop.readClock();
        process(reader.join(in));
        if (isLarge && exchange != null) {
            exchange.flushOrigin();
        }
    }

    /** Takes the buffer over and reads as far as the state allows. */
    private void process(ByteBuf in) {
        isProcessing = true;
        try {
            while (in.isReadable() && !reader.isHolding()) {
                step(in);
            }
        } catch (Refusal refusal) {
            refused(refusal);
        } finally {
            isProcessing = false;
            if (!reader.isHolding(in)) {
                in.release();
            }
        }
    }

    private void step(ByteBuf in) {
        if (isOver()) {
            in.skipBytes(in.readableBytes());
            return;
        }
        switch (state) {
            case HEAD -> {
                if (isWritable()) {
                    head(in);
                } else {
                    awaitTaker(in);
                }
            }
            case BODY -> readBody(in);
            case DROP -> {
                reader.read(in, this);
                if (reader.isDone() && !isOver()) {
                    awaitHead();
                }
            }
            case RESPONSE -> {
                reader.hold(in);
                read(false);
            }
            case TUNNEL -> exchange.tunnel(in.readRetainedSlice(in.readableBytes()));
            default -> throw new IllegalStateException("a connection in state " + state);
        }
    }

    /** A client that asks and asks and takes no answer gets no other one meanwhile. */
    private void awaitTaker(ByteBuf in) {
        reader.hold(in);
        read(false);
        isStalled = true;
        deadline.waits();
        deadline.within(loop.timeouts.sendMillis());
    }

    private void readBody(ByteBuf in) {
        deadline.withinExchange(loop.timeouts.bodyIdleMillis());
        boolean isTooSlow = pace.isTooSlow(in.readableBytes(), loop.nowMillis());
        reader.read(in, this);
        if (isOver() || state != State.BODY) {
            // A piece of it was refused, and the rest of it is of no interest.
            return;
        }
        if (reader.isDone()) {
            bodyDone();
        } else if (isTooSlow) {
            exchange.clientTooSlow();
        }
    }

    private void head(ByteBuf in) {
        Limits limits = loop.gateway.snapshot().limits();
        if (reader.skipEmptyLine(in)) {
            headBegins();
            return;
        }
        int length = reader.head(in, loop, limits);
        if (length < 0) {
            headBegins();
        } else {
            begin(HeadCheck.request(loop.scratch(length), 0, length, limits));
        }
    }

    /** From its first byte on, and an empty line before it does not make the time begin again. */
    private void headBegins() {
        if (!isHeadBegun) {
            isHeadBegun = true;
            deadline.waits();
            deadline.within(loop.timeouts.headMillis());
        }
    }

    private void begin(Request request) {
        introduce(request);
        hasAsked = true;
        out.answers(request);
        reader.begin(request.framing());
        boolean hasBody = !reader.isDone();
        isContinued = false;
        if (hasBody) {
            if (pace == null) {
                pace = loop.bodyPace();
            }
            pace.begin(loop.nowMillis());
        }
        state = hasBody ? State.BODY : State.RESPONSE;
        deadline.exchangeBegins();
        deadline.withinExchange(hasBody ? loop.timeouts.bodyIdleMillis()
                : loop.timeouts.exchangeMillis());
        exchange = new Exchange(loop, this, request);
        exchange.start();
    }

    private void bodyDone() {
        state = State.RESPONSE;
        deadline.atExchangeEnd();
        exchange.requestEnd(reader.trailers());
    }

    private void awaitHead() {
        state = State.HEAD;
        isFinalHeadAwaited = false;
        isStalled = false;
        isHeadBegun = false;
        exchange = null;
        deadline.waits();
        deadline.within(loop.timeouts.keepAliveMillis());
    }

    @Override
    public void body(ByteBuf slice) {
        if (state == State.BODY && !isOver()) {
            exchange.requestBody(slice);
            return;
        }
        dropped += slice.readableBytes();
        slice.release();
        if (dropped > DROPPED_BYTES_MAX) {
            linger();
        }
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext context) {
        out.flush();
        if (exchange != null) {
            exchange.flushOrigin();
        }
    }

    /** A malformed request; neither filters nor origin see it. */
    private void refused(Refusal refusal) {
        if (state == State.DROP || isOver()) {
            linger();
            return;
        }
        if (exchange != null && !exchange.isOver()) {
            // The head was fine and the body is not.
            exchange.badBody(refusal);
            out.flush();
            return;
        }
        loop.meters.refused(Category.CLIENT_BAD, refusal.status());
        out.refusal(refusal);
        linger();
    }

    /** The process stops: unused connections go now, the others after their response. */
    @Override
    public void drain() {
        out.markLast();
        if (state != State.HEAD || isOver()) {
            return;
        }
        if (reader.isHolding()) {
            isFinalHeadAwaited = true;
        } else if (hasAsked || isHeadBegun) {
            linger();
        } else {
            isFinalHeadAwaited = true;
            deadline.within(Math.min(FIRST_MILLIS, loop.timeouts.keepAliveMillis()));
        }
    }

    @Override
    public boolean isWritten() {
        boolean isAwaited = isFinalHeadAwaited && state == State.HEAD && !isOver();
        return !isAwaited && super.isWritten();
    }

    @Override
    public boolean relieve(long sinceMillis) {
        boolean holds = isOver() ? isLastAwaited() : switch (state) {
            case HEAD -> reader.isHolding() || !isWritable();
            case RESPONSE, TUNNEL -> isStalled;
            default -> false;
        };
        if (!holds || !deadline.waitsSince(sinceMillis)) {
            return false;
        }
        channelGone();
        cut();
        return true;
    }

    /**
     * RFC 9110 §10.1.1: a client that was never asked to go on may send its body or the next request
     * now, and the gateway could not know which.
     */
    private boolean isBodyInDoubt(Exchange user) {
        return state == State.BODY && !isContinued && user.context.request().expectsContinue();
    }

    @Override
    public void sendHead(Exchange user, Framing framing) {
        boolean isLastAsked = isInputShut() && !reader.isHolding() && !isGateHolding() && !isProcessing;
        if (user.mustClose() || isLastAsked || isBodyInDoubt(user)) {
            out.markLast();
        }
        out.response(user.context, framing);
    }

    @Override
    public Framing clientFraming(Framing fromOrigin) {
        return out.framing(fromOrigin);
    }

    @Override
    public void sendBody(ByteBuf slice) {
        if (isOver()) {
            slice.release();
        } else {
            out.data(slice);
        }
    }

    @Override
    public void sendEnd(Headers trailers) {
        out.end(trailers);
        if (isOver()) {
            return;
        }
        if (!out.keepsAlive()) {
            lastSent();
            return;
        }
        if (state == State.BODY) {
            state = State.DROP;
            dropped = 0;
            readBody(true);
            deadline.within(loop.timeouts.bodyIdleMillis());
            return;
        }
        awaitHead();
        if (!isProcessing) {
            next();
        }
    }

    private void lastSent() {
        exchange = null;
        boolean isAllRead = state == State.RESPONSE && !reader.isHolding();
        if (!isAllRead || !out.saidClose() || !closeIfSent()) {
            linger();
        }
    }

    /** Goes on with what was received while a response was on its way. */
    private void next() {
        read(true);
        if (reader.isHolding() && state == State.HEAD) {
            process(reader.take());
            out.flush();
            if (exchange != null) {
                exchange.flushOrigin();
            }
        }
        openGate();
        if (isInputShut()) {
            inputEnded();
        }
    }

    @Override
    boolean isWaiting() {
        return (state == State.RESPONSE || state == State.HEAD && isStalled) && !isOver();
    }

    @Override
    public void sendContinue() {
        if (out.isModern() && state == State.BODY && !isOver()) {
            isContinued = true;
            out.goOn();
        }
    }

    @Override
    public void sendInterim(Response response) {
        boolean isAwaited = state == State.BODY || state == State.RESPONSE;
        if (out.isModern() && isAwaited && !isOver()) {
            out.interim(response);
        }
    }

    @Override
    public void sendSwitch(Response response, String protocol) {
        out.switched(response, protocol);
        state = State.TUNNEL;
        deadline.none();
        if (reader.isHolding()) {
            exchange.tunnel(reader.take());
        }
        read(true);
        openGate();
        if (isInputShut()) {
            inputEnded();
        }
    }

    @Override
    public void readBody(boolean isOn) {
        read(isOn);
        // Waiting for the origin is not the client's slowness.
        if (state == State.BODY && !isOver()) {
            pace.reading(isOn, loop.nowMillis());
            if (isOn) {
                deadline.withinExchange(loop.timeouts.bodyIdleMillis());
            } else {
                deadline.atExchangeEnd();
            }
        }
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext context) {
        if (isOver() || !isWritable()) {
            return;
        }
        boolean wasStalled = isStalled;
        isStalled = false;
        if (exchange != null) {
            if (wasStalled && state == State.TUNNEL) {
                deadline.none();
            } else if (wasStalled) {
                deadline.atExchangeEnd();
            }
            exchange.clientWritable();
        } else if (wasStalled && state == State.HEAD) {
            deadline.within(loop.timeouts.keepAliveMillis());
            next();
        }
    }

    @Override
    public void stalled() {
        boolean isTaking = state == State.RESPONSE || state == State.TUNNEL;
        if (!isStalled && isTaking && !isOver()) {
            isStalled = true;
            deadline.waits();
            if (state == State.TUNNEL) {
                deadline.within(loop.timeouts.sendMillis());
            } else {
                deadline.withinExchange(loop.timeouts.sendMillis());
            }
        }
    }

    @Override
    void timedOut() {
        if (isOver()) {
            close();
            return;
        }
        switch (state) {
            case HEAD -> {
                if (isStalled) {
                    cut();
                } else if (!reader.isHolding()) {
                    close();
                } else {
                    reader.release();
                    refused(new Refusal(408, "request head did not arrive in time"));
                }
            }
            case BODY -> {
                if (isReading() && !deadline.isExchangeOver()) {
                    exchange.clientTooSlow();
                } else {
                    exchange.timedOut();
                }
            }
            case RESPONSE -> {
                if (isStalled && !deadline.isExchangeOver()) {
                    channelGone();
                    cut();
                } else {
                    exchange.timedOut();
                }
            }
            // The response may still wait for a client that reads slowly.
            case DROP -> linger();
            default -> close();
        }
    }

    @Override
    public void userEventTriggered(ChannelHandlerContext context, Object event) {
        loop.readClock();
        if (event == SslCloseCompletionEvent.SUCCESS) {
            tlsEnded();
        } else if (event == ChannelInputShutdownEvent.INSTANCE) {
            inputShut();
            inputEnded();
        } else {
            context.fireUserEventTriggered(event);
        }
    }

    /** The engine has read the client's close_notify, and sends nothing more either. */
    private void tlsEnded() {
        if (!isOver()) {
            channelGone();
            closeBehindSent();
        }
    }

    /** RFC 9112 §9.6: a client may close its half after its requests; the answers still go out. */
    private void inputEnded() {
        if (isOver()) {
            return;
        }
        if (state == State.TUNNEL && isHalfClosable()) {
            exchange.tunnelInputEnded();
        } else if (state == State.BODY || state == State.TUNNEL) {
            channelGone();
            close();
        } else if (!isWaiting()) {
            linger();
        }
    }

    private void channelGone() {
        if (exchange != null) {
            Exchange user = exchange;
            exchange = null;
            user.clientGone();
        }
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        super.channelInactive(context);
        reader.release();
        channelGone();
    }
}
