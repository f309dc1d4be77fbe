// A named group of addresses that serve the same thing.
package wirespeed.gateway.core;

import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;

/** Part of a snapshot; its addresses live longer. */
public final class Origin {
    /**
     * How an origin is used.
     *
     * @param connectMillis for one connection, without its TLS handshake
     * @param responseMillis from the request's last byte to the response head
     * @param idleBodyMillis between two pieces of a response body
     * @param connectionsMax per address, over all loops
     * @param connectionRequestsMax on one connection, which is closed after them
     * @param connectionAgeMillis after which a connection is not used again
     * @param waitersMax requests that wait for a connection, per loop
     * @param slowStartMillis over which an address that comes back gets its share again
     * @param retries on other addresses, for idempotent requests only
     * @param passesInterim whether clients get interim responses
     * @param preserveHost whether the origin gets the client's Host or its own
     * @param tls whether connections to it are encrypted
     * @param hashKey what method hash uses: "client", "path", "header:NAME" or "cookie:NAME"
     * @param persistence how clients are bound to an address
     * @param check active health checks; null for none
     * @param retry what an answer means for the next attempt
     * @param http2 whether it is asked by HTTP/2
     * @param requestTrailers whether trailers of requests go on to it
     * @param tlsName the name that is asked for and verified; empty for that of the address
     */
    public record Settings(int connectMillis, int responseMillis, int idleBodyMillis,
            int connectionsMax, int connectionRequestsMax, int connectionAgeMillis,
            int waitersMax, int slowStartMillis, int retries,
            boolean passesInterim, boolean preserveHost, boolean tls, String hashKey,
            Persistence persistence, HealthCheck check, Retry retry,
            Http2 http2, boolean requestTrailers, String tlsName) {
        public static final Settings DEFAULT = new Settings(1000, 20_000, 30_000, 4096,
                100_000, 600_000, 1000, 10_000, 1, false, true, false, "client", Persistence.NONE, null,
                Retry.DEFAULT, Http2.OFF, false, "");

        /** For the TLS handshake of a connection, which may need more than the connection itself. */
        public int handshakeMillis() {
            return Math.max(HandshakeTime.millis, connectMillis);
        }

        /** What a certificate of this address must be for. */
        public String tlsName(Address address) {
            return tlsName.isEmpty() ? address.name() : tlsName;
        }
    }

    /** When an origin is asked by HTTP/2. */
    public enum Http2 {
        OFF,
        /** When it chooses so in the TLS handshake. */
        ALPN,
        /** Without TLS, from the first byte on (RFC 9113 §3.3). */
        PRIOR_KNOWLEDGE
    }

    /** So that even the first moment of a slow start brings some requests. */
    private static final double SHARE_MIN = 0.1;
    /** Of so many requests, about, the retry budget is a share. */
    static final int REMEMBERED = 10_000;
    /** So many connections may have been closed while unused, and one in a hundred requests more. */
    static final int STALE_FREE = 20;
    private final String name;
    private final List<Address> addresses;
    private volatile Endpoints endpoints = new Endpoints(-1, new Address[0]);
    private final Balancer.Method method;
    private final Balancer balancer;
    private final Settings settings;
    private final AtomicLong requests = new AtomicLong();
    private final AtomicLong retried = new AtomicLong();
    private final AtomicLong stale = new AtomicLong();

    public Origin(String name, List<Address> addresses, Balancer.Method method,
            Settings settings) {
        this.name = name;
        this.addresses = List.copyOf(addresses);
        this.method = method;
        this.balancer = Balancer.of(method);
        this.settings = settings;
    }

    public String name() {
        return name;
    }

    /** As they are configured; a name is one of them, wherever it leads. */
    public List<Address> addresses() {
        return addresses;
    }

    private record Endpoints(long moves, Address[] all) {
    }

    /** All that may be asked: literal addresses, and where names lead now. */
    public List<Address> endpoints() {
        return List.of(all());
    }

    private Address[] all() {
        long moves = 0;
        for (int i = 0; i < addresses.size(); i++) {
            moves += addresses.get(i).moves();
        }
        Endpoints now = endpoints;
        if (now.moves() != moves) {
            now = new Endpoints(moves, addresses.stream()
                    .flatMap(address -> address.endpoints().stream()).toArray(Address[]::new));
            endpoints = now;
        }
        return now.all();
    }

    public Settings settings() {
        return settings;
    }

    public Balancer.Method method() {
        return method;
    }

    /**
     * The address for this exchange, or null when none is usable.
     *
     * @param not an address that was tried already, or null
     */
    public Address choose(Context context, Address not, long nowMillis) {
        Address[] all = all();
        if (all.length == 1) {
            // Without another address an ejection would only turn some failures into all.
            boolean isUsable = all[0].isUsable(nowMillis) || isOnlyEjected(all[0]);
            return all[0] != not && isUsable ? chosen(all[0], nowMillis) : null;
        }
        Address bound = settings.persistence().bound(context, this);
        if (bound != null && bound != not && bound.servesBound(nowMillis)) {
            return chosen(bound, nowMillis);
        }
        Address[] usable = new Address[all.length];
        int count = candidates(all, usable, not, nowMillis);
        return count == 0 ? null
                : chosen(balancer.choose(usable, count, hashKey(context)), nowMillis);
    }

