// HTTP/2 from clients: frames in, exchanges on the same filters and origins.
package wirespeed.gateway.netty;

import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelPipeline;
import io.netty.handler.codec.http2.AbstractHttp2ConnectionHandlerBuilder;
import io.netty.handler.codec.http2.Http2ConnectionDecoder;
import io.netty.handler.codec.http2.Http2ConnectionEncoder;
import io.netty.handler.codec.http2.Http2Exception;
import io.netty.handler.codec.http2.Http2Headers;
import io.netty.handler.codec.http2.Http2Settings;
import wirespeed.gateway.core.Limits;

/** The client begins all streams. */
final class Http2Clients extends Http2Codec {
    private static final int STREAMS_MAX = 100;
    private static final int RESETS_MAX = 200;
    private static final int RESET_WINDOW_SECONDS = 30;

    private final Loop loop;
    private final String scheme;
    private final Http2Connection client;

    private Http2Clients(Http2ConnectionDecoder decoder, Http2ConnectionEncoder encoder,
            Http2Settings settings, Loop loop, String scheme) {
        super(decoder, encoder, settings, loop);
        this.loop = loop;
        this.scheme = scheme;
        client = new Http2Connection(loop, this);
    }

    /** Bounds follow the known attacks: streams, header lists, resets and settings are limited. */
    private static final class Builder
            extends AbstractHttp2ConnectionHandlerBuilder<Http2Clients, Builder> {
        private final Loop loop;
        private final String scheme;

        Builder(Loop loop, String scheme) {
            this.loop = loop;
            this.scheme = scheme;
            server(true);
            initialSettings(Http2Settings.defaultSettings()
                    .maxConcurrentStreams(STREAMS_MAX)
                    .maxHeaderListSize(listBytesMax(loop.gateway.snapshot().limits())));
            decoderEnforceMaxRstFramesPerWindow(RESETS_MAX, RESET_WINDOW_SECONDS);
            // Resets that a client provokes cost an origin as much as its own.
            encoderEnforceMaxRstFramesPerWindow(RESETS_MAX, RESET_WINDOW_SECONDS);
            validateHeaders(true);
            validateRequiredPseudoHeaders(true);
            gracefulShutdownTimeoutMillis(loop.gateway.options("server").millis("drain"));
        }

        /** RFC 9113 §6.5.2 counts 32 bytes more for each field than a head of HTTP/1 has. */
        private static long listBytesMax(Limits limits) {
            return limits.headBytesMax() + 32L * limits.fieldsMax();
        }

        @Override
        protected Http2Clients build() {
            return super.build();
        }

        @Override
        protected Http2Clients build(Http2ConnectionDecoder decoder, Http2ConnectionEncoder encoder,
                Http2Settings settings) {
            return new Http2Clients(decoder, encoder, settings, loop, scheme);
        }
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

    /**
     * Puts HTTP/2 behind what is there.
     *
     * @param scheme of the requests: whether the connection is encrypted
     */
    static void install(ChannelPipeline pipeline, Loop loop, String scheme) {
        Http2Clients codec = new Builder(loop, scheme).build();
        pipeline.addLast(codec.client);
        pipeline.addLast(codec);
        pipeline.addLast(new Faults());
    }

    @Override
    Http2Frames begun(io.netty.handler.codec.http2.Http2Stream stream, Http2Headers head,
            boolean isEnd) {
        Http2Stream own = new Http2Stream(loop, client, this, stream);
        own(stream, own);
        own.begin(head, scheme, isEnd);
        return own;
    }
}
