// An HTTP/2 connection of a client as a whole: its count, its idle time, its end.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelDuplexHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.ChannelPromise;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.handler.codec.http2.DefaultHttp2LocalFlowController;
import io.netty.handler.codec.http2.Http2Exception;
import io.netty.util.ReferenceCountUtil;
import java.util.concurrent.TimeUnit;
import wirespeed.gateway.core.Meters;

/** Stands before the codec, so that any byte counts as life. */
final class Http2Connection extends ChannelDuplexHandler implements Drainable {
    /** What a client may send on a stream before it is read; the default of HTTP/2. */
    private static final int WINDOW_BYTES = 65_535;
    private static final int WINDOWS_MAX = 32;

    private final Loop loop;
    private final Http2Codec codec;
    private final Http2FrameWatch watch = Http2FrameWatch.ofClient();
    private final PeerCertificate certificate;
    private String address;
    private boolean isRefused;
    private final Timer timer = new Timer();
    private ChannelHandlerContext channel;
    private long readMillis;
    private boolean isClosing;
    /** The process stops, and a first request may be on its way. */
    private boolean isFirstAwaited;
    private boolean isParting;
    private boolean isInputShut;
    private long fullMillis;
    /** Requests whose bodies are not read now. */
    private int waiting;
    /** By how many windows of a stream the connection's own is larger than at first. */
    private int granted;
    /** For how many of them memory is reserved: a client may still use what it was granted. */
    private int reserved;
    private boolean hasWritten;

    Http2Connection(Loop loop, Http2Codec codec) {
        this.loop = loop;
        this.codec = codec;
        certificate = new PeerCertificate(loop.tls);
    }

    /** It has flooded: what it has asked for is not begun. */
    boolean isRefused() {
        return isRefused;
    }

    /** A stream of this connection sent data. */
    void sent(int bytes) {
        watch.sent(bytes);
    }

    /**
     * A stream's body is not read for a while. Its client may fill with it the window that all
     * streams share, which therefore becomes larger as long as there is memory: the others go on.
     */
    void bodyWaits() {
        waiting++;
        if (codec.connection().numActiveStreams() > 1) {
            while (granted < Math.min(waiting, WINDOWS_MAX) && isReserved()) {
                grant(1);
            }
        }
    }

    private boolean isReserved() {
        if (reserved > granted) {
            return true;
        }
        if (!loop.budget.reserve(WINDOW_BYTES)) {
            return false;
        }
        reserved++;
        return true;
    }

    private DefaultHttp2LocalFlowController flow() {
        return (DefaultHttp2LocalFlowController) codec.connection().local().flowController();
    }

