// Before TLS: gives it one record at a time, and none while an HTTP/1 client waits for its response.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;

/**
 * BoringSSL's engine ends both halves of a connection when it reads close_notify, which by RFC 8446 §6.1
 * ends the client's alone. What a client sends behind its request is of no interest before the response
 * has left, so the engine gets it then. Looks at the heads of records only, which are not encrypted.
 */
final class RecordGate extends ChannelInboundHandlerAdapter {
    private static final int HEAD_BYTES = 5;
    /** From here on TCP holds what comes. Below, reading goes on, which shows an end of the socket. */
    private static final int HELD_BYTES_MAX = 16 * 1024;

    private ChannelHandlerContext channel;
    private ClientSocket client;
    private boolean isOff;
    /** Of the head of the present record, as far as it has come. */
    private int headBytes;
    private int headLength;
    /** What is missing of the present record behind its head. */
    private int missing;
    private ByteBuf held;
    /** Whether TLS has got something since the last end of a read that it saw. */
    private boolean hasPassed;

    /** Closes while this client waits for a response. */
    void guard(ClientSocket waiting) {
        client = waiting;
    }

    /** From now on everything passes as it comes. */
    void off() {
        isOff = true;
    }

    boolean isHolding() {
        return held != null;
    }

    @Override
    public void handlerAdded(ChannelHandlerContext context) {
        channel = context;
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
        ByteBuf in = (ByteBuf) message;
        if (held == null) {
            pass(in);
            return;
        }
        held.writeBytes(in);
        in.release();
        passHeld();
    }

    /** SslHandler asks the socket for more at the end of a read that brought it nothing, auto-read or not. */
    @Override
    public void channelReadComplete(ChannelHandlerContext context) {
        boolean isFull = held != null && held.readableBytes() > HELD_BYTES_MAX;
        if (hasPassed || !isFull) {
            hasPassed = false;
            context.fireChannelReadComplete();
        }
    }

    private boolean mustWait() {
        return !isOff && client != null && client.isWaiting();
    }

    /** Takes the buffer over. */
    private void pass(ByteBuf in) {
        while (!isOff && in.isReadable()) {
            if (mustWait()) {
                hold(in);
                return;
            }
            if (client != null) {
                // A close_notify in it ends what is not encrypted yet.
                client.flush();
            }
            int count = record(in);
            if (count == in.readableBytes()) {
                break;
            }
            hand(in.readRetainedSlice(count));
        }
        hand(in);
    }

    private void hand(ByteBuf in) {
        hasPassed = true;
        channel.fireChannelRead(in);
    }

    /** In a buffer of its own: that of the loop serves the next read. */
    private void hold(ByteBuf in) {
        held = in.alloc().directBuffer(in.readableBytes()).writeBytes(in);
        in.release();
        client.read(false);
    }

    private void passHeld() {
        if (mustWait()) {
            client.read(false);
        } else {
            ByteBuf in = held;
            held = null;
            pass(in);
        }
    }

    /** How many of the readable bytes belong to the present record. */
    private int record(ByteBuf in) {
        int at = in.readerIndex();
        while (missing == 0 && at < in.writerIndex()) {
            headLength = (headLength << 8 | in.getUnsignedByte(at++)) & 0xffff;
            if (++headBytes == HEAD_BYTES) {
                headBytes = 0;
                missing = headLength;
                if (missing == 0) {
                    break;
                }
            }
        }
        int count = Math.min(missing, in.writerIndex() - at);
        missing -= count;
        return at - in.readerIndex() + count;
    }

    /** The response has left, or nothing is to be waited for. */
    void open() {
        if (held != null) {
            passHeld();
            channelReadComplete(channel);
        }
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        release();
        context.fireChannelInactive();
    }

    @Override
    public void handlerRemoved(ChannelHandlerContext context) {
        release();
    }

    private void release() {
        if (held != null) {
            held.release();
            held = null;
        }
    }
}
