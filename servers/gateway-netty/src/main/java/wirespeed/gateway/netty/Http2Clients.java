// HTTP/2 from clients: frames in, exchanges on the same filters and origins.
package wirespeed.gateway.netty;

import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelPipeline;
import io.netty.handler.codec.http2.Http2Exception;
import io.netty.handler.codec.http2.Http2FrameCodec;
import io.netty.handler.codec.http2.Http2FrameCodecBuilder;
import io.netty.handler.codec.http2.Http2MultiplexHandler;
import io.netty.handler.codec.http2.Http2Settings;
import wirespeed.gateway.core.Limits;

/** Bounds follow the known attacks: streams, header lists, resets and settings are limited. */
final class Http2Clients {
    private static final int STREAMS_MAX = 100;
    private static final int RESETS_MAX = 200;
    private static final int RESET_WINDOW_SECONDS = 30;

    private Http2Clients() {
    }

    /** The codec has answered protocol errors with GOAWAY; what is left over ends the connection. */
    private static final class Faults extends ChannelInboundHandlerAdapter {
        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            if (!(cause instanceof Http2Exception)) {
                context.close();
            }
        }
    }

    /** RFC 9113 §6.5.2 counts 32 bytes more for each field than a head of HTTP/1 has. */
    private static long listBytesMax(Limits limits) {
        return limits.headBytesMax() + 32L * limits.fieldsMax();
    }

    /**
     * Puts HTTP/2 behind what is there.
     *
     * @param scheme of the requests: whether the connection is encrypted
     */
    static void install(ChannelPipeline pipeline, Loop loop, String scheme) {
        Http2FrameCodec codec = Http2FrameCodecBuilder.forServer()
                .initialSettings(Http2Settings.defaultSettings()
                        .maxConcurrentStreams(STREAMS_MAX)
                        .maxHeaderListSize(listBytesMax(loop.gateway.snapshot().limits())))
                .decoderEnforceMaxRstFramesPerWindow(RESETS_MAX, RESET_WINDOW_SECONDS)
                // Resets that a client provokes cost an origin as much as its own.
                .encoderEnforceMaxRstFramesPerWindow(RESETS_MAX, RESET_WINDOW_SECONDS)
                .validateHeaders(true)
                .validateRequiredPseudoHeaders(true)
                .gracefulShutdownTimeoutMillis(loop.gateway.options("server").millis("drain"))
                .build();
        Http2Connection connection = new Http2Connection(loop, codec);
        pipeline.addLast(connection);
        pipeline.addLast(codec);
        pipeline.addLast(connection.new Compact());
        pipeline.addLast(new Http2MultiplexHandler(new ChannelInitializer<>() {
            @Override
            protected void initChannel(Channel stream) {
                stream.pipeline().addLast(new Http2Stream(loop, connection, scheme));
            }
        }));
        pipeline.addLast(new Faults());
    }
}
