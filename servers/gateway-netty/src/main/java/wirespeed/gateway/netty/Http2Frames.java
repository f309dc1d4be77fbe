// One stream between the codec and an exchange: credit for what is read, and room for what is written.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelFuture;
import io.netty.handler.codec.http2.Http2Error;
import io.netty.handler.codec.http2.Http2Headers;
import io.netty.handler.codec.http2.Http2Stream.State;
import java.util.ArrayDeque;

/**
 * Frames wait here while the exchange does not read, at most a window of them: the peer may send more when
 * they were taken. Used on the connection's loop only.
 */
abstract class Http2Frames {
    /** The socket and the peer's window have not taken as much: from here on no more is wanted. */
    private static final int FULL_BYTES = 64 * 1024;
    /** Below this there is room again. */
    private static final int ROOM_BYTES = 32 * 1024;
    /** Pieces from here on wait as slices of what was read. */
    private static final int COPIED_BYTES_MAX = OutBuffer.BYTES / 2;
    /** Room for a piece that waits, and for those behind it. */
    private static final int PIECE_BYTES = 256;
    /** The same of data that waits for the peer's window. */
    private static final int TAIL_BYTES_MAX = OutBuffer.BYTES;

    /**
     * Received and not read yet.
     *
     * @param data null for a head
     * @param credit what the peer may send again when it is read
     */
    private record Piece(ByteBuf data, int credit, Http2Headers head, boolean isEnd) {
    }

    private final Http2Codec codec;
    /** Null before the head of a request to an origin was written. */
    private io.netty.handler.codec.http2.Http2Stream stream;
    private boolean isReading = true;
    private boolean isDraining;
    private boolean isInRead;
    private ArrayDeque<Piece> waiting;
    private int credit;
    /** Written, and not with the socket yet. */
    private int writtenBytes;
    /** The end of it, which the codec does not have yet: many small pieces wait in one buffer. */
    private ByteBuf tail;
    private boolean isFull;
    private boolean isDirty;

    Http2Frames(Http2Codec codec, io.netty.handler.codec.http2.Http2Stream stream) {
        this.codec = codec;
        this.stream = stream;
    }

    /** Its first head was written, which has created it. */
    void begun(io.netty.handler.codec.http2.Http2Stream created) {
        stream = created;
        isDirty = true;
    }

    /** A head or trailers, or a piece of a body, which stays the caller's. One of both is null. */
    abstract void take(ByteBuf data, Http2Headers head, boolean isEnd);

    /** Whether the exchange is over, and frames are dropped. */
    abstract boolean isDeaf();

    /** All frames that have come were taken. */
    abstract void readComplete();

    /** The peer has reset the stream: not bound to flow control. */
    abstract void reset(long error);

    /** A frame was malformed, or came too late. */
    abstract void broken(Throwable cause);

    /** An exception of our own; ends this stream and no other. */
    abstract void faulted(Throwable fault);

    /** It is over on both sides, or with its connection. */
    abstract void closed();

    /** There is room again behind {@link #isRoom}. */
    abstract void roomAgain();

    /**
     * The peer sends no more frames, not even WINDOW_UPDATE.
     *
     * @param isBlocked whether data waits for a window
     */
    void inputShut(boolean isBlocked) {
        // Connections to origins end as a whole.
    }

    /** Nothing can be written on it. */
    boolean isClosed() {
        return stream == null || stream.state() == State.CLOSED;
    }

    /** Whether its end was written, and does not wait for the peer's window. */
    boolean isSent() {
        return isClosed() || stream.state() == State.HALF_CLOSED_LOCAL;
    }

    boolean isReading() {
        return isReading;
    }

    boolean hasWaiting() {
        return waiting != null && !waiting.isEmpty();
    }

    /** Whether all has come, though not all was taken. */
    boolean isEndWaiting() {
        return hasWaiting() && waiting.peekLast().isEnd();
    }

