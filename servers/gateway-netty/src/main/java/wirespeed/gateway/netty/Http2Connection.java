// What belongs to an HTTP/2 connection as a whole: its count, its idle time, its end.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelDuplexHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.ChannelPromise;
import io.netty.handler.codec.http2.Http2Exception;
import io.netty.handler.codec.http2.Http2FrameCodec;
import io.netty.util.ReferenceCountUtil;
import wirespeed.gateway.core.Meters;

/** Stands before the codec, so that any byte counts as life. */
final class Http2Connection extends ChannelDuplexHandler implements Drainable {
    private final Loop loop;
    private final Http2FrameCodec codec;
    private final Http2FrameWatch watch = Http2FrameWatch.ofClient();
    private boolean isRefused;
    private final PeerCertificate certificate;
    private final Timer timer = new Timer();
    private ChannelHandlerContext channel;
    private long readMillis;
    private boolean isClosing;
    private long fullMillis;
    private final Runnable flush = this::flushNow;
    private boolean isFlushDue;
    private boolean hasWritten;

    Http2Connection(Loop loop, Http2FrameCodec codec) {
        this.loop = loop;
        this.codec = codec;
        certificate = new PeerCertificate(loop.tls);
    }

    /** A stream of this connection sent data. */
    void sent(int bytes) {
        watch.sent(bytes);
    }

    /**
     * Hands on what streams have written once the loop has read all that it found: answers that came
     * together leave together.
     */
    void flushSoon() {
        if (!isFlushDue) {
            isFlushDue = true;
            loop.executor.execute(flush);
        }
    }

    private void flushNow() {
        isFlushDue = false;
        channel.channel().flush();
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

    /** What origins are told about the client's certificate; null for nothing. */
    String certificate() {
        return certificate.of(channel.channel());
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
    }

    /** GOAWAY with the last stream that will be answered; the codec closes after that one. */
    @Override
    public void drain() {
        if (!isClosing) {
            isClosing = true;
            channel.channel().close();
        }
    }

    @Override
    public boolean relieve(long sinceMillis) {
        if (channel.channel().isWritable() || fullMillis > sinceMillis) {
            return false;
        }
        channel.channel().unsafe().closeForcibly();
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
        return !isFlushDue && codec.connection().numActiveStreams() == 0
                && (pending == null || pending.totalPendingWriteBytes() == 0);
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        loop.wheel.disarm(timer);
        loop.clients.remove(this);
        loop.meters.add(Meters.Count.CONNECTIONS_OPEN, -1);
        context.fireChannelInactive();
    }
}
