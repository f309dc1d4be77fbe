// One HTTP/2 connection to an address, whose streams serve many exchanges at a time.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.handler.codec.http2.DefaultHttp2LocalFlowController;
import io.netty.handler.codec.http2.Http2Exception;
import io.netty.handler.codec.http2.Http2Stream;
import io.netty.util.ReferenceCountUtil;
import java.util.concurrent.ThreadLocalRandom;

/** Stands behind the codec; the pool asks it for streams as long as it has room. */
final class Http2Origin extends ChannelInboundHandlerAdapter {
    private static final int STREAMS_MAX = 100;

    private final Pool pool;
    private final Loop loop;
    /** Counted by the pool in place of this one. */
    private final OriginConnection place;
    private final Channel channel;
    private final Http2Origins codec;
    private final Timer timer = new Timer();
    private final long retireMillis;
    private int streams;
    private int begun;
    private boolean isRetired;

    private Http2Origin(Pool pool, Loop loop, OriginConnection place, Channel channel,
            Http2Origins codec) {
        this.pool = pool;
        this.loop = loop;
        this.place = place;
        this.channel = channel;
        this.codec = codec;
        long age = pool.settings().connectionAgeMillis();
        retireMillis = loop.nowMillis() + age * 9 / 10
                + ThreadLocalRandom.current().nextLong(age / 5 + 1);
    }

    /** Stands before the codec: who floods has no more streams. */
    private final class Watch extends ChannelInboundHandlerAdapter {
        private final Http2FrameWatch frames = Http2FrameWatch.ofOrigin();

        @Override
        public void channelRead(ChannelHandlerContext context, Object bytes) {
            try {
                loop.readClock();
                frames.look((ByteBuf) bytes, loop.nowMillis());
            } catch (Http2Exception flood) {
                ReferenceCountUtil.release(bytes);
                isRetired = true;
                // Without a GOAWAY, which would wait for streams that the origin keeps open.
                context.channel().unsafe().close(context.voidPromise());
                return;
            }
            context.fireChannelRead(bytes);
        }
    }

    /** An unused connection ends after a while. */
    private final class Timer extends Wheel.Entry {
        @Override
        void onTimeout(long nowMillis) {
            if (streams == 0) {
                channel.close();
            }
        }
    }

    /** Makes an HTTP/2 connection of one that is established; {@code place} leaves its pipeline. */
    static Http2Origin install(Channel channel, Pool pool, Loop loop, OriginConnection place) {
        Http2Origins codec = Http2Origins.of(loop);
        Http2Origin connection = new Http2Origin(pool, loop, place, channel, codec);
        channel.pipeline().remove(place);
        channel.pipeline().addLast(connection.new Watch(), codec, connection);
        codec.refused(connection::retire);
        connection.widen();
        return connection;
    }

    /** A client that does not read its stream must not hold up those of the others. */
    private void widen() {
        try {
            DefaultHttp2LocalFlowController flow =
                    (DefaultHttp2LocalFlowController) codec.connection().local().flowController();
            Http2Stream whole = codec.connection().connectionStream();
            flow.incrementWindowSize(whole, STREAMS_MAX * Http2Origins.STREAM_WINDOW_BYTES);
            // The origin learns of more while all streams but one hold what they may.
            flow.windowUpdateRatio(whole, 1 - 0.5f / STREAMS_MAX);
        } catch (Http2Exception impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** Whether one more exchange may use it. */
    boolean hasRoom() {
        return !isRetired && channel.isActive() && streams < STREAMS_MAX
                && codec.connection().local().canOpenStream()
                && !codec.connection().goAwayReceived()
                && begun < pool.settings().connectionRequestsMax()
                && loop.nowMillis() < retireMillis && leadsThere();
    }

    private boolean leadsThere() {
        return channel.remoteAddress() instanceof java.net.InetSocketAddress remote
                && pool.leadsTo(remote.getAddress());
    }

    /** Gives the exchange a stream of its own. */
    void open(Attempt user) {
        streams++;
        begun++;
        loop.wheel.disarm(timer);
        Http2OriginStream stream = new Http2OriginStream(pool, loop, this, codec, begun > 1);
        user.connected(stream);
        stream.flush();
    }

    long connectNanos() {
        return place.connectNanos();
    }

    /** A stream is over, in whatever way. */
    void streamEnded() {
        streams--;
        if (streams > 0) {
            pool.hasRoom(this);
        } else if (isRetired || loop.nowMillis() >= retireMillis) {
            channel.close();
        } else {
            loop.wheel.arm(timer, loop.nowMillis() + loop.timeouts.poolIdleMillis());
            pool.hasRoom(this);
        }
    }

    /** No exchange is to begin on it any more; exchanges under way go on. */
    void retire() {
        isRetired = true;
        if (streams == 0) {
            channel.close();
        }
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        loop.readClock();
        isRetired = true;
        loop.wheel.disarm(timer);
        pool.closed(this, place);
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        // The codec informs the streams; what is left over is the end of the connection.
        context.close();
    }
}