    boolean isRoom() {
        return !isFull;
    }

    /** Whether this frame is the first of what the loop reads now. */
    boolean isFirstOfRead() {
        boolean isFirst = !isInRead;
        isInRead = true;
        return isFirst;
    }

    /** The loop has read all that it found. */
    void loopHasRead() {
        isInRead = false;
        try {
            readComplete();
        } catch (RuntimeException | Error fault) {
            faulted(fault);
        }
    }

    /** The peer has reset it. */
    void resetBy(long error) {
        try {
            reset(error);
        } catch (RuntimeException | Error fault) {
            faulted(fault);
        }
    }

    /** The codec refuses a frame of it, or one for it. */
    void brokenBy(Throwable cause) {
        try {
            broken(cause);
        } catch (RuntimeException | Error fault) {
            faulted(fault);
        }
    }

    /**
     * A piece of a body, which stays the caller's.
     *
     * @return how much of it the peer may send again at once
     */
    int data(ByteBuf data, int padding, boolean isEnd) {
        int bytes = data.readableBytes() + padding;
        try {
            if (isReading || isDeaf()) {
                takeIfHeard(data, null, isEnd);
                credit += bytes;
            } else {
                hold(data, bytes, isEnd);
            }
        } catch (RuntimeException | Error fault) {
            faulted(fault);
        }
        return isReading ? takeCredit() : 0;
    }

    /** A head or trailers. */
    void head(Http2Headers head, boolean isEnd) {
        try {
            if (isReading || isDeaf()) {
                takeIfHeard(null, head, isEnd);
            } else {
                hold(new Piece(null, 0, head, isEnd));
            }
        } catch (RuntimeException | Error fault) {
            faulted(fault);
        }
    }

    private void takeIfHeard(ByteBuf data, Http2Headers head, boolean isEnd) {
        if (!isDeaf()) {
            take(data, head, isEnd);
        }
    }

    /** Waiting data takes the memory that it needs: not all that was read with it, nor a buffer a byte. */
    private void hold(ByteBuf data, int bytes, boolean isEnd) {
        int count = data.readableBytes();
        if (count >= COPIED_BYTES_MAX) {
            hold(new Piece(data.retainedSlice(), bytes, null, isEnd));
            return;
        }
        Piece last = hasWaiting() ? waiting.peekLast() : null;
        if (last != null && last.data() != null && last.data().maxWritableBytes() >= count) {
            last.data().writeBytes(data, data.readerIndex(), count);
            waiting.pollLast();
            waiting.add(new Piece(last.data(), last.credit() + bytes, null, isEnd));
            return;
        }
        int room = Math.max(count, PIECE_BYTES);
        hold(new Piece(codec.alloc().directBuffer(room, room)
                .writeBytes(data, data.readerIndex(), count), bytes, null, isEnd));
    }

    private void hold(Piece piece) {
        if (waiting == null) {
            waiting = new ArrayDeque<>(4);
        }
        waiting.add(piece);
    }

    private int takeCredit() {
        int taken = credit;
        credit = 0;
        return taken;
    }

    /** Stops or resumes reading; resuming takes first what has waited. */
    void reading(boolean isOn) {
        isReading = isOn;
        if (isOn) {
            drainWaiting();
            giveCredit();
        }
    }

    private void drainWaiting() {
        if (isDraining || !hasWaiting()) {
            return;
        }
        isDraining = true;
        try {
            while (isReading && !waiting.isEmpty()) {
                taken(waiting.poll());
            }
            isDraining = false;
            readComplete();
        } catch (RuntimeException | Error fault) {
            // The caller may be the exchange's other side.
            isDraining = false;
            faulted(fault);
        }
    }

    private void taken(Piece piece) {
        credit += piece.credit();
        try {
            takeIfHeard(piece.data(), piece.head(), piece.isEnd());
        } finally {
            release(piece);
        }
    }

