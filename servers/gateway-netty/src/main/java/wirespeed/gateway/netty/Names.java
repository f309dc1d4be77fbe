// Finds the addresses of origins' names on an event loop, without holding it up.
package wirespeed.gateway.netty;

import io.netty.handler.codec.dns.DnsResponseCode;
import io.netty.resolver.dns.DnsErrorCauseException;
import io.netty.resolver.dns.DnsNameResolver;
import io.netty.resolver.dns.DnsNameResolverBuilder;
import io.netty.resolver.dns.SequentialDnsServerAddressStreamProvider;
import io.netty.util.NetUtil;
import io.netty.util.concurrent.Future;
import io.netty.util.concurrent.Promise;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import wirespeed.gateway.core.Address;

/**
 * Answers are kept as long as they say, one second at least and thirty at most. Where no server answers,
 * or none can, the last answer is used for up to an hour more and asked for meanwhile (RFC 8767); a server
 * that answers that the name does not exist is believed at once. One per loop.
 */
final class Names {
    private static final int TTL_SECONDS_MIN = 1;
    private static final int TTL_SECONDS_MAX = 30;
    private static final int QUERY_MILLIS = 2000;

    private static final long STALE_MILLIS = 3_600_000;
    /** Of more names than this the oldest answers are forgotten. */
    private static final int KNOWN_MAX = 1000;

    /** The last answer about a name. */
    private static final class Known {
        private List<InetAddress> places;
        private long sinceMillis;
        /** Nobody answered since then: the next ones do not wait for it. */
        private boolean isStale;
        private boolean isAsked;
    }

    private final Map<String, Known> known = new LinkedHashMap<>();
    private final Loop loop;
    private final InetSocketAddress[] servers;
    private DnsNameResolver resolver;

    /** Refuses servers that are not an address and a port. */
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
        Known last = known.get(host);
        if (last != null && last.isStale && isUsable(last)) {
            if (!last.isAsked) {
                last.isAsked = true;
                ask(host).addListener(answered -> last.isAsked = false);
            }
            return loop.executor.newSucceededFuture(last.places);
        }
        return ask(host);
    }

    private Future<List<InetAddress>> ask(String host) {
        Promise<List<InetAddress>> promise = loop.executor.newPromise();
        resolver().resolveAll(host).addListener((Future<List<InetAddress>> answer) -> {
            if (answer.isSuccess()) {
                remember(host, answer.getNow());
                promise.setSuccess(answer.getNow());
                return;
            }
            Known last = known.get(host);
            if (last == null || !isUsable(last) || isNone(answer.cause())) {
                known.remove(host);
                promise.setFailure(answer.cause());
                return;
            }
            last.isStale = true;
            promise.setSuccess(last.places);
        });
        return promise;
    }

    private void remember(String host, List<InetAddress> places) {
        Known now = known.computeIfAbsent(host, name -> new Known());
        now.places = places;
        now.sinceMillis = loop.nowMillis();
        now.isStale = false;
        if (known.size() > KNOWN_MAX) {
            known.remove(known.keySet().iterator().next());
        }
    }

    private boolean isUsable(Known last) {
        return loop.nowMillis() - last.sinceMillis < STALE_MILLIS;
    }

    /**
     * Whether a server has answered that the name does not exist. Of other failures Netty does not always keep
     * the cause: a fault of the server may look as if it knew no address.
     */
    private static boolean isNone(Throwable failed) {
        for (Throwable cause = failed; cause != null; cause = cause.getCause()) {
            if (cause instanceof DnsErrorCauseException told
                    && told.getCode().equals(DnsResponseCode.NXDOMAIN)) {
                return true;
            }
        }
        return false;
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
                    + "\" is not an address and a port, such as 127.0.0.1:53");
        }
        return new InetSocketAddress(address.host(), address.port());
    }

    void close() {
        if (resolver != null) {
            resolver.close();
        }
    }
}
