// Finds the addresses of origins' names by the JVM's resolver.
package wirespeed.gateway.tomcat;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;
import org.apache.hc.client5.http.DnsResolver;

/**
 * While the resolver does not respond, its last response is used for up to an hour more (RFC 8767);
 * a response that the name does not exist is believed at once.
 */
final class Names implements DnsResolver {
    private static final long STALE_NANOS = 3_600_000_000_000L;
    /** Names come and go with configurations; of more than this all are asked for again. */
    private static final int KNOWN_MAX = 1000;

    private record Known(InetAddress[] places, long sinceNanos) {
    }

    private final Map<String, Known> known = new ConcurrentHashMap<>();
    private final DnsResolver resolver;
    private final LongSupplier clockNanos;

    Names(DnsResolver resolver, LongSupplier clockNanos) {
        this.resolver = resolver;
        this.clockNanos = clockNanos;
    }

    @Override
    public InetAddress[] resolve(String host) throws UnknownHostException {
        try {
            InetAddress[] places = resolver.resolve(host);
            if (known.size() >= KNOWN_MAX) {
                known.clear();
            }
            known.put(host, new Known(places, clockNanos.getAsLong()));
            return places;
        } catch (UnknownHostException failed) {
            Known last = known.get(host);
            if (last == null) {
                throw failed;
            }
            if (isNone(failed) || clockNanos.getAsLong() - last.sinceNanos() >= STALE_NANOS) {
                known.remove(host);
                throw failed;
            }
            return last.places();
        }
    }

    /** The JVM reports it in no other way, and goes on for a while afterwards without a reason. */
    private static boolean isNone(UnknownHostException failed) {
        String text = String.valueOf(failed.getMessage());
        return text.endsWith("Name or service not known")
                || text.endsWith("No address associated with hostname");
    }

    @Override
    public String resolveCanonicalHostname(String host) throws UnknownHostException {
        return resolver.resolveCanonicalHostname(host);
    }
}
