// The frames of one client's HTTP/2 connection: each goes straight to the stream that it names.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.http2.AbstractHttp2ConnectionHandlerBuilder;
import io.netty.handler.codec.http2.Http2Connection.PropertyKey;
import io.netty.handler.codec.http2.Http2ConnectionAdapter;
import io.netty.handler.codec.http2.Http2ConnectionDecoder;
import io.netty.handler.codec.http2.Http2ConnectionEncoder;
import io.netty.handler.codec.http2.Http2ConnectionHandler;
import io.netty.handler.codec.http2.Http2Error;
import io.netty.handler.codec.http2.Http2Exception;
import io.netty.handler.codec.http2.Http2FrameAdapter;
import io.netty.handler.codec.http2.Http2Headers;
import io.netty.handler.codec.http2.Http2Settings;
import io.netty.handler.codec.http2.Http2StreamVisitor;
import java.util.ArrayDeque;
import wirespeed.gateway.core.Limits;

/**
 * A stream is one object, and no channel with a pipeline, promises and tasks of its own: those cost more
 * than all else about a small request. What a stream channel would do is done by {@link Http2Stream}.
 */
final class Http2Codec extends Http2ConnectionHandler {
    private static final int STREAMS_MAX = 100;
    private static final int RESETS_MAX = 200;
    private static final int RESET_WINDOW_SECONDS = 30;

    private final Loop loop;
    private final String scheme;
    private final Http2Connection client;
    private final PropertyKey ours;
    /** Streams that had frames in the present read. */
    private final ArrayDeque<Http2Stream> read = new ArrayDeque<>();
    private final Http2StreamVisitor writable = stream -> {
        Http2Stream own = own(stream);
        if (own != null) {
            own.channelWritable();
        }
        return true;
    };
    private ChannelHandlerContext context;

    private Http2Codec(Http2ConnectionDecoder decoder, Http2ConnectionEncoder encoder,
            Http2Settings settings, Loop loop, String scheme) {
        super(decoder, encoder, settings);
        this.loop = loop;
        this.scheme = scheme;
        client = new Http2Connection(loop, this);
        ours = connection().newKey();
        connection().addListener(new Ends());
        decoder.frameListener(new Frames());
    }

    /**
     * Not in a pipeline yet; {@link #client} stands before it there.
     *
     * @param scheme of the requests: whether the connection is encrypted
     */
    static Http2Codec of(Loop loop, String scheme) {
        return new Builder(loop, scheme).build();
    }

    Http2Connection client() {
        return client;
    }

    /** Bounds follow the known attacks: streams, header lists, resets and settings are limited. */
    private static final class Builder extends AbstractHttp2ConnectionHandlerBuilder<Http2Codec, Builder> {
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
        protected Http2Codec build() {
            return super.build();
        }

        @Override
        protected Http2Codec build(Http2ConnectionDecoder decoder, Http2ConnectionEncoder encoder,
                Http2Settings settings) {
            return new Http2Codec(decoder, encoder, settings, loop, scheme);
        }
    }

    private Http2Stream own(int stream) {
        io.netty.handler.codec.http2.Http2Stream known = connection().stream(stream);
        return known == null ? null : own(known);
    }

    private Http2Stream own(io.netty.handler.codec.http2.Http2Stream stream) {
        return stream.getProperty(ours);
    }

    private final class Frames extends Http2FrameAdapter {
        @Override
        public void onHeadersRead(ChannelHandlerContext same, int stream, Http2Headers fields,
                int dependency, short weight, boolean isExclusive, int padding, boolean isEnd) {
            Http2Stream own = own(stream);
            if (own == null) {
                io.netty.handler.codec.http2.Http2Stream begun = connection().stream(stream);
                own = new Http2Stream(loop, client, Http2Codec.this, begun);
                begun.setProperty(ours, own);
                own.head(fields, scheme, isEnd);
            } else {
                own.trailers(fields, isEnd);
            }
            isRead(own);
        }

        @Override
        public int onDataRead(ChannelHandlerContext same, int stream, ByteBuf data, int padding,
                boolean isEnd) {
            Http2Stream own = own(stream);
            int done = own.data(data, padding, isEnd);
            isRead(own);
            return done;
        }

        /** Not bound to flow control: it is heard while nothing else of the stream is read. */
        @Override
        public void onRstStreamRead(ChannelHandlerContext same, int stream, long error) {
            Http2Stream own = own(stream);
            if (own != null) {
                own.gone();
            }
        }
    }

    private void isRead(Http2Stream stream) {
        if (stream.isFirstOfRead()) {
            read.add(stream);
        }
    }

    /** Requests begin when all that was read is known, and what they write leaves together. */
    @Override
    public void channelReadComplete(ChannelHandlerContext same) throws Exception {
        for (Http2Stream stream = read.poll(); stream != null; stream = read.poll()) {
            stream.readComplete();
        }
        super.channelReadComplete(same);
    }

    private final class Ends extends Http2ConnectionAdapter {
        @Override
        public void onStreamClosed(io.netty.handler.codec.http2.Http2Stream stream) {
            Http2Stream own = own(stream);
            if (own != null) {
                own.closed();
            }
        }
    }

    @Override
    public void handlerAdded(ChannelHandlerContext added) throws Exception {
        context = added;
        super.handlerAdded(added);
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext same) throws Exception {
        super.channelWritabilityChanged(same);
        if (same.channel().isWritable()) {
            connection().forEachActiveStream(writable);
        }
    }

    /** Said even when the request was complete: RFC 9113 §5.4.2. */
    @Override
    protected void onStreamError(ChannelHandlerContext same, boolean isOutbound, Throwable cause,
            Http2Exception.StreamException error) {
        Http2Stream own = own(error.streamId());
        if (own != null) {
            if (isOutbound && own.isClosed()) {
                // Data that waited for a window goes with its stream, which needs no reset.
                return;
            }
            own.gone();
        }
        super.onStreamError(same, isOutbound, cause, error);
    }

    ByteBufAllocator alloc() {
        return context.alloc();
    }

    ChannelFuture writeHeaders(int stream, Http2Headers fields, boolean isEnd) {
        return encoder().writeHeaders(context, stream, fields, 0, isEnd, context.newPromise());
    }

    /** Takes the data over; it is written when the client's window allows it. */
    ChannelFuture writeData(int stream, ByteBuf data, boolean isEnd) {
        return encoder().writeData(context, stream, data, 0, isEnd, context.newPromise());
    }

    void writeReset(int stream, Http2Error error) {
        encoder().writeRstStream(context, stream, error.code(), context.newPromise());
    }

    /** The client may send as much again on this stream. */
    void consumed(io.netty.handler.codec.http2.Http2Stream stream, int bytes) {
        try {
            if (connection().local().flowController().consumeBytes(stream, bytes)) {
                client.flushSoon();
            }
        } catch (Http2Exception impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
