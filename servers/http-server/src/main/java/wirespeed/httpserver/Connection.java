/** One client's connection: bytes in, requests served in order, bytes out. */
package wirespeed.httpserver;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.channel.socket.DuplexChannel;
import io.netty.util.concurrent.Future;
import java.io.IOException;
import java.util.Arrays;

/**
 * The only handler of a channel. It copies the bytes of a read into the loop's scratch memory,
 * where heads are parsed strictly; remaining bytes stay with the connection. All responses of one
 * read are composed into one buffer, which is flushed when reading is complete.
 */
final class Connection extends ChannelInboundHandlerAdapter {
    /** A larger body is sent without copying, and ends the composed buffer. */
    static final int COMPOSED_BYTES_MAX = 64 * 1024;
    /** How long a client may take for a head (408), and between two pieces of a body. */
    private static final int HEAD_S_MAX = 10;
    /** How long a connection may wait for its next request, or for a client that does not read. */
    private static final int IDLE_S_MAX = 300;
    /**
     * How much, and how long, a refused client may still send: a reset would destroy the response.
     */
    private static final int LINGER_S_MAX = 2;
    private static final int LINGER_BYTES_MAX = 1 << 20;
    private static final byte[] NONE = {};

    private enum State {
        /** Reads requests. */
        OPEN,
        /** Sends a file; later requests wait. */
        SENDING,
        /** The last response is being sent; the connection is no longer read. */
        CLOSING,
        /** As CLOSING, but bytes that the client still sends are read and discarded. */
        LINGERING
    }

    /** Links of the loop's list, and when the loop calls {@link #expire}. */
    Connection next;
    Connection previous;
    long deadlineS;

    private final Loop loop;
    private ChannelHandlerContext context;
    private State state = State.OPEN;
    private byte[] pending = NONE;
    private BodySkipper body;
    private ByteBuf out;
    private FileSender file;
    private boolean isFlushDue;
    private boolean hasInputEnded;
    private boolean isOutputShut;
    private boolean isAutoRead = true;
    private boolean isConsuming;
    private int lingeredBytes;

    Connection(Loop loop) {
        this.loop = loop;
    }

    @Override
    public void channelActive(ChannelHandlerContext ctx) {
        context = ctx;
        deadlineS = loop.nowS + IDLE_S_MAX;
        loop.add(this);
    }

    @Override
    public void channelInactive(ChannelHandlerContext ctx) {
        loop.remove(this);
        state = State.CLOSING;
        pending = NONE;
    }

    @Override
    public void channelRead(ChannelHandlerContext ctx, Object message) {
        ByteBuf received = (ByteBuf) message;
        int kept = pending.length;
        int end = kept + received.readableBytes();
        byte[] bytes = loop.scratch(end);
        System.arraycopy(pending, 0, bytes, 0, kept);
        received.getBytes(received.readerIndex(), bytes, kept, end - kept);
        received.release();
        consume(bytes, end, kept == 0);
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext ctx) {
        if (isFlushDue) {
            isFlushDue = false;
            ctx.flush();
        }
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext ctx) {
        if (!isAutoRead && state == State.OPEN && ctx.channel().isWritable()) {
            resume();
        }
    }

    @Override
    public void userEventTriggered(ChannelHandlerContext ctx, Object event) {
        if (event instanceof ChannelInputShutdownEvent) {
            hasInputEnded = true;
            if (isOutputShut) {
                ctx.close();
            } else if (state == State.OPEN && isAutoRead) {
                closeWhenWritten();
            }
        }
    }

