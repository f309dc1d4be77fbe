// HTTP/2 from clients: frames in, exchanges on the same filters and origins.
package wirespeed.gateway.netty;

import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelPipeline;
import io.netty.handler.codec.http2.Http2Exception;

/** Handlers behind TLS, or behind the socket. */
final class Http2Clients {
    private Http2Clients() {
    }

    /** The codec has answered protocol errors with GOAWAY; what is left over ends the connection. */
    private static final class Faults extends ChannelInboundHandlerAdapter {
        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            if (!(cause instanceof Http2Exception)) {
                context.close();
            }
        }
    }

    /**
     * Puts HTTP/2 behind what is there.
     *
     * @param scheme of the requests: whether the connection is encrypted
     */
    static void install(ChannelPipeline pipeline, Loop loop, String scheme) {
        Http2Codec codec = Http2Codec.of(loop, scheme);
        pipeline.addLast(codec.client());
        pipeline.addLast(codec);
        pipeline.addLast(new Faults());
    }
}
