// Tells HTTP/2 with prior knowledge from HTTP/1 by the first bytes of a connection without TLS.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.ByteToMessageDecoder;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** RFC 9113 §3.3; there is no upgrade from HTTP/1, which that RFC has removed. */
final class PrefaceChoice extends ByteToMessageDecoder {
    private static final byte[] PREFACE =
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".getBytes(StandardCharsets.US_ASCII);

    private final Loop loop;
    private final Timer timer = new Timer();
    private ChannelHandlerContext channel;

    PrefaceChoice(Loop loop) {
        this.loop = loop;
    }

    private final class Timer extends Wheel.Entry {
        @Override
        void onTimeout(long nowMillis) {
            channel.close();
        }
    }

    @Override
    public void handlerAdded(ChannelHandlerContext context) {
        channel = context;
        loop.readClock();
        loop.wheel.arm(timer, loop.nowMillis() + loop.timeouts.headMillis());
    }

    @Override
    protected void handlerRemoved0(ChannelHandlerContext context) {
        loop.wheel.disarm(timer);
    }

    @Override
    protected void decode(ChannelHandlerContext context, ByteBuf in, List<Object> out) {
        int count = Math.min(in.readableBytes(), PREFACE.length);
        for (int i = 0; i < count; i++) {
            if (in.getByte(in.readerIndex() + i) != PREFACE[i]) {
                context.pipeline().addLast(new ClientConnection(loop, false));
                context.pipeline().remove(this);
                return;
            }
        }
        if (count == PREFACE.length) {
            Http2Clients.install(context.pipeline(), loop, "http");
            context.pipeline().remove(this);
        }
    }
}
