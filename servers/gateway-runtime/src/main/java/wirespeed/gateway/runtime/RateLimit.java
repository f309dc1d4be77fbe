// Token buckets by client, route or header.
package wirespeed.gateway.runtime;

import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.core.Step;

/**
 * A bucket is one number: the time at which it will be full (GCRA), so that taking a token is one
 * compare-and-set. The table of keys is bounded; when it is full, buckets that are full again go
 * first, and a flood of new keys shares one bucket.
 */
final class RateLimit extends ShippedFilters.Scoped {
    private static final int KEYS_MAX = 100_000;

    private final ConcurrentHashMap<String, AtomicLong> buckets = new ConcurrentHashMap<>();
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
        AtomicLong full = buckets.get(name);
        if (full == null) {
            full = buckets.computeIfAbsent(bounded(name), fresh -> new AtomicLong());
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

    private String bounded(String name) {
        if (buckets.size() < KEYS_MAX) {
            return name;
        }
        long now = clock.getAsLong();
        buckets.values().removeIf(full -> full.get() <= now);
        return buckets.size() < KEYS_MAX ? name : "";
    }
}
