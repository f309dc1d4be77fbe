/** One connection: parses a request, waits on the wheel, sends the response; then the next. */
package wirespeed.stuborigin;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** The only handler of a channel; one exchange at a time, pipelined requests wait as bytes. */
final class Connection extends ChannelInboundHandlerAdapter {
    private static final int DRIP_PIECES = 16;
    private static final long DRIP_PAUSE_NS = 20_000_000;
    /** Reading pauses when so many bytes of further requests wait. */
    private static final int PENDING_BYTES_MAX = 64 * 1024;
    private static final byte[] NONE = {};
    private static final ByteBuf CONTINUE = Unpooled.unreleasableBuffer(Unpooled.directBuffer()
            .writeBytes("HTTP/1.1 100 Continue\r\n\r\n".getBytes(StandardCharsets.US_ASCII)));

    private enum State { READING, WAITING, SENDING, ENDED }

    private final Loop loop;
    private final RequestReader request = new RequestReader();
    private final Wheel.Entry timer = new Wheel.Entry() {
        @Override
        void due(long nowNs) {
            if (state == State.WAITING) {
                respond(nowNs);
            } else if (state == State.SENDING) {
                drip();
            }
        }
    };
    private ChannelHandlerContext context;
    private State state = State.READING;
    private byte[] pending = NONE;
    private Fault fault = Fault.NONE;
    private ByteBuf dripping;
    private int dripBytes;
    private long number;
    private long requestEndNs;
    private boolean isKept;
    private boolean hasInputEnded;
    private boolean isStalled;
    private boolean isConsuming;

    Connection(Loop loop) {
        this.loop = loop;
    }

    @Override
    public void channelActive(ChannelHandlerContext ctx) {
        context = ctx;
        number = loop.add(this);
    }

    @Override
    public void channelInactive(ChannelHandlerContext ctx) {
        state = State.ENDED;
        loop.cancel(timer);
        loop.remove(this);
        if (dripping != null) {
            dripping.release();
            dripping = null;
        }
    }

    @Override
    public void channelRead(ChannelHandlerContext ctx, Object message) throws IOException {
        ByteBuf received = (ByteBuf) message;
        int kept = pending.length;
        int end = kept + received.readableBytes();
        byte[] bytes = loop.scratch(end);
        System.arraycopy(pending, 0, bytes, 0, kept);
        received.getBytes(received.readerIndex(), bytes, kept, end - kept);
        received.release();
        pending = NONE;
        if (loop.recorder != null) {
            loop.recorder.received(number, bytes, kept, end);
        }
        consume(bytes, end);
    }

    @Override
    public void userEventTriggered(ChannelHandlerContext ctx, Object event) {
        if (event instanceof ChannelInputShutdownEvent) {
            hasInputEnded = true;
            closeIfOver();
            if (isStalled) {
                ctx.close();
            }
        }
    }

    /** A reset by a client is normal; other errors are printed. */
    @Override
    public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
        if (!(cause instanceof IOException)) {
            System.err.println("stub-origin: connection " + number + " is closed after " + cause);
        }
        ctx.close();
    }

    void closeIfIdle() {
        if (isStalled) {
            context.close();
        } else if (pending.length == 0) {
            closeIfOver();
        }
    }

    void cut() {
        context.close();
    }

    private void consume(byte[] bytes, int end) {
        int at = 0;
        isConsuming = true;
        while (state == State.READING && at < end) {
            RequestReader.Outcome outcome = request.read(bytes, at, end);
            at = request.at;
            if (outcome == RequestReader.Outcome.INCOMPLETE) {
                break;
            }
            switch (outcome) {
                case CONTINUE_EXPECTED -> context.writeAndFlush(CONTINUE.duplicate());
                case MALFORMED -> last(loop.responses.malformed(context.alloc()));
                default -> begin();
            }
        }
        isConsuming = false;
        pending = state != State.ENDED && at < end ? Arrays.copyOfRange(bytes, at, end) : NONE;
        autoRead(state == State.READING || pending.length < PENDING_BYTES_MAX);
        if (hasInputEnded) {
            closeIfOver();
        }
    }

    private void begin() {
        requestEndNs = System.nanoTime();
        Settings settings = loop.settings;
        long delayNs;
        try {
            fault = request.fault.isEmpty() ? settings.faults().draw(loop.random)
                    : Fault.named(request.fault);
            delayNs = request.latency.isEmpty()
                    ? settings.distribution().draw(settings.latencyNs(), loop.random)
                    : Units.nanoseconds(request.latency, Settings.LATENCY_NS_MAX);
        } catch (BadUsage unknown) {
            last(loop.responses.malformed(context.alloc()));
            return;
        }
        state = State.WAITING;
        if (delayNs == 0) {
            respond(requestEndNs);
        } else {
            loop.after(delayNs, timer);
        }
    }

    private void respond(long nowNs) {
        loop.answered(nowNs - requestEndNs);
        isKept = request.isKeepAlive && !loop.isStopping;
        ByteBuf whole = loop.responses.compose(context.alloc(), request, number, fault, isKept);
        if (fault == Fault.DRIP) {
            state = State.SENDING;
            dripping = whole;
            dripBytes = Math.max(1, whole.readableBytes() / DRIP_PIECES);
            drip();
            return;
        }
        int cut = fault.cut(loop.responses.headBytes, whole.readableBytes());
        whole.writerIndex(whole.readerIndex() + cut);
        if (fault.isReset()) {
            context.channel().config().setOption(ChannelOption.SO_LINGER, 0);
            last(whole);
        } else if (fault.isStall()) {
            state = State.ENDED;
            isStalled = true;
            context.writeAndFlush(whole, context.voidPromise());
        } else if (fault.isClose() || !isKept) {
            last(whole);
        } else {
            context.writeAndFlush(whole, context.voidPromise());
            next();
        }
    }

    private void drip() {
        if (dripping.readableBytes() > dripBytes) {
            context.writeAndFlush(dripping.readRetainedSlice(dripBytes), context.voidPromise());
            loop.after(DRIP_PAUSE_NS, timer);
            return;
        }
        ByteBuf rest = dripping;
        dripping = null;
        if (isKept) {
            context.writeAndFlush(rest, context.voidPromise());
            next();
        } else {
            last(rest);
        }
    }

    private void last(ByteBuf bytes) {
        state = State.ENDED;
        context.writeAndFlush(bytes).addListener(ChannelFutureListener.CLOSE);
    }

    /** The exchange is over; waiting bytes are read. */
    private void next() {
        if (pending.length == 0) {
            state = State.READING;
            if (!isConsuming) {
                closeIfOver();
            }
            return;
        }
        // Not within the call that sent the response: a long pipeline would grow the stack. Until
        // then the state is not READING, so bytes that arrive in the meantime are queued.
        loop.executor.execute(() -> {
            if (state != State.ENDED) {
                byte[] waiting = pending;
                pending = NONE;
                state = State.READING;
                consume(waiting, waiting.length);
            }
        });
    }

    private void closeIfOver() {
        if (state == State.READING && (hasInputEnded || loop.isStopping)) {
            // Earlier bytes may still be in flight.
            last(Unpooled.EMPTY_BUFFER);
        }
    }

    private void autoRead(boolean isOn) {
        if (context.channel().config().isAutoRead() != isOn) {
            context.channel().config().setAutoRead(isOn);
        }
    }
}
