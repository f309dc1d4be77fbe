// The end of a client's half of TLS 1.3, which does not end the other half (RFC 8446 §6.1).
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.handler.ssl.ReferenceCountedOpenSslEngine;
import io.netty.handler.ssl.SslHandler;
import io.netty.internal.tcnative.Buffer;
import io.netty.internal.tcnative.SSL;
import java.lang.reflect.Field;

/**
 * Netty's engine over BoringSSL ends both halves as soon as it decrypts close_notify. So that it does not,
 * this stands before it, and decrypts each record that is short enough to be one itself: how long it is
 * made differs by library. Without HTTP/1, TLS 1.3 or BoringSSL everything passes.
 */
final class TlsEnd extends ChannelInboundHandlerAdapter {
    /** The client has said that it sends nothing more. */
    static final Object EVENT = new Object();

    private static final int HEADER_BYTES = 5;
    private static final int HANDSHAKE_BYTE_MIN = 20;
    private static final int DATA_BYTE = 23;
    /** Level, description, type and tag. */
    private static final int ALERT_BYTES_MIN = 19;
    /** With padding: the JDK's is 16 bytes. */
    private static final int ALERT_BYTES_MAX = 64;
    private static final int RECORD_BYTES_MAX = HEADER_BYTES + ALERT_BYTES_MAX;
    private static final int END = -1;
    private static final int FAULT = -2;
    /** The engine's way to the network; null where it is not accessible. */
    private static final Field NETWORK = network();

    private ByteBuf held;
    /** What is missing of a record that passes. */
    private int left;
    private boolean isOff = NETWORK == null;
    private boolean isEnded;

    private static Field network() {
        try {
            Field network = ReferenceCountedOpenSslEngine.class.getDeclaredField("networkBIO");
            network.setAccessible(true);
            return network;
        } catch (ReflectiveOperationException | RuntimeException other) {
            // Another version of Netty, or a module that does not open: both halves end together.
            return null;
        }
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
        ByteBuf in = (ByteBuf) message;
        if (isEnded) {
            in.release();
            return;
        }
        if (isOff) {
            context.fireChannelRead(in);
            return;
        }
        if (held != null) {
            in = held.writeBytes(in);
            ((ByteBuf) message).release();
            held = null;
        }
        try {
            split(context, in);
        } finally {
            in.release();
        }
    }

    /** Passes everything but the end; a record that could be it alone. */
    private void split(ChannelHandlerContext context, ByteBuf in) {
        int at = in.readerIndex();
        while (at < in.writerIndex()) {
            if (left == 0 && !isOff) {
                int available = in.writerIndex() - at;
                boolean isWhole = available >= HEADER_BYTES
                        && (!isShort(in, at) || available >= recordBytes(in, at));
                if (!isWhole) {
                    pass(context, in, at);
                    held = context.alloc().buffer(RECORD_BYTES_MAX).writeBytes(in);
                    return;
                }
                if (isShort(in, at)) {
                    pass(context, in, at);
                    if (isTaken(context, in)) {
                        at = in.readerIndex();
                        continue;
                    }
                    if (isEnded) {
                        return;
                    }
                }
                begin(in, at);
            }
            int count = isOff ? in.writerIndex() - at : Math.min(left, in.writerIndex() - at);
            at += count;
            left -= count;
        }
        pass(context, in, at);
    }

    private void begin(ByteBuf in, int at) {
        int type = in.getUnsignedByte(at);
        // The engine refuses everything else.
        isOff = type < HANDSHAKE_BYTE_MIN || type > DATA_BYTE;
        left = recordBytes(in, at);
    }

    private static int recordBytes(ByteBuf in, int at) {
        return HEADER_BYTES + in.getUnsignedShort(at + 3);
    }

    private static boolean isShort(ByteBuf in, int at) {
        int length = recordBytes(in, at) - HEADER_BYTES;
        return in.getUnsignedByte(at) == DATA_BYTE && length >= ALERT_BYTES_MIN
                && length <= ALERT_BYTES_MAX;
    }

    private static void pass(ChannelHandlerContext context, ByteBuf in, int until) {
        if (until > in.readerIndex()) {
            context.fireChannelRead(in.readRetainedSlice(until - in.readerIndex()));
        }
    }

    /** Decrypts a short record where that is possible; false leaves it to the engine, or is the end. */
    private boolean isTaken(ChannelHandlerContext context, ByteBuf in) {
        SslHandler tls = context.pipeline().get(SslHandler.class);
        boolean isHalfClosable = tls != null && tls.handshakeFuture().isSuccess()
                && tls.engine() instanceof ReferenceCountedOpenSslEngine
                && tls.engine().getSession().getProtocol().equals("TLSv1.3")
                && context.pipeline().get(ClientConnection.class) != null;
        if (!isHalfClosable) {
            return false;
        }
        ByteBuf record = context.alloc().directBuffer(RECORD_BYTES_MAX, RECORD_BYTES_MAX);
        ByteBuf data = context.alloc().directBuffer(RECORD_BYTES_MAX, RECORD_BYTES_MAX);
        try {
            in.readBytes(record, recordBytes(in, in.readerIndex()));
            int count = decrypt((ReferenceCountedOpenSslEngine) tls.engine(), record, data);
            if (count > 0) {
                context.pipeline().context(tls).fireChannelRead(data.writerIndex(count).retain());
            }
            isEnded = count < 0;
            if (isEnded) {
                end(context, count == END);
            }
            return !isEnded;
        } finally {
            record.release();
            data.release();
        }
    }

    /** How much data it holds, or {@link #END}, or {@link #FAULT}; an alert that says nothing has none. */
    private static int decrypt(ReferenceCountedOpenSslEngine engine, ByteBuf record, ByteBuf data) {
        long ssl = engine.sslPointer();
        long network;
        try {
            network = NETWORK.getLong(engine);
        } catch (IllegalAccessException closed) {
            return FAULT;
        }
        if (ssl == 0 || network == 0) {
            return FAULT;
        }
        SSL.bioSetByteBuffer(network, address(record), record.readableBytes(), false);
        try {
            int count = SSL.readFromSSL(ssl, address(data), RECORD_BYTES_MAX);
            if (count > 0) {
                return count;
            }
            int error = SSL.getError(ssl, count);
            return error == SSL.SSL_ERROR_WANT_READ ? 0
                    : error == SSL.SSL_ERROR_ZERO_RETURN ? END : FAULT;
        } finally {
            SSL.clearError();
            SSL.bioClearByteBuffer(network);
        }
    }

    private static long address(ByteBuf direct) {
        return Buffer.address(direct.nioBuffer(0, RECORD_BYTES_MAX));
    }

    private static void end(ChannelHandlerContext context, boolean isSaid) {
        if (isSaid) {
            context.fireUserEventTriggered(EVENT);
        } else {
            // A fatal alert, or a record that is not the client's: from here it passes no other handler.
            context.close();
        }
    }

    @Override
    public void handlerRemoved(ChannelHandlerContext context) {
        if (held != null) {
            held.release();
            held = null;
        }
    }
}