    /** Whether {@link #choose} finds an address other than {@code not}. */
    boolean hasOther(Context context, Address not, long nowMillis) {
        Address[] all = all();
        if (all.length == 1) {
            return false;
        }
        Address bound = settings.persistence().bound(context, this);
        return bound != null && bound != not && bound.servesBound(nowMillis)
                || candidates(all, new Address[all.length], not, nowMillis) > 0;
    }

    private static Address chosen(Address address, long nowMillis) {
        if (address.breaker().isOpen()) {
            address.breaker().chosen(nowMillis);
        }
        return address;
    }

    /** Endpoints in use; else the reserves; else the ejected ones, too. */
    private int candidates(Address[] all, Address[] into, Address not, long nowMillis) {
        int count = usable(all, into, not, nowMillis, false);
        if (count == 0) {
            count = usable(all, into, not, nowMillis, true);
            if (count > 0) {
                return count;
            }
        }
        count = withEjected(all, into, count, not, nowMillis, false);
        return count > 0 ? count : withEjected(all, into, 0, not, nowMillis, true);
    }

    private int usable(Address[] all, Address[] into, Address not, long nowMillis,
            boolean backup) {
        int count = 0;
        Address spared = null;
        for (Address address : all) {
            if (address.isBackup() != backup || address == not
                    || !address.isUsable(nowMillis)) {
                continue;
            }
            if (isSpared(address, nowMillis)) {
                spared = address;
            } else {
                into[count++] = address;
            }
        }
        if (count == 0 && spared != null) {
            into[count++] = spared;
        }
        return count;
    }

    /**
     * At most half of the addresses are left out for passive failures: when most seem to fail, the
     * fault is rarely theirs, and the rest would be overrun. Chance says which ones come back, so
     * that one that is well again is found even when another one stays dead.
     */
    private int withEjected(Address[] all, Address[] into, int count, Address not,
            long nowMillis, boolean backup) {
        if (count * 2 >= all.length) {
            return count;
        }
        int excess = -(all.length / 2);
        for (Address address : all) {
            boolean isEjected = address.isBackup() == backup && isOnlyEjected(address)
                    && !address.isUsable(nowMillis);
            excess += isEjected ? 1 : 0;
        }
        int found = count;
        int start = ThreadLocalRandom.current().nextInt(all.length);
        for (int i = 0; i < all.length && excess > 0; i++) {
            Address address = all[(start + i) % all.length];
            if (address.isBackup() == backup && address != not && isOnlyEjected(address)
                    && !isAmong(into, found, address)) {
                into[found++] = address;
                excess--;
            }
        }
        return found;
    }

    private static boolean isAmong(Address[] some, int count, Address address) {
        for (int i = 0; i < count; i++) {
            if (some[i] == address) {
                return true;
            }
        }
        return false;
    }

    /** Slow start: an address that came back is left out by chance, less and less often. */
    private boolean isSpared(Address address, long nowMillis) {
        long back = nowMillis - address.returnedMillis();
        if (back >= settings.slowStartMillis()) {
            return false;
        }
        double share = Math.max(SHARE_MIN, (double) back / settings.slowStartMillis());
        return ThreadLocalRandom.current().nextDouble() >= share;
    }

    private static boolean isOnlyEjected(Address address) {
        return address.isWhole() && address.isChecked()
                && address.administration() == Address.Administration.UP;
    }

    private String hashKey(Context context) {
        if (method != Balancer.Method.HASH) {
            return null;
        }
        return RequestKey.of(context.request(), settings.hashKey());
    }

    /**
     * An address has answered: for its breaker that is a success or a failure.
     *
     * @param waitedMillis from the end of the request to the head of its answer: how long a client took to
     *     send it says nothing about the address
     * @param askedMillis when the attempt began
     */
    public void judge(Address address, int status, long waitedMillis, long askedMillis, long nowMillis) {
        if (settings.retry().isFailure(status, waitedMillis)) {
            address.failed(askedMillis, nowMillis);
        } else {
            address.succeeded(askedMillis);
        }
    }

    /** Counts a request towards the retry budget. */
    public void countRequest() {
        long count = requests.get() + 1;
        if (count >= REMEMBERED) {
            // Years without a failure must not save up for a storm of retries.
            count /= 2;
            retried.lazySet(retried.get() / 2);
            stale.lazySet(stale.get() / 2);
        }
        requests.lazySet(count);
    }

    /** Whether one more connection may end at its next request without being a failure. */
    boolean takesStale() {
        if (stale.get() * 100 > requests.get() + STALE_FREE * 100) {
            return false;
        }
        stale.incrementAndGet();
        return true;
    }

    /** Whether one more retry stays within the budget (plus a few to begin with). */
    public boolean takesRetry() {
        if (retried.get() * 100 > (requests.get() + 50) * settings.retry().budgetPercent()) {
            return false;
        }
        retried.incrementAndGet();
        return true;
    }
}
