// HTTP/2 to origins: exchanges begin the streams.
package wirespeed.gateway.netty;

import io.netty.channel.ChannelFuture;
import io.netty.handler.codec.http2.AbstractHttp2ConnectionHandlerBuilder;
import io.netty.handler.codec.http2.Http2ConnectionDecoder;
import io.netty.handler.codec.http2.Http2ConnectionEncoder;
import io.netty.handler.codec.http2.Http2Exception;
import io.netty.handler.codec.http2.Http2Headers;
import io.netty.handler.codec.http2.Http2Settings;
import io.netty.handler.codec.http2.Http2Stream;

/** One for each connection; {@link Http2Origin} stands behind it. */
final class Http2Origins extends Http2Codec {
    static final int STREAM_WINDOW_BYTES = 64 * 1024;

    private Runnable refused = () -> { };

    private Http2Origins(Http2ConnectionDecoder decoder, Http2ConnectionEncoder encoder,
            Http2Settings settings, Loop loop) {
        super(decoder, encoder, settings, loop);
    }

    private static final class Builder
            extends AbstractHttp2ConnectionHandlerBuilder<Http2Origins, Builder> {
        private final Loop loop;

        Builder(Loop loop) {
            this.loop = loop;
            server(false);
            initialSettings(Http2Settings.defaultSettings()
                    .pushEnabled(false)
                    .initialWindowSize(STREAM_WINDOW_BYTES)
                    .maxHeaderListSize(loop.gateway.snapshot().answerLimits().headBytesMax()));
            validateHeaders(true);
            // RFC 7541 §7.1.3: clients that share the connection could guess what is in its table.
            headerSensitivityDetector((name, value) -> Http2Names.AUTHORIZATION.contentEquals(name)
                    || Http2Names.COOKIE.contentEquals(name));
            gracefulShutdownTimeoutMillis(0);
        }

        @Override
        protected Http2Origins build() {
            return super.build();
        }

        @Override
        protected Http2Origins build(Http2ConnectionDecoder decoder, Http2ConnectionEncoder encoder,
                Http2Settings settings) {
            return new Http2Origins(decoder, encoder, settings, loop);
        }
    }

    static Http2Origins of(Loop loop) {
        return new Builder(loop).build();
    }

    /** Called when the origin takes no new streams. */
    void refused(Runnable call) {
        refused = call;
    }

    /** Nothing is pushed. */
    @Override
    Http2Frames begun(Http2Stream stream, Http2Headers head, boolean isEnd) {
        return null;
    }

    /** The codec closes those above the last one behind this. */
    @Override
    void goAway(int lastStream) {
        try {
            connection().forEachActiveStream(stream -> {
                if (stream.id() > lastStream && own(stream) instanceof Http2OriginStream own) {
                    own.unprocessed();
                }
                return true;
            });
        } catch (Http2Exception impossible) {
            throw new IllegalStateException(impossible);
        }
        refused.run();
    }

    /** Begins a stream by the head of its request; refuses it by the future where the origin allows none. */
    ChannelFuture begin(Http2Frames own, Http2Headers head, boolean isEnd) {
        int id = connection().local().incrementAndGetNextStreamId();
        ChannelFuture written = writeHead(id, head, isEnd);
        Http2Stream created = connection().stream(id);
        if (created != null) {
            own(created, own);
            own.begun(created);
        }
        return written;
    }
}
