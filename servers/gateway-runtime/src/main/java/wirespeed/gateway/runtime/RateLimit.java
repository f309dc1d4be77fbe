// Token buckets by client, route or header.
package wirespeed.gateway.runtime;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.core.Step;

/**
 * A bucket is one number: the time at which it will be full (GCRA), so that taking a token is one
 * compare-and-set. A bucket that nobody asked for until it was full again is forgotten. The table is
 * bounded in keys and in their length; while it is full, new keys share one bucket.
 */
final class RateLimit extends ShippedFilters.Scoped {
    private static final int KEYS_MAX = 100_000;
    /** Addresses and most other names are shorter; what is longer is kept as its hash. */
    private static final int KEY_CHARS_MAX = 64;
    private static final long FORGOTTEN_NANOS_MIN = TimeUnit.SECONDS.toNanos(1);

    private final Cache<Object, AtomicLong> buckets;
    private final String key;
    private final long intervalNanos;
    private final long burstNanos;
    private final LongSupplier clock;

    RateLimit(ShippedFilters.Scope scope, String key, int rate, int burst, LongSupplier clock) {
        super(scope, key.equals("route") ? Phase.ROUTE : Phase.PRE);
        if (!key.equals("client") && !key.equals("route") && !key.startsWith("header:")) {
            throw new IllegalArgumentException("key \"" + key
                    + "\" is none of client, route and header:NAME");
        }
        this.key = key;
        this.intervalNanos = 1_000_000_000L / rate;
        this.burstNanos = intervalNanos * burst;
        this.clock = clock;
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

    private String keyOf(Context context) {
        if (key.startsWith("header:")) {
            String value = context.request().headers().get(key.substring(7));
            return value == null ? "" : value;
        }
        return key.equals("route") ? context.route().name() : context.request().clientAddress();
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

    private Object bounded(Object bucket) {
        return buckets.estimatedSize() < KEYS_MAX || size() < KEYS_MAX ? bucket : "";
    }

    /** How many buckets are kept, without those that are full again. */
    long size() {
        buckets.cleanUp();
        return buckets.estimatedSize();
    }
}
