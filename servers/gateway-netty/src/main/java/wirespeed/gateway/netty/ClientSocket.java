// The socket side of a client's HTTP/1 connection: who it is, whether it is read, how it ends.
package wirespeed.gateway.netty;

import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.socket.DuplexChannel;
import io.netty.handler.codec.DecoderException;
import io.netty.handler.ssl.SslHandler;
import io.netty.util.ReferenceCountUtil;
import java.io.IOException;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.runtime.ThrottledLog;

/**
 * A class of its own and no object of its own: each object that a connection touches after a wait
 * comes from far memory.
 */
abstract class ClientSocket extends ChannelInboundHandlerAdapter implements Drainable {
    private static final int LINGER_MILLIS = 2000;

    final Loop loop;
    final ResponseOut out;
    final ClientDeadline deadline;
    private final boolean isTls;
    /** Null without TLS. */
    private final PeerCertificate certificate;
    /** Null without TLS. */
    private RecordGate gate;
    private ChannelHandlerContext channel;
    private String address;
    private boolean isInputShut;
    /** Answered for the last time, or closed; what comes now is dropped. */
    private boolean isOver;
    private boolean isShut;
    private boolean isClosed;

    ClientSocket(Loop loop, boolean isTls) {
        this.loop = loop;
        this.isTls = isTls;
        certificate = isTls ? new PeerCertificate(loop.tls) : null;
        out = new ResponseOut(loop);
        deadline = new ClientDeadline(loop, this::timedOut);
    }

    /** The client has not done in time what it is waited for. */
    abstract void timedOut();

    @Override
    public void handlerAdded(ChannelHandlerContext context) {
        channel = context;
        gate = context.pipeline().get(RecordGate.class);
        if (gate != null) {
            gate.guard(this);
        }
        loop.readClock();
        out.attach(context);
        loop.clients.add(this);
        loop.meters.add(Meters.Count.CONNECTIONS_ACCEPTED, 1);
        loop.meters.add(Meters.Count.CONNECTIONS_OPEN, 1);
        deadline.within(loop.timeouts.keepAliveMillis());
        if (loop.isStopping()) {
            drain();
        }
    }

    /** Says in a request from whom it comes. */
    void introduce(Request request) {
        if (address == null) {
            address = ProxyHeader.clientAddress(channel.channel());
        }
        request.clientAddress(address);
        if (isTls) {
            request.scheme("https");
            request.clientCertificate(certificate.of(channel.channel()));
        }
    }

    /** Whether it waits for a response, or has to take one first; what it sends meanwhile is for later. */
    abstract boolean isWaiting();

    /** Goes on with what has waited before TLS while a response was on its way. */
    void openGate() {
        if (gate != null) {
            gate.open();
        }
    }

    boolean isGateHolding() {
        return gate != null && gate.isHolding();
    }

    boolean isReading() {
        return channel.channel().config().isAutoRead();
    }

    void read(boolean isOn) {
        // Nothing comes from a half that is shut.
        if (!isOn || !isInputShut) {
            channel.channel().config().setAutoRead(isOn);
        }
    }

    public boolean isWritable() {
        return out.isWritable();
    }

    public void flush() {
        if (!isOver) {
            out.flush();
        }
    }

    /** The client has shut its half. */
    void inputShut() {
        isInputShut = true;
        if (isShut) {
            close();
        }
    }

    boolean isInputShut() {
        return isInputShut;
    }

    /** Whether it can still get data once it has shut its half: BoringSSL ends both together. */
    boolean isHalfClosable() {
        return !isTls;
    }

    boolean isOver() {
        return isOver;
    }

    /**
     * Closes at once if all of the answer is with the socket. RFC 9112 §9.6: a client that said
     * close, and whose request was read, sends nothing more, so no byte can turn this into a reset.
     */
    boolean closeIfSent() {
        if (!isTls) {
            out.flush();
        }
        boolean isSent = !isTls && out.isAllSent();
        if (isSent) {
            close();
        }
        return isSent;
    }

    /** Ends the connection in a way that lets the client read the last answer. */
    void linger() {
        if (isOver) {
            return;
        }
        isOver = true;
        deadline.waits();
        out.flush();
        deadline.within(loop.timeouts.sendMillis());
        if (!channel.channel().isOpen()) {
            close();
            return;
        }
        read(true);
        // Shutting down drops what is not written yet, so it waits for the last byte.
        channel.writeAndFlush(Unpooled.EMPTY_BUFFER).addListener(written -> shutdown());
    }

    /** Closes behind what TLS has encrypted: it encrypts nothing more, and so nothing that would wait for it. */
    void closeBehindSent() {
        if (isOver) {
            return;
        }
        isOver = true;
        deadline.waits();
        deadline.within(loop.timeouts.sendMillis());
        channel.pipeline().firstContext().writeAndFlush(Unpooled.EMPTY_BUFFER).addListener(sent -> {
            loop.readClock();
            close();
        });
    }

    private void shutdown() {
        if (isClosed) {
            return;
        }
        loop.readClock();
        if (isInputShut) {
            close();
            return;
        }
        deadline.within(LINGER_MILLIS);
        isShut = true;
        if (!isTls) {
            shutOutput();
            return;
        }
        // TLS says its end first. Further bytes of the client are not worth decrypting.
        channel.pipeline().addFirst(new Waste());
        channel.pipeline().get(SslHandler.class).closeOutbound().addListener(said -> shutOutput());
    }

    private void shutOutput() {
        if (!isClosed) {
            ((DuplexChannel) channel.channel()).shutdownOutput();
        }
    }

    /** Before TLS: drops what comes after the last answer. */
    private static final class Waste extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext context, Object bytes) {
            ReferenceCountUtil.release(bytes);
        }
    }

    /** Ends with a reset: a body that ends with the connection must not look complete. */
    public void cut() {
        channel.channel().config().setOption(ChannelOption.SO_LINGER, 0);
        end(true);
    }

    void close() {
        end(isShut);
    }

    /** Without TLS's own end, where that was said before or shall be missing. */
    private void end(boolean isWordless) {
        isOver = true;
        if (!isClosed) {
            isClosed = true;
            deadline.none();
            out.flush();
            if (isWordless) {
                // A close here passes no handler, and so not TLS.
                channel.pipeline().firstContext().close();
            } else {
                channel.close();
            }
        }
    }

    @Override
    public boolean isWritten() {
        ChannelOutboundBuffer pending = channel.channel().unsafe().outboundBuffer();
        return pending == null || pending.totalPendingWriteBytes() == 0;
    }

    /** Whether the last answer still waits for the client. */
    boolean isLastAwaited() {
        return isOver && !isClosed && !isWritten();
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        loop.readClock();
        isOver = true;
        isClosed = true;
        deadline.none();
        loop.clients.remove(this);
        loop.meters.add(Meters.Count.CONNECTIONS_OPEN, -1);
        out.discard();
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        // Resets end in channelInactive; other exceptions are not expected, and are not hidden.
        if (!(cause instanceof IOException) && !(cause instanceof DecoderException)) {
            ThrottledLog.fault("a client connection", cause);
        }
        close();
    }
}
