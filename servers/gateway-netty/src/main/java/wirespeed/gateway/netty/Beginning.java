// A connection before its protocol is known: the drain waits for it, too.
package wirespeed.gateway.netty;

import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;

/** Goes when the handler of the protocol comes; the time for that is bounded elsewhere. */
final class Beginning extends ChannelInboundHandlerAdapter implements Drainable {
    private final Loop loop;
    private ChannelHandlerContext channel;
    private boolean isDrained;
    private long untilMillis;

    Beginning(Loop loop) {
        this.loop = loop;
    }

    @Override
    public void handlerAdded(ChannelHandlerContext context) {
        channel = context;
        loop.clients.add(this);
        if (loop.isStopping()) {
            drain();
        }
    }

    /** The protocol is known. */
    static void over(ChannelHandlerContext context) {
        Beginning own = context.pipeline().get(Beginning.class);
        if (own != null) {
            context.pipeline().remove(own);
        }
    }

    @Override
    public void handlerRemoved(ChannelHandlerContext context) {
        loop.clients.remove(this);
    }

    @Override
    public void drain() {
        if (!isDrained) {
            isDrained = true;
            loop.readClock();
            untilMillis = loop.nowMillis() + FIRST_MILLIS;
        }
    }

    @Override
    public boolean isWritten() {
        return !isDrained || loop.nowMillis() >= untilMillis || !channel.channel().isOpen();
    }

    @Override
    public boolean relieve(long sinceMillis) {
        return false;
    }
}
