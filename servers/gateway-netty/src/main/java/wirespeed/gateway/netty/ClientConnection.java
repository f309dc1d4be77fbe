// One HTTP/1 connection of a client: reads requests strictly, one at a time, and answers in order.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.channel.socket.DuplexChannel;
import wirespeed.gateway.core.BodyPace;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Forwarding;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.HeadCheck;
import wirespeed.gateway.core.HeadSink;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Limits;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.core.StatusLine;

/** The only handler of the connection (behind TLS, if there is any). */
final class ClientConnection extends ChannelInboundHandlerAdapter
        implements Client, BodyReader.Sink, Drainable {
    private enum State {
        /** Waits for a request head, or has a part of one. */
        HEAD,
        /** Reads the request body. */
        BODY,
        /** The request is complete, its response is not; what comes now has to wait. */
        RESPONSE,
        /** The response is complete, the rest of the request body is dropped. */
        DROP,
        TUNNEL,
        /** Answered for the last time; reads until the client closes, so that it gets the answer. */
        LINGER,
        CLOSED
    }

    private static final int DROPPED_BYTES_MAX = 64 * 1024;
    private static final int LINGER_MILLIS = 2000;
    private static final byte[] CONTINUE = "HTTP/1.1 100 Continue\r\n\r\n".getBytes(
            java.nio.charset.StandardCharsets.US_ASCII);

    private final Loop loop;
    private final boolean isTls;
    private final OutBuffer out = new OutBuffer();
    private final BodyReader reader = new BodyReader();
    private final Timer timer = new Timer();
    private ChannelHandlerContext channel;
    private String address;
    private String certificate;
    private boolean hasCertificate;
    private State state = State.HEAD;
    private Exchange exchange;
    private ByteBuf held;
    private int scanned;
    private long dropped;
    private long waitingMillis;
    private BodyPace pace;
    private boolean isContinued;
    private boolean isStalled;
    private boolean isProcessing;
    private boolean isInputShut;
    private boolean isShut;
    private boolean keepAlive;
    private boolean saidClose;
    private boolean isHeadBegun;
    private long exchangeEndMillis;
    private boolean isChunked;

    ClientConnection(Loop loop, boolean isTls) {
        this.loop = loop;
        this.isTls = isTls;
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
        loop.readClock();
        out.attach(context);
        loop.clients.add(this);
        loop.meters.add(Meters.Count.CONNECTIONS_ACCEPTED, 1);
        loop.meters.add(Meters.Count.CONNECTIONS_OPEN, 1);
        arm(loop.timeouts.keepAliveMillis());
    }

    private void arm(int millis) {
        loop.wheel.arm(timer, loop.nowMillis() + millis);
    }

    /** As {@link #arm}; the whole exchange has a bound, however often its parts get new time. */
    private void armExchange(int millis) {
        loop.wheel.arm(timer, Math.min(loop.nowMillis() + millis, exchangeEndMillis));
    }

    private void armEnd() {
        loop.wheel.arm(timer, exchangeEndMillis);
    }

    @Override
    public void exchangeWithin(int millis) {
        exchangeEndMillis += millis - loop.timeouts.exchangeMillis();
        boolean isReading = state == State.BODY && channel.channel().config().isAutoRead();
        if (isReading) {
            armExchange(loop.timeouts.bodyIdleMillis());
        } else {
            armEnd();
        }
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
        ByteBuf in = (ByteBuf) message;
        loop.readClock();
        if (held != null) {
            held.writeBytes(in);
            in.release();
            in = held;
            held = null;
        }
        process(in);
    }

    /** Takes the buffer over and reads as far as the state allows. */
    private void process(ByteBuf in) {
        isProcessing = true;
        try {
            while (in.isReadable() && state != State.CLOSED && held == null) {
                step(in);
            }
        } catch (Refusal refusal) {
            refused(refusal);
        } finally {
            isProcessing = false;
            if (in != held) {
                in.release();
            }
        }
    }

    private void step(ByteBuf in) {
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
                if (reader.isDone()) {
                    awaitHead();
                }
            }
            case RESPONSE -> {
                hold(in);
                channel.channel().config().setAutoRead(false);
            }
            case TUNNEL -> exchange.tunnel(in.readRetainedSlice(in.readableBytes()));
            default -> in.skipBytes(in.readableBytes());
        }
    }

    /** A client that asks and asks and takes no answer gets no other one meanwhile. */
    private void awaitTaker(ByteBuf in) {
        hold(in);
        channel.channel().config().setAutoRead(false);
        isStalled = true;
        waitingMillis = loop.nowMillis();
        arm(loop.timeouts.sendMillis());
    }

    private void readBody(ByteBuf in) {
        armExchange(loop.timeouts.bodyIdleMillis());
        boolean isTooSlow = pace.isTooSlow(in.readableBytes(), loop.nowMillis());
        reader.read(in, this);
        if (state != State.BODY) {
            // A piece of it was refused, and the rest of it is of no interest.
            return;
        }
        if (reader.isDone()) {
            bodyDone();
        } else if (isTooSlow) {
            exchange.clientTooSlow();
        }
    }

    private void hold(ByteBuf in) {
        // A buffer of which slices are in use elsewhere must not grow.
        held = in.refCnt() == 1 ? in : in.copy();
    }

    private void head(ByteBuf in) {
        Limits limits = loop.gateway.snapshot().limits();
        if (scanned < 2 && startsWithEmptyLine(in)) {
            headBegins();
            in.skipBytes(2);
            scanned = 0;
            return;
        }
        int length = Math.min(in.readableBytes(), limits.headBytesMax() + 1);
        byte[] bytes = loop.scratch(length);
        in.getBytes(in.readerIndex(), bytes, 0, length);
        int end = HeadCheck.end(bytes, 0, length, scanned, limits);
        if (end < 0) {
            headBegins();
            scanned = length;
            hold(in);
            return;
        }
        scanned = 0;
        in.skipBytes(end);
        begin(HeadCheck.request(bytes, 0, end, limits));
    }

    /** From its first byte on, and an empty line before it does not make the time begin again. */
    private void headBegins() {
        if (!isHeadBegun) {
            isHeadBegun = true;
            waitingMillis = loop.nowMillis();
            arm(loop.timeouts.headMillis());
        }
    }

    /** RFC 9112 §2.2: some clients send an empty line after a body. */
    private static boolean startsWithEmptyLine(ByteBuf in) {
        return in.readableBytes() >= 2 && in.getByte(in.readerIndex()) == '\r'
                && in.getByte(in.readerIndex() + 1) == '\n';
    }

    private void begin(Request request) {
        request.clientAddress(address());
        if (isTls) {
            request.scheme("https");
            request.clientCertificate(certificate());
        }
        keepAlive = request.keepAlive();
        saidClose = !keepAlive;
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
        exchangeEndMillis = loop.nowMillis() + loop.timeouts.exchangeMillis();
        armExchange(hasBody ? loop.timeouts.bodyIdleMillis() : loop.timeouts.exchangeMillis());
        exchange = new Exchange(loop, this, request);
        exchange.start();
    }

    private String certificate() {
        if (!hasCertificate) {
            hasCertificate = true;
            certificate = loop.tls.clientCertificate(channel.channel());
        }
        return certificate;
    }

    private String address() {
        if (address == null) {
            address = ProxyHeader.clientAddress(channel.channel());
        }
        return address;
    }

    private void bodyDone() {
        state = State.RESPONSE;
        armEnd();
        exchange.requestEnd(reader.trailers());
    }

    private void awaitHead() {
        state = State.HEAD;
        isStalled = false;
        isHeadBegun = false;
        exchange = null;
        waitingMillis = loop.nowMillis();
        arm(loop.timeouts.keepAliveMillis());
        if (isInputShut) {
            linger();
        }
    }

    @Override
    public void body(ByteBuf slice) {
        if (state == State.BODY) {
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

    /** A message that is no request; nothing of it reaches filters or origin. */
    private void refused(Refusal refusal) {
        if (state == State.DROP || state == State.LINGER) {
            linger();
            return;
        }
        if (exchange != null && !exchange.isOver()) {
            // The head was fine and the body is not.
            exchange.abandonOrigin();
            exchange.badBody(refusal);
            out.flush();
            return;
        }
        loop.meters.refused(Category.CLIENT_BAD, refusal.status());
        String text = refusal.status() + " " + StatusLine.reason(refusal.status()) + ": "
                + refusal.getMessage() + "\n";
        Response response = Response.of(refusal.status(), "text/plain; charset=utf-8", text);
        Request nobody = new Request("GET", "/", 1, new wirespeed.gateway.core.Headers());
        Context context = new Context(loop.gateway.snapshot(), nobody, 0);
        context.response(response);
        HeadSink sink = loop.sink;
        sink.clear();
        Forwarding.writeResponse(context, response.framing(), false, loop.date(), sink);
        out.head(sink);
        out.body(Unpooled.wrappedBuffer(response.body()));
        linger();
    }

    /**
     * RFC 9112 §9.6: a client that said close sends nothing after its request. When all of it was
     * read and all of the answer is with the socket, no byte can turn this close into a reset.
     */
    private boolean mayCloseAtOnce() {
        if (isTls || state != State.RESPONSE || !saidClose || held != null) {
            return false;
        }
        out.flush();
        return out.isAllSent();
    }

    private void closeAtOnce() {
        exchange = null;
        close();
    }

    /** Ends the connection in a way that lets the client read the last answer. */
    private void linger() {
        if (state == State.CLOSED || state == State.LINGER) {
            return;
        }
        state = State.LINGER;
        exchange = null;
        keepAlive = false;
        waitingMillis = loop.nowMillis();
        out.flush();
        arm(loop.timeouts.sendMillis());
        if (!channel.channel().isOpen()) {
            close();
            return;
        }
        channel.channel().config().setAutoRead(true);
        // Shutting down drops what is not written yet, so it waits for the last byte.
        channel.writeAndFlush(Unpooled.EMPTY_BUFFER).addListener(written -> shutdown());
    }

    private void shutdown() {
        if (state == State.CLOSED) {
            return;
        }
        loop.readClock();
        if (isTls || isInputShut) {
            close();
            return;
        }
        arm(LINGER_MILLIS);
        isShut = true;
        ((DuplexChannel) channel.channel()).shutdownOutput();
    }

    private void close() {
        if (state != State.CLOSED) {
            state = State.CLOSED;
            loop.wheel.disarm(timer);
            out.flush();
            channel.close();
        }
    }

    /** The process stops: unused connections go now, the others after their response. */
    @Override
    public void drain() {
        keepAlive = false;
        if (state == State.HEAD && held == null) {
            linger();
        }
    }

    @Override
    public boolean isWritten() {
        ChannelOutboundBuffer pending = channel.channel().unsafe().outboundBuffer();
        return pending == null || pending.totalPendingWriteBytes() == 0;
    }

    @Override
    public boolean relieve(long sinceMillis) {
        boolean holds = switch (state) {
            case HEAD -> held != null || !isWritable();
            case RESPONSE, TUNNEL -> isStalled;
            case LINGER -> !isWritten();
            default -> false;
        };
        if (!holds || waitingMillis > sinceMillis) {
            return false;
        }
        channelGone();
        cut();
        return true;
    }

    /**
     * RFC 9110 §10.1.1: a client that was never told to go on may send its body or the next request
     * now, and nobody could tell which.
     */
    private boolean isBodyInDoubt(Exchange user) {
        return state == State.BODY && !isContinued && user.context.request().expectsContinue();
    }

    @Override
    public void sendHead(Exchange user, Framing framing) {
        boolean isLast = !keepAlive || user.mustClose() || isInputShut || isBodyInDoubt(user)
                || framing.kind() == Framing.Kind.UNTIL_CLOSE;
        keepAlive = !isLast;
        isChunked = framing.isChunked();
        loop.sink.clear();
        Framing written = framing.kind() == Framing.Kind.UNTIL_CLOSE ? Framing.NONE : framing;
        Forwarding.writeResponse(user.context, written, keepAlive, loop.date(), loop.sink);
        out.head(loop.sink);
    }

    @Override
    public Framing clientFraming(Framing fromOrigin) {
        boolean needsLength = fromOrigin.isChunked()
                || fromOrigin.kind() == Framing.Kind.UNTIL_CLOSE;
        if (!needsLength) {
            return fromOrigin;
        }
        boolean isModern = exchange == null || exchange.context.request().minor() == 1;
        return isModern ? Framing.CHUNKED : Framing.UNTIL_CLOSE;
    }

    @Override
    public void sendBody(ByteBuf slice) {
        if (state == State.CLOSED) {
            slice.release();
        } else if (isChunked) {
            out.chunk(slice);
        } else {
            out.body(slice);
        }
    }

    @Override
    public void sendEnd(Headers trailers) {
        if (isChunked) {
            out.lastChunk(trailers, loop.sink);
            isChunked = false;
        }
        if (state == State.CLOSED) {
            return;
        }
        if (!keepAlive) {
            if (mayCloseAtOnce()) {
                closeAtOnce();
            } else {
                linger();
            }
            return;
        }
        if (state == State.BODY) {
            state = State.DROP;
            dropped = 0;
            readBody(true);
            return;
        }
        awaitHead();
        if (!isProcessing) {
            next();
        }
    }

    /** Goes on with what was received while a response was on its way. */
    private void next() {
        if (!channel.channel().config().isAutoRead()) {
            channel.channel().config().setAutoRead(true);
        }
        if (held != null && state == State.HEAD) {
            ByteBuf in = held;
            held = null;
            process(in);
            out.flush();
            if (exchange != null) {
                exchange.flushOrigin();
            }
        }
    }

    @Override
    public void cut() {
        // A reset and not a close: a body that ends with the connection must not look complete.
        if (!isTls) {
            channel.channel().config().setOption(io.netty.channel.ChannelOption.SO_LINGER, 0);
        }
        close();
    }

    @Override
    public void sendContinue() {
        if (exchange.context.request().minor() == 1 && state == State.BODY) {
            isContinued = true;
            loop.sink.clear();
            out.head(loop.sink.put(CONTINUE));
        }
    }

    @Override
    public void sendInterim(Response response) {
        if (exchange.context.request().minor() == 1
                && (state == State.BODY || state == State.RESPONSE)) {
            loop.sink.clear();
            Forwarding.writeInterim(response, loop.sink);
            out.head(loop.sink);
        }
    }

    @Override
    public void sendSwitch(Response response, String protocol) {
        loop.sink.clear();
        Forwarding.writeSwitch(response, protocol, loop.sink);
        out.head(loop.sink);
        state = State.TUNNEL;
        keepAlive = false;
        isChunked = false;
        loop.wheel.disarm(timer);
        if (held != null) {
            ByteBuf early = held;
            held = null;
            exchange.tunnel(early);
        }
        channel.channel().config().setAutoRead(true);
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

    @Override
    public void readBody(boolean isOn) {
        if (channel.channel().config().isAutoRead() != isOn) {
            channel.channel().config().setAutoRead(isOn);
        }
        // Waiting for the origin is not the client's slowness.
        if (state == State.BODY) {
            pace.reading(isOn, loop.nowMillis());
            if (isOn) {
                armExchange(loop.timeouts.bodyIdleMillis());
            } else {
                armEnd();
            }
        }
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext context) {
        if (!isWritable()) {
            return;
        }
        boolean wasStalled = isStalled;
        isStalled = false;
        if (exchange != null) {
            if (wasStalled && state == State.TUNNEL) {
                loop.wheel.disarm(timer);
            } else if (wasStalled) {
                armEnd();
            }
            exchange.clientWritable();
        } else if (wasStalled && state == State.HEAD) {
            arm(loop.timeouts.keepAliveMillis());
            next();
        }
    }

    @Override
    public void stalled() {
        if (!isStalled && (state == State.RESPONSE || state == State.TUNNEL)) {
            isStalled = true;
            waitingMillis = loop.nowMillis();
            if (state == State.TUNNEL) {
                arm(loop.timeouts.sendMillis());
            } else {
                armExchange(loop.timeouts.sendMillis());
            }
        }
    }

    private void timedOut() {
        switch (state) {
            case HEAD -> {
                if (isStalled) {
                    cut();
                } else if (held == null) {
                    close();
                } else {
                    releaseHeld();
                    refused(new Refusal(408, "request head did not arrive in time"));
                }
            }
            case BODY -> {
                if (channel.channel().config().isAutoRead() && !isExchangeOver()) {
                    exchange.clientTooSlow();
                } else {
                    exchange.timedOut();
                }
            }
            case RESPONSE -> {
                if (isStalled && !isExchangeOver()) {
                    channelGone();
                    cut();
                } else {
                    exchange.timedOut();
                }
            }
            default -> close();
        }
    }

    private boolean isExchangeOver() {
        return loop.nowMillis() >= exchangeEndMillis;
    }

    private void releaseHeld() {
        if (held != null) {
            held.release();
            held = null;
        }
    }

    @Override
    public void userEventTriggered(ChannelHandlerContext context, Object event) {
        loop.readClock();
        if (event != ChannelInputShutdownEvent.INSTANCE) {
            context.fireUserEventTriggered(event);
            return;
        }
        // RFC 9112 §9.6: a client may close its half after the request; the answer still goes out.
        isInputShut = true;
        if (state == State.BODY || state == State.TUNNEL) {
            channelGone();
            close();
        } else if (state == State.HEAD || state == State.DROP) {
            close();
        } else if (state == State.LINGER && isShut) {
            close();
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
        loop.readClock();
        state = State.CLOSED;
        loop.wheel.disarm(timer);
        loop.clients.remove(this);
        loop.meters.add(Meters.Count.CONNECTIONS_OPEN, -1);
        out.discard();
        releaseHeld();
        channelGone();
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        // Resets end in channelInactive; nothing else is expected, and nothing of it is hidden.
        if (!(cause instanceof java.io.IOException)
                && !(cause instanceof io.netty.handler.codec.DecoderException)) {
            Faults.log("a client connection", cause);
        }
        close();
    }
}
