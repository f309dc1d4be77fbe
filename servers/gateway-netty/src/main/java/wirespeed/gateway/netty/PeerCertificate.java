// The description of one client's certificate for origins.
package wirespeed.gateway.netty;

import io.netty.channel.Channel;

/** Described once for a connection, when its first request asks. */
final class PeerCertificate {
    private final TlsContexts tls;
    private String described;
    private boolean isKnown;

    PeerCertificate(TlsContexts tls) {
        this.tls = tls;
    }

    /** Null for a client without one. */
    String of(Channel channel) {
        if (!isKnown) {
            isKnown = true;
            described = tls.clientCertificate(channel);
        }
        return described;
    }
}
