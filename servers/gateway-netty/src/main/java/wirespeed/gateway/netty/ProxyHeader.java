// Takes the client's address from the PROXY header of a load balancer in front.
package wirespeed.gateway.netty;

import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.handler.codec.haproxy.HAProxyMessage;
import io.netty.handler.codec.haproxy.HAProxyMessageDecoder;
import io.netty.handler.codec.haproxy.HAProxyProxiedProtocol.AddressFamily;
import io.netty.util.AttributeKey;
import java.net.InetSocketAddress;
import wirespeed.gateway.core.IpAddress;

/** Stands before TLS: the header comes in the clear, before everything else, and only once. */
final class ProxyHeader extends SimpleChannelInboundHandler<HAProxyMessage> {
    private static final AttributeKey<String> CLIENT = AttributeKey.valueOf("client-address");

    private final Loop loop;
    private final Timer timer = new Timer();
    private ChannelHandlerContext channel;

    private ProxyHeader(Loop loop) {
        this.loop = loop;
    }

    private final class Timer extends Wheel.Entry {
        @Override
        void onTimeout(long nowMillis) {
            channel.close();
        }
    }

    /** Puts the reader of the header in front; nothing behind it sees a byte of it. */
    static void install(Channel to, Loop loop) {
        // It fails at the first byte that cannot be a header's, and not at the last.
        to.pipeline().addLast(new HAProxyMessageDecoder(true)).addLast(new ProxyHeader(loop));
    }

    /** The client's address: that of the header, else that of the connection. */
    static String clientAddress(Channel channel) {
        String said = channel.hasAttr(CLIENT) ? channel.attr(CLIENT).get() : null;
        return said != null ? said : ((InetSocketAddress) channel.remoteAddress()).getAddress()
                .getHostAddress();
    }

    @Override
    public void handlerAdded(ChannelHandlerContext context) {
        channel = context;
        loop.readClock();
        loop.wheel.arm(timer, loop.nowMillis() + loop.timeouts.headMillis());
    }

    @Override
    public void handlerRemoved(ChannelHandlerContext context) {
        loop.wheel.remove(timer);
    }

    /** LOCAL and UNKNOWN are the balancer's own checks: they come from where they come from. */
    @Override
    protected void channelRead0(ChannelHandlerContext context, HAProxyMessage header) {
        AddressFamily family = header.proxiedProtocol().addressFamily();
        boolean isNamed = family == AddressFamily.AF_IPv4 || family == AddressFamily.AF_IPv6;
        if (isNamed && header.sourceAddress() != null) {
            byte[] address = IpAddress.parse(header.sourceAddress());
            context.channel().attr(CLIENT).set(address == null ? header.sourceAddress()
                    : IpAddress.text(address));
        }
        context.pipeline().remove(this);
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        // Not a header: whoever this is, it is not the balancer that was announced.
        context.close();
    }
}
