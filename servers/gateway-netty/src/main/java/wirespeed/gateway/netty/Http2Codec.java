// The frames of one HTTP/2 connection: each goes straight to the stream that it names.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.http2.Http2Connection.PropertyKey;
import io.netty.handler.codec.http2.Http2ConnectionAdapter;
import io.netty.handler.codec.http2.Http2ConnectionDecoder;
import io.netty.handler.codec.http2.Http2ConnectionEncoder;
import io.netty.handler.codec.http2.Http2ConnectionHandler;
import io.netty.handler.codec.http2.Http2Error;
import io.netty.handler.codec.http2.Http2Exception;
import io.netty.handler.codec.http2.Http2FrameAdapter;
import io.netty.handler.codec.http2.Http2Headers;
import io.netty.handler.codec.http2.Http2RemoteFlowController;
import io.netty.handler.codec.http2.Http2Settings;
import io.netty.handler.codec.http2.Http2Stream;
import io.netty.handler.codec.http2.Http2StreamVisitor;
import java.util.ArrayDeque;

/**
 * A stream is one object, and no channel with a pipeline, promises and tasks of its own: those cost more
 * than all else about a small request. {@link Http2Frames} does what a stream channel would do.
 */
abstract class Http2Codec extends Http2ConnectionHandler {
    private static final int RESETS_REMEMBERED = 128;

    private final Loop loop;
    private final PropertyKey ours;
    /** Streams that had frames in the present read. */
    private final ArrayDeque<Http2Frames> read = new ArrayDeque<>();
    private final Http2StreamVisitor writable = stream -> {
        Http2Frames own = own(stream);
        if (own != null) {
            own.channelWritable();
        }
        return true;
    };
    private final Runnable flush = this::flushNow;
    /** Of a peer that sends nothing more: streams that wait for it would wait for ever. */
    private final Http2StreamVisitor unheard = stream -> {
        Http2Frames own = own(stream);
        if (own != null) {
            own.inputShut(waitsForWindow(stream));
        }
        return true;
    };
    private boolean isFlushDue;
    private boolean isInputShut;
    private ChannelHandlerContext context;
    /** The last streams that were reset here: frames of them may still be on their way. */
    private int[] resets;
    private int resetCount;

    Http2Codec(Http2ConnectionDecoder decoder, Http2ConnectionEncoder encoder, Http2Settings settings,
            Loop loop) {
        super(decoder, encoder, settings);
        this.loop = loop;
        ours = connection().newKey();
        connection().addListener(new Ends());
        decoder.frameListener(new Frames());
    }

    /**
     * The first head of a stream that nothing here has begun.
     *
     * @return null for none of ours
     */
    abstract Http2Frames begun(Http2Stream stream, Http2Headers head, boolean isEnd);

    /** The peer takes no new streams, and has not looked at those above this one. */
    void goAway(int lastStream) {
        // Of a client: nothing was begun by us.
    }

    private Http2Frames own(int stream) {
        Http2Stream known = connection().stream(stream);
        return known == null ? null : own(known);
    }

    final Http2Frames own(Http2Stream stream) {
        return stream.getProperty(ours);
    }

    final void own(Http2Stream stream, Http2Frames frames) {
        stream.setProperty(ours, frames);
    }

    private final class Frames extends Http2FrameAdapter {
        @Override
        public void onHeadersRead(ChannelHandlerContext same, int stream, Http2Headers head,
                int dependency, short weight, boolean isExclusive, int padding, boolean isEnd) {
            Http2Frames own = own(stream);
            if (own == null) {
                own = begun(connection().stream(stream), head, isEnd);
            } else {
                own.head(head, isEnd);
            }
            isRead(own);
        }

        @Override
        public int onDataRead(ChannelHandlerContext same, int stream, ByteBuf data, int padding,
                boolean isEnd) {
            Http2Frames own = own(stream);
            if (own == null) {
                return data.readableBytes() + padding;
            }
            int done = own.data(data, padding, isEnd);
            isRead(own);
            return done;
        }

        @Override
        public void onRstStreamRead(ChannelHandlerContext same, int stream, long error) {
            Http2Frames own = own(stream);
            if (own != null) {
                own.resetBy(error);
            }
        }

        @Override
        public void onGoAwayRead(ChannelHandlerContext same, int lastStream, long error, ByteBuf text) {
            goAway(lastStream);
        }
    }

    private void isRead(Http2Frames stream) {
        if (stream != null && stream.isFirstOfRead()) {
            read.add(stream);
        }
    }

    /** Exchanges go on when all that was read is known, and what they write leaves together. */
    @Override
    public void channelReadComplete(ChannelHandlerContext same) throws Exception {
        for (Http2Frames stream = read.poll(); stream != null; stream = read.poll()) {
            stream.loopHasRead();
        }
        super.channelReadComplete(same);
    }

