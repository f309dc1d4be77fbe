// Encryption towards clients and towards origins.
package wirespeed.gateway.netty;

import io.netty.channel.Channel;
import io.netty.channel.ChannelHandler;
import io.netty.handler.ssl.ApplicationProtocolConfig;
import io.netty.handler.ssl.ApplicationProtocolNames;
import io.netty.handler.ssl.OpenSsl;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslHandler;
import io.netty.handler.ssl.SslProvider;
import io.netty.util.concurrent.Future;
import java.io.File;
import java.util.List;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.OptionValues;

/** BoringSSL where its library loads, else the JDK's; origins are always verified. */
final class TlsContexts {
    private final SslContext fromClients;
    private final boolean offersHttp2;
    private final int handshakeMillis;
    private final String originCa;
    private SslContext toOrigins;

    /**
     * Reads certificates.
     *
     * @param handshakeMillis how long a client may take to agree on keys
     */
    TlsContexts(OptionValues options, int handshakeMillis) {
        this.handshakeMillis = handshakeMillis;
        offersHttp2 = options.isTrue("http2");
        originCa = options.text("origin-ca");
        fromClients = options.text("certificate").isEmpty() ? null : forClients(options);
    }

    static SslProvider provider() {
        return OpenSsl.isAvailable() ? SslProvider.OPENSSL : SslProvider.JDK;
    }

    private SslContext forClients(OptionValues options) {
        List<String> protocols = offersHttp2
                ? List.of(ApplicationProtocolNames.HTTP_2, ApplicationProtocolNames.HTTP_1_1)
                : List.of(ApplicationProtocolNames.HTTP_1_1);
        try {
            return SslContextBuilder.forServer(new File(options.text("certificate")),
                            new File(options.text("key")))
                    .sslProvider(provider())
                    .protocols("TLSv1.3", "TLSv1.2")
                    .applicationProtocolConfig(new ApplicationProtocolConfig(
                            ApplicationProtocolConfig.Protocol.ALPN,
                            ApplicationProtocolConfig.SelectorFailureBehavior.NO_ADVERTISE,
                            ApplicationProtocolConfig.SelectedListenerFailureBehavior.ACCEPT,
                            protocols))
                    .build();
        } catch (SSLException | IllegalArgumentException e) {
            throw new IllegalArgumentException("tls.certificate or tls.key: " + e.getMessage(), e);
        }
    }

    boolean isOn() {
        return fromClients != null;
    }

    SslHandler fromClient(Channel channel) {
        SslHandler handler = fromClients.newHandler(channel.alloc());
        handler.setHandshakeTimeoutMillis(handshakeMillis);
        return handler;
    }

    /** Encrypts a connection to an origin and verifies its name. */
    ChannelHandler toOrigin(Channel channel, Address address) {
        SslHandler handler = toOrigins().newHandler(channel.alloc(), address.host(),
                address.port());
        SSLEngine engine = handler.engine();
        SSLParameters parameters = engine.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        engine.setSSLParameters(parameters);
        return handler;
    }

    private synchronized SslContext toOrigins() {
        if (toOrigins == null) {
            try {
                SslContextBuilder builder = SslContextBuilder.forClient().sslProvider(provider())
                        .protocols("TLSv1.3", "TLSv1.2");
                toOrigins = originCa.isEmpty() ? builder.build()
                        : builder.trustManager(new File(originCa)).build();
            } catch (SSLException e) {
                throw new IllegalStateException("TLS to origins: " + e.getMessage(), e);
            }
        }
        return toOrigins;
    }

    Future<Channel> handshake(Channel channel) {
        return channel.pipeline().get(SslHandler.class).handshakeFuture();
    }
}
