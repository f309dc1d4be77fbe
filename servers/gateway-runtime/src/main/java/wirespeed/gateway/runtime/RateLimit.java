// Token buckets by client, route, header or claim, or by several of them together.
package wirespeed.gateway.runtime;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;
import wirespeed.gateway.core.Ascii;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.IpAddress;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.core.Step;

/**
 * A bucket is one number: the time at which it will be full (GCRA), so that taking a token is one
 * compare-and-set. A bucket that no request used until it was full again is forgotten. The table is
 * bounded in keys and in their length; while it is full, new keys share 4,096 buckets.
 */
final class RateLimit extends ShippedFilters.Scoped {
    private static final String HEADER = "header:";
    private static final String CLAIM = "claim:";
    private static final int KEYS_MAX = 100_000;
    private static final int SHARED_BITS = 12;
    /** Addresses and most other names are shorter; what is longer is kept as its hash. */
    private static final int KEY_CHARS_MAX = 64;
    private static final long FORGOTTEN_NANOS_MIN = TimeUnit.SECONDS.toNanos(1);
    private static final long SWEEP_NANOS = TimeUnit.MILLISECONDS.toNanos(100);

    /** One of the things that a bucket is kept for. */
    private interface Part {
        String of(Context context);
    }

    private final Cache<Object, AtomicLong> buckets;
    private final List<Part> key;
    private final long intervalNanos;
    private final long burstNanos;
    private final LongSupplier clock;
    private final AtomicLong sweptNanos;
    /** How often the whole table was looked through. */
    final AtomicLong sweeps = new AtomicLong();

    /**
     * A limit.
     *
     * @param key what has a bucket of its own: each combination of these
     * @param ipv4Bits clients whose addresses share this many first bits are one
     * @param ipv6Bits the same for IPv6
     */
    RateLimit(ShippedFilters.Scope scope, List<String> key, int rate, int burst, int ipv4Bits,
            int ipv6Bits, LongSupplier clock) {
        super(scope, phase(key));
        if (key.isEmpty()) {
            throw new IllegalArgumentException("key is empty");
        }
        this.key = key.stream().map(part -> part(part, ipv4Bits, ipv6Bits)).toList();
        this.intervalNanos = 1_000_000_000L / rate;
        this.burstNanos = intervalNanos * burst;
        this.clock = clock;
        this.sweptNanos = new AtomicLong(clock.getAsLong() - SWEEP_NANOS);
        this.buckets = Caffeine.newBuilder().ticker(clock::getAsLong).executor(Runnable::run)
                .expireAfterAccess(Math.max(burstNanos, FORGOTTEN_NANOS_MIN), TimeUnit.NANOSECONDS)
                .build();
    }

    @Override
    public Step apply(Context context) {
        long waitNanos = take(keyOf(context));
        if (waitNanos <= 0) {
            return Step.NEXT;
        }
        context.category(wirespeed.gateway.core.Category.LIMIT);
        Response response = Response.of(429, "text/plain; charset=utf-8", "too many requests\n");
        response.headers().add("Retry-After",
                String.valueOf((waitNanos + 999_999_999) / 1_000_000_000));
        return Step.respond(response);
    }

    /** Before the route is chosen, unless the key needs it, or the work of other filters. */
    private static Phase phase(List<String> key) {
        return key.contains("route") || hasClaim(key) ? Phase.ROUTE : Phase.PRE;
    }

    private static boolean hasClaim(List<String> key) {
        return key.stream().anyMatch(part -> part.startsWith(CLAIM));
    }

    /** Whether a table asks for a limit by what a token says. */
    static boolean needsTokens(OptionValues values) {
        return values.text("type").equals("rate-limit") && hasClaim(values.texts("key"));
    }

