// HTTP/2 from clients: frames in, exchanges on the same filters and origins.
package wirespeed.gateway.netty;

import io.netty.channel.Channel;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelPipeline;
import io.netty.handler.codec.http2.Http2FrameCodecBuilder;
import io.netty.handler.codec.http2.Http2MultiplexHandler;
import io.netty.handler.codec.http2.Http2Settings;

/** Bounds follow the known attacks: streams, header lists, resets and settings are limited. */
final class Http2Clients {
    private static final int STREAMS_MAX = 100;
    private static final int HEADER_LIST_BYTES_MAX = 16 * 1024;
    private static final int RESETS_MAX = 200;
    private static final int RESET_WINDOW_SECONDS = 30;

    private Http2Clients() {
    }

    static void install(ChannelPipeline pipeline, Loop loop) {
        pipeline.addLast(Http2FrameCodecBuilder.forServer()
                .initialSettings(Http2Settings.defaultSettings()
                        .maxConcurrentStreams(STREAMS_MAX)
                        .maxHeaderListSize(HEADER_LIST_BYTES_MAX))
                .decoderEnforceMaxRstFramesPerWindow(RESETS_MAX, RESET_WINDOW_SECONDS)
                .validateHeaders(true)
                .build());
        pipeline.addLast(new Http2MultiplexHandler(new ChannelInitializer<>() {
            @Override
            protected void initChannel(Channel stream) {
                stream.pipeline().addLast(new Http2Stream(loop));
            }
        }));
    }
}