    private void giveCredit() {
        if (isReading && credit > 0 && !isClosed()) {
            codec.consumed(stream, takeCredit());
        }
    }

    /** Drops what waits. */
    void forgetWaiting() {
        while (hasWaiting()) {
            release(waiting.poll());
        }
    }

    private static void release(Piece piece) {
        if (piece.data() != null) {
            piece.data().release();
        }
    }

    /** Null on a stream that is closed. */
    ChannelFuture writeHead(Http2Headers fields, boolean isEnd) {
        if (isClosed()) {
            return null;
        }
        isDirty = true;
        writeTail();
        return codec.writeHead(stream.id(), fields, isEnd);
    }

    /** Takes the data over. Null on a stream that is closed, and where the codec gets it later or not at all. */
    ChannelFuture writeData(ByteBuf data, boolean isEnd) {
        if (isClosed()) {
            data.release();
            return null;
        }
        int count = data.readableBytes();
        if (count == 0 && !isEnd) {
            // Of a filter that has to see more first: a frame for it would wait as data does.
            data.release();
            return null;
        }
        isDirty = true;
        if (isEnd) {
            writeTail();
            boolean isCopied = writtenBytes > 0 && count < COPIED_BYTES_MAX;
            return codec.writeData(stream.id(), isCopied ? copy(data, count) : data, true);
        }
        boolean isWaiting = writtenBytes > 0 && count < COPIED_BYTES_MAX;
        writtenBytes += count;
        isFull |= writtenBytes > FULL_BYTES;
        if (isWaiting) {
            append(data, count);
            return null;
        }
        writeTail();
        return write(data);
    }

    /** Data that waits takes the memory that it needs: not all that came with it, nor a buffer a byte. */
    private void append(ByteBuf data, int count) {
        try {
            if (tail != null && tail.maxWritableBytes() < count) {
                writeTail();
            }
            if (tail == null) {
                int room = Math.min(TAIL_BYTES_MAX, Math.max(PIECE_BYTES, writtenBytes));
                tail = codec.alloc().directBuffer(Math.max(count, room), Math.max(count, room));
            }
            tail.writeBytes(data);
        } finally {
            data.release();
        }
    }

    /** The end waits behind other data as a piece of it does: not with all that came with it. */
    private ByteBuf copy(ByteBuf data, int count) {
        try {
            return codec.alloc().directBuffer(count, count).writeBytes(data);
        } finally {
            data.release();
        }
    }

    /** It exists only while other data waits, whose leaving calls this. */
    private void writeTail() {
        if (tail != null) {
            ByteBuf last = tail;
            tail = null;
            if (isClosed()) {
                left(last.readableBytes());
                last.release();
            } else {
                write(last);
            }
        }
    }

    private ChannelFuture write(ByteBuf data) {
        int count = data.readableBytes();
        return codec.writeData(stream.id(), data, false).addListener(done -> left(count));
    }

    private void left(int bytes) {
        writtenBytes -= bytes;
        if (tail != null) {
            writeTail();
            codec.flushSoon();
        }
        if (codec.isWritable()) {
            channelWritable();
        }
    }

    /** The socket takes bytes again. */
    void channelWritable() {
        if (isFull && writtenBytes < ROOM_BYTES) {
            isFull = false;
            if (!isDeaf() && !isClosed()) {
                try {
                    roomAgain();
                } catch (RuntimeException | Error fault) {
                    faulted(fault);
                }
            }
        }
    }

    /** Hands what was written to the socket; encrypting nothing is not free. */
    void flushWritten() {
        if (isDirty) {
            isDirty = false;
            if (tail != null && codec.takesMore(stream)) {
                writeTail();
            }
            codec.flushSoon();
        }
    }

    void writeReset(Http2Error error) {
        if (!isClosed()) {
            codec.writeReset(stream, error);
            codec.flushSoon();
        }
    }
}
