// Distinguishes HTTP/2 with prior knowledge from HTTP/1 by the first bytes of a connection without TLS.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.ByteToMessageDecoder;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** RFC 9113 §3.3; the upgrade from HTTP/1 was removed by that RFC. */
final class PrefaceChoice extends ByteToMessageDecoder {
    private static final byte[] PREFACE =
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".getBytes(StandardCharsets.US_ASCII);

    /** "PRI ", which no client of HTTP/1 sends. */
    private static final int METHOD_BYTES = 4;

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
        loop.wheel.remove(timer);
    }

    @Override
    protected void decode(ChannelHandlerContext context, ByteBuf in, List<Object> out) {
        int count = Math.min(in.readableBytes(), PREFACE.length);
        for (int i = 0; i < count; i++) {
            if (in.getByte(in.readerIndex() + i) != PREFACE[i]) {
                choose(context, i >= METHOD_BYTES || isNeither(in));
                return;
            }
        }
        if (count == PREFACE.length) {
            choose(context, true);
        }
    }

    /** An invalid preface goes to HTTP/2, too: its codec refuses it with GOAWAY (§3.4). */
    private void choose(ChannelHandlerContext context, boolean isHttp2) {
        Beginning.over(context);
        if (isHttp2) {
            Http2Clients.install(context.pipeline(), loop, "http");
        } else {
            context.pipeline().addLast(new ClientConnection(loop, false));
        }
        context.pipeline().remove(this);
    }

    /** Whether there is a first line without a version of HTTP, which cannot be meant as HTTP/1. */
    private static boolean isNeither(ByteBuf in) {
        int end = in.indexOf(in.readerIndex(), in.writerIndex(), (byte) '\n');
        return end > in.readerIndex() + 1
                && !in.toString(in.readerIndex(), end - in.readerIndex(), StandardCharsets.US_ASCII)
                .contains(" HTTP/");
    }
}
