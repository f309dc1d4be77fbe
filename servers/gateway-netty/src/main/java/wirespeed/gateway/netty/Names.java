// Finds the addresses of origins' names on an event loop, without holding it up.
package wirespeed.gateway.netty;

import io.netty.resolver.dns.DnsNameResolver;
import io.netty.resolver.dns.DnsNameResolverBuilder;
import io.netty.resolver.dns.SequentialDnsServerAddressStreamProvider;
import io.netty.util.NetUtil;
import io.netty.util.concurrent.Future;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.List;
import wirespeed.gateway.core.Address;

/** Answers are kept as long as they say, one second at least and thirty at most. One a loop. */
final class Names {
    private static final int TTL_SECONDS_MIN = 1;
    private static final int TTL_SECONDS_MAX = 30;
    private static final int QUERY_MILLIS = 2000;

    private final Loop loop;
    private final InetSocketAddress[] servers;
    private DnsNameResolver resolver;

    /** Refuses servers that are no address and port. */
    Names(Loop loop) {
        this.loop = loop;
        servers = loop.gateway.options("server").texts("dns").stream().map(Names::server)
                .toArray(InetSocketAddress[]::new);
    }

    /** Whether this is an address and no name: then there is nothing to find. */
    static boolean isLiteral(String host) {
        return NetUtil.isValidIpV4Address(host) || NetUtil.isValidIpV6Address(host);
    }

    Future<List<InetAddress>> find(String host) {
        return resolver().resolveAll(host);
    }

    /** Made when the first name is asked for: most configurations have literals only. */
    private DnsNameResolver resolver() {
        if (resolver == null) {
            DnsNameResolverBuilder builder = new DnsNameResolverBuilder(loop.executor)
                    .datagramChannelType(loop.transport.datagram())
                    .queryTimeoutMillis(QUERY_MILLIS).ttl(TTL_SECONDS_MIN, TTL_SECONDS_MAX)
                    .negativeTtl(TTL_SECONDS_MIN);
            if (servers.length > 0) {
                builder.nameServerProvider(new SequentialDnsServerAddressStreamProvider(servers));
            }
            resolver = builder.build();
        }
        return resolver;
    }

    private static InetSocketAddress server(String text) {
        Address address = Address.parse(text);
        if (!isLiteral(address.host())) {
            throw new IllegalArgumentException("server.dns: \"" + text
                    + "\" is no address and port, such as 127.0.0.1:53");
        }
        return new InetSocketAddress(address.host(), address.port());
    }

    void close() {
        if (resolver != null) {
            resolver.close();
        }
    }
}
