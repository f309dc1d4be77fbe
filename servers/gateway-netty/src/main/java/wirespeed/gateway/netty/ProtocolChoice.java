// Takes the protocol that was agreed on during the TLS handshake.
package wirespeed.gateway.netty;

import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.ssl.ApplicationProtocolNames;
import io.netty.handler.ssl.ApplicationProtocolNegotiationHandler;

/** HTTP/2 when the client offered it, else HTTP/1.1; without TLS it cannot be negotiated. */
final class ProtocolChoice extends ApplicationProtocolNegotiationHandler {
    private final Loop loop;

    ProtocolChoice(Loop loop) {
        super(ApplicationProtocolNames.HTTP_1_1);
        this.loop = loop;
    }

    @Override
    protected void configurePipeline(ChannelHandlerContext context, String protocol) {
        Beginning.over(context);
        if (ApplicationProtocolNames.HTTP_2.equals(protocol)) {
            context.pipeline().get(RecordGate.class).off();
            Http2Clients.install(context.pipeline(), loop, "https");
        } else {
            context.pipeline().addLast(new ClientConnection(loop, true));
        }
    }

    @Override
    protected void handshakeFailure(ChannelHandlerContext context, Throwable cause) {
        // Scanners and old clients; the counter of accepted connections shows them.
        context.close();
    }
}