    private static Part part(String text, int ipv4Bits, int ipv6Bits) {
        if (text.equals("client")) {
            return context -> client(context.request().clientAddress(), ipv4Bits, ipv6Bits);
        }
        if (text.equals("route")) {
            return context -> context.route().name();
        }
        if (text.startsWith(HEADER)) {
            String name = named(text, HEADER, "header");
            if (!Ascii.isToken(name)) {
                throw new IllegalArgumentException("key \"" + text + "\": no header field has this name");
            }
            // All lines: otherwise a client would choose a bucket by what it puts first.
            return context -> String.join(",", context.request().headers().all(name));
        }
        if (text.startsWith(CLAIM)) {
            String name = named(text, CLAIM, "claim");
            return context -> claim(context, name);
        }
        throw new IllegalArgumentException("unknown key \"" + text
                + "\" (client, route, header:NAME or claim:NAME)");
    }

    private static String named(String text, String prefix, String what) {
        String name = text.substring(prefix.length()).trim();
        if (name.isEmpty()) {
            throw new IllegalArgumentException("key \"" + text + "\" names no " + what + " (write "
                    + prefix + "NAME)");
        }
        return name;
    }

    /** Empty for a token without it: such clients have one bucket. */
    private static String claim(Context context, String name) {
        Object value = context.attribute(Authentication.Jwt.CLAIMS) instanceof Map<?, ?> claims
                ? claims.get(name) : null;
        return value == null ? "" : value.toString();
    }

    private String keyOf(Context context) {
        if (key.size() == 1) {
            return key.get(0).of(context);
        }
        StringBuilder all = new StringBuilder();
        for (Part part : key) {
            String text = part.of(context);
            // With its length before it no client can write what looks like two parts.
            all.append(text.length()).append(':').append(text);
        }
        return all.toString();
    }

    /** One client has a whole network of IPv6 addresses, mostly a /64. */
    static String client(String address, int ipv4Bits, int ipv6Bits) {
        boolean isIpv6 = address.indexOf(':') >= 0;
        int bits = isIpv6 ? ipv6Bits : ipv4Bits;
        int length = isIpv6 ? 16 : 4;
        byte[] bytes = bits == length * 8 ? null : IpAddress.parse(address);
        if (bytes == null || bytes.length != length) {
            return address;
        }
        for (int bit = bits; bit < length * 8; bit++) {
            bytes[bit / 8] &= (byte) ~(0x80 >> bit % 8);
        }
        return IpAddress.text(bytes) + "/" + bits;
    }

    /** Takes a token; a positive answer is how long until there is one. */
    long take(String name) {
        Object bucket = kept(name);
        AtomicLong full = buckets.getIfPresent(bucket);
        if (full == null) {
            full = buckets.get(bounded(bucket), fresh -> new AtomicLong());
        }
        while (true) {
            long now = clock.getAsLong();
            long before = full.get();
            long after = Math.max(before, now) + intervalNanos;
            if (after - now > burstNanos) {
                return after - now - burstNanos;
            }
            if (full.compareAndSet(before, after)) {
                return 0;
            }
        }
    }

    /** What a bucket is found by. */
    static Object kept(String name) {
        return name.length() > KEY_CHARS_MAX ? KeyHash.of(name) : name;
    }

    /**
     * While it is full, a new key shares one of many buckets, and few of an attacker's keys with it. By a secret
     * hash, so that clients cannot choose keys that share a bucket with another client's.
     */
    private Object bounded(Object bucket) {
        if (!isFull()) {
            return bucket;
        }
        KeyHash hash = bucket instanceof KeyHash known ? known : KeyHash.of((String) bucket);
        return Integer.valueOf((int) (hash.low() >>> 64 - SHARED_BITS));
    }

    /** Buckets that are full again count until they are looked for, which one key in a while does for all. */
    private boolean isFull() {
        if (buckets.estimatedSize() < KEYS_MAX) {
            return false;
        }
        long now = clock.getAsLong();
        long before = sweptNanos.get();
        boolean isDue = now - before >= SWEEP_NANOS && sweptNanos.compareAndSet(before, now);
        return !isDue || size() >= KEYS_MAX;
    }

    /** How many buckets are kept, without the ones that are full again. */
    long size() {
        sweeps.incrementAndGet();
        buckets.cleanUp();
        return buckets.estimatedSize();
    }
}