    private final class Ends extends Http2ConnectionAdapter {
        @Override
        public void onStreamClosed(Http2Stream stream) {
            Http2Frames own = own(stream);
            if (own != null) {
                own.closed();
            }
            if (isInputShut) {
                flushSoon();
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
        if (isInputShut) {
            // The socket may have taken what was left of a window, in the middle of a stream's data.
            flushSoon();
        }
        if (same.channel().isWritable()) {
            connection().forEachActiveStream(writable);
        }
    }

    /** Said even when the request was complete: RFC 9113 §5.4.2. */
    @Override
    protected void onStreamError(ChannelHandlerContext same, boolean isOutbound, Throwable cause,
            Http2Exception.StreamException error) {
        Http2Frames own = own(error.streamId());
        if (own != null) {
            if (isOutbound && own.isClosed()) {
                // Data that waited for a window goes with its stream, which needs no reset.
                return;
            }
            own.brokenBy(cause);
            if (own.isClosed()) {
                // It has written a reset of its own.
                return;
            }
        } else if (error.error() == Http2Error.STREAM_CLOSED && wasReset(error.streamId())) {
            // RFC 9113 §5.1: the peer may have sent it before it knew.
            return;
        } else if (error.error() == Http2Error.PROTOCOL_ERROR && !isTooLong(error)
                && resetUnbegun(error.streamId())) {
            return;
        }
        super.onStreamError(same, isOutbound, cause, error);
    }

    /** Of a head that is merely too long; the codec answers it with 431. */
    private static boolean isTooLong(Http2Exception.StreamException error) {
        return error instanceof Http2Exception.HeaderListSizeException size && size.duringDecode();
    }

    /**
     * Of a head that cannot be read the codec makes no stream, and would take the data behind it for a
     * fault of the whole connection.
     */
    private boolean resetUnbegun(int stream) {
        var peer = connection().remote();
        if (!peer.isValidStreamId(stream) || connection().streamMayHaveExisted(stream)) {
            return false;
        }
        try {
            writeReset(peer.createStream(stream, false), Http2Error.PROTOCOL_ERROR);
            return true;
        } catch (Http2Exception full) {
            return false;
        }
    }

    final ByteBufAllocator alloc() {
        return context.alloc();
    }

    final boolean isWritable() {
        return context.channel().isWritable();
    }

    final ChannelFuture writeHead(int stream, Http2Headers head, boolean isEnd) {
        return encoder().writeHeaders(context, stream, head, 0, isEnd, context.newPromise());
    }

    /** Takes the data over; it is written when the peer's window allows it. */
    final ChannelFuture writeData(int stream, ByteBuf data, boolean isEnd) {
        return encoder().writeData(context, stream, data, 0, isEnd, context.newPromise());
    }

    /** Whether the socket and the peer's windows take more than what is queued for them. */
    final boolean takesMore(Http2Stream stream) {
        return connection().remote().flowController().isWritable(stream);
    }

    /** Closes the stream at once: what it has queued must not follow its reset. */
    final void writeReset(Http2Stream stream, Http2Error error) {
        encoder().writeRstStream(context, stream.id(), error.code(), context.newPromise());
        if (resets == null) {
            resets = new int[RESETS_REMEMBERED];
        }
        resets[resetCount++ % RESETS_REMEMBERED] = stream.id();
        stream.close();
    }

    private boolean wasReset(int stream) {
        for (int i = Math.min(resetCount, RESETS_REMEMBERED) - 1; i >= 0; i--) {
            if (resets[i] == stream) {
                return true;
            }
        }
        return false;
    }

    /** The peer may send as much again on this stream. */
    final void consumed(Http2Stream stream, int bytes) {
        try {
            if (connection().local().flowController().consumeBytes(stream, bytes)) {
                flushSoon();
            }
        } catch (Http2Exception impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /**
     * Hands on what streams have written once the loop has read all that it found: frames that came
     * together leave together.
     */
    final void flushSoon() {
        if (!isFlushDue) {
            isFlushDue = true;
            loop.executor.execute(flush);
        }
    }

    /** The peer has ended its half: what it has asked for still goes out, as far as its windows are open. */
    final void inputShut() {
        isInputShut = true;
        flushSoon();
    }

    private boolean waitsForWindow(Http2Stream stream) {
        Http2RemoteFlowController flow = connection().remote().flowController();
        return flow.hasFlowControlled(stream) && (flow.windowSize(stream) <= 0
                || flow.windowSize(connection().connectionStream()) <= 0);
    }

    final boolean isFlushDue() {
        return isFlushDue;
    }

    private void flushNow() {
        isFlushDue = false;
        context.channel().flush();
        if (isInputShut) {
            endUnheard();
        }
    }

    private void endUnheard() {
        try {
            connection().forEachActiveStream(unheard);
        } catch (Http2Exception impossible) {
            throw new IllegalStateException(impossible);
        }
        if (connection().numActiveStreams() == 0) {
            isInputShut = false; // Once is enough.
            context.channel().close();
        }
    }
}