    /** Resets and broken pipes are caused by clients: nothing to report, nothing to keep. */
    @Override
    public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
        if (!(cause instanceof IOException)) {
            System.err.println("http-server: a connection is closed after " + cause);
        }
        ctx.close();
    }

    /** The loop's clock passed the deadline. */
    void expire() {
        if (state == State.SENDING && file.hasProgressed()) {
            deadlineS = loop.nowS + IDLE_S_MAX;
        } else if (state == State.OPEN && isAutoRead && pending.length > 0) {
            refuse(Status.REQUEST_TIMEOUT);
            writeOut();
            context.flush();
        } else {
            context.close();
        }
    }

    /** Part of stopping: no request is being read or served here. */
    void closeIfIdle() {
        if (state == State.OPEN && isAutoRead && pending.length == 0 && body == null) {
            closeWhenWritten();
        }
    }

    void cut() {
        context.close();
    }

    private void consume(byte[] bytes, int end, boolean isNew) {
        isConsuming = true;
        int at = state == State.LINGERING ? linger(end) : requests(bytes, end);
        isConsuming = false;
        boolean isKept = state == State.OPEN || state == State.SENDING;
        pending = isKept && at < end ? Arrays.copyOfRange(bytes, at, end) : NONE;
        writeOut();
        if (isKept && (state == State.SENDING || !context.channel().isWritable())) {
            autoRead(false);
        }
        setDeadline(isNew || at > 0);
    }

    /** The time for a head starts with its first byte; all other times with the last event. */
    private void setDeadline(boolean isHeadNew) {
        if (state == State.LINGERING) {
            deadlineS = Math.min(deadlineS, loop.nowS + LINGER_S_MAX);
        } else if (!isAutoRead || pending.length == 0 && body == null) {
            deadlineS = loop.nowS + IDLE_S_MAX;
        } else if (isHeadNew) {
            deadlineS = loop.nowS + HEAD_S_MAX;
        }
    }

    /** Serves all complete requests; returns where the first partial one starts. */
    private int requests(byte[] bytes, int end) {
        int at = 0;
        while (at < end && state == State.OPEN && context.channel().isWritable()) {
            int step = body != null ? skipBody(bytes, at, end) : request(bytes, at, end);
            if (step == 0) {
                break;
            }
            at += step;
        }
        return at;
    }

    private int request(byte[] bytes, int at, int end) {
        int length = loop.head.read(bytes, at, end);
        if (length > 0) {
            loop.responder.answer(this, bytes, loop.head);
        } else if (length != RequestHead.INCOMPLETE) {
            refuse(Status.of(-length));
            return end - at;
        }
        return length;
    }

    private int skipBody(byte[] bytes, int at, int end) {
        int bodyEnd = body.skip(bytes, at, end);
        if (bodyEnd < 0) {
            refuse(Status.BAD_REQUEST);
            return end - at;
        }
        body = body.isDone() ? null : body;
        return bodyEnd - at;
    }

    /**
     * After this request the bytes cannot be trusted: it gets a response, then the connection ends.
     */
    private void refuse(Status status) {
        end(true);
        loop.responses.status(room(Responses.HEAD_BYTES_MAX), status, true, Responses.Ending.CLOSE);
    }

    /** Marks the response that is being composed as the last one of this connection. */
    void end(boolean hasMoreInput) {
        state = hasMoreInput ? State.LINGERING : State.CLOSING;
    }

    /** Skips the body of the request that is being served. */
    void skip(BodySkipper following) {
        body = following;
    }

    /** The composed buffer, with space for so many more bytes. */
    ByteBuf room(int bytes) {
        if (out != null && out.readableBytes() + bytes > COMPOSED_BYTES_MAX) {
            context.write(out, context.voidPromise());
            isFlushDue = true;
            out = null;
        }
        if (out == null) {
            out = context.alloc().directBuffer(bytes);
            return out;
        }
        return out.ensureWritable(bytes);
    }

    /** Sends bytes that are already in memory, after the composed ones. */
    void send(ByteBuf shared) {
        context.write(out, context.voidPromise());
        out = shared.retainedDuplicate();
    }

    /** Sends a part of a file, after the composed bytes; later requests wait. */
    void send(FileSender sender) {
        State after = state;
        context.write(out, context.voidPromise());
        out = null;
        isFlushDue = true;
        state = State.SENDING;
        file = sender;
        sender.start(context).addListener(done -> fileSent(done.isSuccess() ? after : State.CLOSING));
    }

    private void fileSent(State after) {
        file = null;
        if (after == State.LINGERING) {
            // The socket may still have to send most of the file: unread bytes would reset it.
            state = State.LINGERING;
            pending = NONE;
            deadlineS = loop.nowS + LINGER_S_MAX;
            shutOutput();
        } else if (after != State.OPEN) {
            context.close();
        } else if (state == State.SENDING) {
            state = State.OPEN;
            // If the socket takes all bytes at once, sending ends within the current read, which
            // continues.
            if (!isConsuming) {
                resume();
            }
        }
    }

    private void resume() {
        byte[] waiting = pending;
        pending = NONE;
        autoRead(true);
        consume(waiting, waiting.length, true);
        channelReadComplete(context);
        if (hasInputEnded && state == State.OPEN && isAutoRead) {
            closeWhenWritten();
        }
    }

    private void autoRead(boolean isOn) {
        if (isAutoRead != isOn) {
            isAutoRead = isOn;
            context.channel().config().setAutoRead(isOn);
        }
    }

    private void writeOut() {
        if (out == null) {
            return;
        }
        ByteBuf composed = out;
        out = null;
        isFlushDue = true;
        switch (state) {
            case CLOSING -> context.write(composed).addListener(ChannelFutureListener.CLOSE);
            case LINGERING -> context.write(composed).addListener(this::shutOutput);
            default -> context.write(composed, context.voidPromise());
        }
    }

    private void closeWhenWritten() {
        state = State.CLOSING;
        context.writeAndFlush(Unpooled.EMPTY_BUFFER).addListener(ChannelFutureListener.CLOSE);
    }

    private void shutOutput(Future<? super Void> written) {
        if (written.isSuccess()) {
            shutOutput();
        } else {
            context.close();
        }
    }

    private void shutOutput() {
        if (!hasInputEnded && context.channel() instanceof DuplexChannel duplex) {
            isOutputShut = true;
            duplex.shutdownOutput();
            autoRead(true);
        } else {
            context.close();
        }
    }

    private int linger(int received) {
        lingeredBytes += received;
        if (lingeredBytes > LINGER_BYTES_MAX) {
            context.close();
        }
        return received;
    }
}