    /**
     * The client learns of more when this part of its window was read. Bodies that wait may fill all but
     * one window of a stream: half of that one must do for the others, as it does for a single stream.
     */
    private void grant(int windows) {
        granted += windows;
        io.netty.handler.codec.http2.Http2Stream whole = codec.connection().connectionStream();
        try {
            flow().incrementWindowSize(whole, windows * WINDOW_BYTES);
            flow().windowUpdateRatio(whole, 1 - 0.5f / (granted + 1));
            codec.flushSoon();
        } catch (Http2Exception impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** It is read again, or over. */
    void bodyGoesOn() {
        waiting--;
        if (waiting == 0 && granted > 0) {
            grant(-granted);
        }
    }

    /** HTTP/2 takes no window back: what was granted is over when the client has used it. */
    private void release() {
        DefaultHttp2LocalFlowController flow = flow();
        io.netty.handler.codec.http2.Http2Stream whole = codec.connection().connectionStream();
        long open = flow.windowSize(whole) + (long) flow.unconsumedBytes(whole);
        long first = flow.initialWindowSize(whole) - (long) granted * WINDOW_BYTES;
        while (reserved > granted && open <= first + (reserved - 1L) * WINDOW_BYTES) {
            reserved--;
            loop.budget.add(-WINDOW_BYTES);
        }
    }

    @Override
    public void write(ChannelHandlerContext context, Object message, ChannelPromise promise) {
        hasWritten = true;
        context.write(message, promise);
    }

    /** The codec flushes after each read; encrypting nothing is not free. */
    @Override
    public void flush(ChannelHandlerContext context) {
        if (hasWritten) {
            hasWritten = false;
            context.flush();
        }
    }

    /** The description of the client's certificate for origins; null for nothing. */
    String certificate() {
        return certificate.of(channel.channel());
    }

    /** The client's. */
    String address() {
        if (address == null) {
            address = ProxyHeader.clientAddress(channel.channel());
        }
        return address;
    }

    private final class Timer extends Wheel.Entry {
        @Override
        void onTimeout(long nowMillis) {
            boolean isIdle = codec.connection().numActiveStreams() == 0
                    && nowMillis - readMillis >= loop.timeouts.keepAliveMillis();
            if (isIdle) {
                drain();
            } else {
                arm(nowMillis);
            }
        }
    }

    private void arm(long nowMillis) {
        loop.wheel.arm(timer, nowMillis + loop.timeouts.keepAliveMillis());
    }

    @Override
    public void handlerAdded(ChannelHandlerContext context) {
        channel = context;
        loop.readClock();
        readMillis = loop.nowMillis();
        loop.clients.add(this);
        loop.meters.add(Meters.Count.CONNECTIONS_ACCEPTED, 1);
        loop.meters.add(Meters.Count.CONNECTIONS_OPEN, 1);
        arm(readMillis);
        if (loop.isStopping()) {
            drain();
        }
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object bytes) {
        loop.readClock();
        readMillis = loop.nowMillis();
        if (isRefused) {
            ReferenceCountUtil.release(bytes);
            return;
        }
        try {
            watch.look((ByteBuf) bytes, readMillis);
        } catch (Http2Exception refused) {
            isRefused = true;
            ReferenceCountUtil.release(bytes);
            codec.onError(context.pipeline().context(codec), false, refused);
            return;
        }
        context.fireChannelRead(bytes);
        if (reserved > granted) {
            release();
        }
        if (isFirstAwaited && hasAsked()) {
            firstAwaited();
        }
    }

    /** GOAWAY with the last stream that will be answered; the codec closes after that one. */
    @Override
    public void drain() {
        if (isClosing || isFirstAwaited) {
            return;
        }
        if (loop.isStopping() && !hasAsked()) {
            isFirstAwaited = true;
            loop.executor.schedule(this::firstAwaited, FIRST_MILLIS, TimeUnit.MILLISECONDS);
            return;
        }
        isClosing = true;
        channel.channel().close();
    }

    /** The codec has said its last: what the client has not taken yet must not be taken back. */
    @Override
    public void close(ChannelHandlerContext context, ChannelPromise promise) {
        // What a fault or a flood ends must not go on with its requests.
        boolean isOrderly = !isRefused && codec.connection().numActiveStreams() == 0;
        if (isParting || !isOrderly || isInputShut || !context.channel().isActive()) {
            context.close(promise);
        } else {
            isParting = true;
            context.pipeline().addFirst(new Parting(loop, promise));
        }
    }

    @Override
    public void userEventTriggered(ChannelHandlerContext context, Object event) {
        boolean isEnd = event == ChannelInputShutdownEvent.INSTANCE;
        isInputShut |= isEnd;
        context.fireUserEventTriggered(event);
        if (isEnd) {
            codec.inputShut();
        }
    }

    private boolean hasAsked() {
        return codec.connection().remote().lastStreamCreated() > 0;
    }

    /** A request has come to a process that stops, or none has in time. */
    private void firstAwaited() {
        if (isFirstAwaited && !isClosing) {
            isFirstAwaited = false;
            isClosing = true;
            channel.channel().close();
        }
    }

    @Override
    public boolean relieve(long sinceMillis) {
        if (channel.channel().isWritable() || fullMillis > sinceMillis) {
            return false;
        }
        // Without the codec, which would wait for the streams.
        channel.channel().unsafe().close(channel.voidPromise());
        return true;
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext context) {
        fullMillis = loop.nowMillis();
        context.fireChannelWritabilityChanged();
    }

    @Override
    public boolean isWritten() {
        ChannelOutboundBuffer pending = channel.channel().unsafe().outboundBuffer();
        return !codec.isFlushDue() && !isFirstAwaited && !isParting && codec.connection().numActiveStreams() == 0
                && (pending == null || pending.totalPendingWriteBytes() == 0);
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        isFirstAwaited = false;
        isParting = false;
        loop.budget.add(-(long) reserved * WINDOW_BYTES);
        reserved = 0;
        granted = 0;
        loop.wheel.remove(timer);
        loop.clients.remove(this);
        loop.meters.add(Meters.Count.CONNECTIONS_OPEN, -1);
        context.fireChannelInactive();
    }
}
