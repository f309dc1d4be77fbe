// The end of a connection whose client may still read and go on sending.
package wirespeed.gateway.netty;

import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelPromise;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.channel.socket.DuplexChannel;
import io.netty.handler.ssl.SslHandler;
import io.netty.util.ReferenceCountUtil;

/**
 * Stands before everything else, TLS included. Closing at once would turn what the client sends into a
 * reset, which takes back what is still with the socket: so this half is shut alone, and what comes is
 * dropped until the client shuts its own, or sends nothing for a while, or goes on for too long.
 */
final class Parting extends ChannelInboundHandlerAdapter {
    private static final int IDLE_MILLIS = 2000;
    private static final int MILLIS_MAX = 10_000;

    private final Loop loop;
    private final ChannelPromise closed;
    private final Timer timer = new Timer();
    private ChannelHandlerContext channel;
    private boolean isShut;
    private boolean isEnded;
    private long untilMillis;

    Parting(Loop loop, ChannelPromise closed) {
        this.loop = loop;
        this.closed = closed;
    }

    private final class Timer extends Wheel.Entry {
        @Override
        void onTimeout(long nowMillis) {
            end();
        }
    }

    /** Begins with what is written and not sent yet. */
    @Override
    public void handlerAdded(ChannelHandlerContext context) {
        channel = context;
        loop.readClock();
        context.channel().config().setAutoRead(true);
        loop.wheel.arm(timer, loop.nowMillis() + loop.timeouts.sendMillis());
        SslHandler tls = context.pipeline().get(SslHandler.class);
        if (tls == null) {
            context.writeAndFlush(Unpooled.EMPTY_BUFFER).addListener(this::written);
        } else {
            tls.closeOutbound().addListener(said -> context.writeAndFlush(Unpooled.EMPTY_BUFFER)
                    .addListener(this::written));
        }
    }

    private void written(io.netty.util.concurrent.Future<? super Void> result) {
        if (!channel.channel().isActive()) {
            end();
            return;
        }
        loop.readClock();
        isShut = true;
        untilMillis = loop.nowMillis() + MILLIS_MAX;
        loop.wheel.arm(timer, loop.nowMillis() + IDLE_MILLIS);
        ChannelFuture shut = ((DuplexChannel) channel.channel()).shutdownOutput();
        shut.addListener(done -> {
            if (!done.isSuccess()) {
                end();
            }
        });
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object bytes) {
        ReferenceCountUtil.release(bytes);
        if (isShut) {
            loop.readClock();
            loop.wheel.arm(timer, Math.min(untilMillis, loop.nowMillis() + IDLE_MILLIS));
        }
    }

    @Override
    public void userEventTriggered(ChannelHandlerContext context, Object event) {
        if (event == ChannelInputShutdownEvent.INSTANCE) {
            end();
        }
        context.fireUserEventTriggered(event);
    }

    @Override
    public void handlerRemoved(ChannelHandlerContext context) {
        loop.wheel.remove(timer);
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        isEnded = true;
        closed.trySuccess();
        context.fireChannelInactive();
    }

    private void end() {
        loop.wheel.remove(timer);
        if (!isEnded) {
            isEnded = true;
            // From here it passes no other handler.
            channel.close(closed);
        }
    }
}
