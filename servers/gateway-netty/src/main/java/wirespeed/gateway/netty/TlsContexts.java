// Encryption towards clients and towards origins.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBufAllocator;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandler;
import io.netty.handler.ssl.ApplicationProtocolConfig;
import io.netty.handler.ssl.ApplicationProtocolNames;
import io.netty.handler.ssl.ClientAuth;
import io.netty.handler.ssl.OpenSsl;
import io.netty.handler.ssl.SniHandler;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslHandler;
import io.netty.handler.ssl.SslProvider;
import io.netty.util.concurrent.Future;
import io.netty.util.DomainWildcardMappingBuilder;
import io.netty.util.Mapping;
import java.io.File;
import java.security.cert.X509Certificate;
import java.util.List;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLPeerUnverifiedException;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.ClientCertificate;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Origin;
import wirespeed.gateway.runtime.ServerCertificate;
import wirespeed.gateway.runtime.TlsRules;

/** BoringSSL where its library loads, else the JDK's; origins are always verified. */
final class TlsContexts {
    private final OptionValues options;
    private volatile Mapping<? super String, SslContext> fromClients;
    private final ClientAuth clientAuth;
    private final boolean offersHttp2;
    private final int handshakeMillis;
    private final String originCa;
    private final TlsRules rules;
    private SslContext toOrigins;
    private SslContext http2ToOrigins;

    /**
     * Reads certificates.
     *
     * @param handshakeMillis how long a client may take to agree on keys
     */
    TlsContexts(OptionValues options, int handshakeMillis) {
        this.handshakeMillis = handshakeMillis;
        offersHttp2 = options.isTrue("http2");
        originCa = options.text("origin-ca");
        this.options = options;
        rules = TlsRules.of(options);
        clientAuth = switch (options.text("client-auth")) {
            case "required" -> ClientAuth.REQUIRE;
            case "optional" -> ClientAuth.OPTIONAL;
            default -> ClientAuth.NONE;
        };
        if (clientAuth != ClientAuth.NONE && options.text("client-ca").isEmpty()) {
            throw new IllegalArgumentException("tls.client-auth needs tls.client-ca");
        }
        readCertificates();
    }

    /** For new connections; existing ones keep what they agreed on. */
    void readCertificates() {
        List<ServerCertificate> all = ServerCertificate.of(options);
        if (all.isEmpty()) {
            return;
        }
        DomainWildcardMappingBuilder<SslContext> byName =
                new DomainWildcardMappingBuilder<>(forClients(all.get(0)));
        for (ServerCertificate more : all.subList(1, all.size())) {
            SslContext context = forClients(more);
            more.names().forEach(name -> byName.add(name, context));
        }
        fromClients = byName.build();
    }

    /** The description of a client's certificate for origins; null without one. */
    String clientCertificate(Channel channel) {
        SslHandler handler = clientAuth == ClientAuth.NONE ? null
                : channel.pipeline().get(SslHandler.class);
        if (handler == null) {
            return null;
        }
        try {
            return ClientCertificate.describe((X509Certificate) handler.engine().getSession()
                    .getPeerCertificates()[0]);
        } catch (SSLPeerUnverifiedException showsNone) {
            return null;
        }
    }

    static SslProvider provider() {
        return OpenSsl.isAvailable() ? SslProvider.OPENSSL : SslProvider.JDK;
    }

    private SslContext forClients(ServerCertificate certificate) {
        List<String> protocols = offersHttp2
                ? List.of(ApplicationProtocolNames.HTTP_2, ApplicationProtocolNames.HTTP_1_1)
                : List.of(ApplicationProtocolNames.HTTP_1_1);
        try {
            SslContextBuilder builder = SslContextBuilder.forServer(certificate.chain(),
                    certificate.key());
            if (clientAuth != ClientAuth.NONE) {
                builder.trustManager(new File(options.text("client-ca")));
            }
            return builder.clientAuth(clientAuth).sslProvider(provider())
                    .protocols(rules.protocols()).ciphers(rules.ciphers())
                    .applicationProtocolConfig(alpn(protocols)).build();
        } catch (SSLException | IllegalArgumentException e) {
            throw new IllegalArgumentException(certificate.chain() + " or " + certificate.key()
                    + ": " + e.getMessage(), e);
        }
    }

    boolean isOn() {
        return fromClients != null;
    }

    /** Chooses the certificate by the name that the client asks for, and encrypts. */
    ChannelHandler fromClient() {
        return new SniHandler(fromClients, 0, handshakeMillis) {
            @Override
            protected SslHandler newSslHandler(SslContext context, ByteBufAllocator allocator) {
                SslHandler handler = super.newSslHandler(context, allocator);
                handler.setHandshakeTimeoutMillis(handshakeMillis);
                return handler;
            }
        };
    }

    /** Encrypts a connection to an origin and verifies its name. */
    ChannelHandler toOrigin(Channel channel, Address address, Origin.Settings settings) {
        boolean mayBeHttp2 = settings.http2() == Origin.Http2.ALPN;
        SslHandler handler = toOrigins(mayBeHttp2).newHandler(channel.alloc(),
                settings.tlsName(address), address.port());
        SSLEngine engine = handler.engine();
        SSLParameters parameters = engine.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        engine.setSSLParameters(parameters);
        handler.setHandshakeTimeoutMillis(settings.handshakeMillis());
        return handler;
    }

    private synchronized SslContext toOrigins(boolean mayBeHttp2) {
        if (mayBeHttp2) {
            http2ToOrigins = http2ToOrigins == null ? forOrigins(true) : http2ToOrigins;
            return http2ToOrigins;
        }
        toOrigins = toOrigins == null ? forOrigins(false) : toOrigins;
        return toOrigins;
    }

    private SslContext forOrigins(boolean mayBeHttp2) {
        SslContextBuilder builder = SslContextBuilder.forClient().sslProvider(provider())
                .protocols("TLSv1.3", "TLSv1.2");
        if (mayBeHttp2) {
            builder.applicationProtocolConfig(alpn(List.of(ApplicationProtocolNames.HTTP_2,
                    ApplicationProtocolNames.HTTP_1_1)));
        }
        try {
            return originCa.isEmpty() ? builder.build()
                    : builder.trustManager(new File(originCa)).build();
        } catch (SSLException e) {
            throw new IllegalStateException("TLS to origins: " + e.getMessage(), e);
        }
    }

    private static ApplicationProtocolConfig alpn(List<String> protocols) {
        return new ApplicationProtocolConfig(ApplicationProtocolConfig.Protocol.ALPN,
                ApplicationProtocolConfig.SelectorFailureBehavior.NO_ADVERTISE,
                ApplicationProtocolConfig.SelectedListenerFailureBehavior.ACCEPT, protocols);
    }

    /** Whether both sides of an encrypted connection have chosen HTTP/2. */
    boolean isHttp2(Channel channel) {
        SslHandler handler = channel.pipeline().get(SslHandler.class);
        return handler != null
                && ApplicationProtocolNames.HTTP_2.equals(handler.applicationProtocol());
    }

    Future<Channel> handshake(Channel channel) {
        return channel.pipeline().get(SslHandler.class).handshakeFuture();
    }
}
