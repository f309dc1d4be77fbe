// Counters and buckets of one event loop, read racily when somebody asks.
package wirespeed.gateway.core;

import java.util.concurrent.atomic.AtomicLongArray;

/**
 * Written by one thread with plain adds (a carrier of threads shares one and uses atomic adds); a
 * scrape sums over all of them. No tag ever comes from user input, so the size is fixed.
 */
public final class Meters {
    /** Upper bounds of the latency buckets in microseconds; one more bucket is for the rest. */
    private static final long[] BOUNDS_MICROS = {100, 250, 500, 1000, 2500, 5000, 10_000, 25_000,
        50_000, 75_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000};

    /** Single numbers. */
    public enum Count {
        CONNECTIONS_ACCEPTED, CONNECTIONS_OPEN, ORIGIN_CONNECTIONS_OPENED,
        ORIGIN_CONNECTIONS_OPEN, REQUESTS_BEGUN, REQUESTS_ENDED, RESPONSE_BODY_BYTES,
        REQUEST_BODY_BYTES, RETRIES, HEDGES, HEDGES_WON, UNSOLICITED, LATE_FAILURES, BODIES_COLLECTED,
        CUT_FOR_MEMORY
    }

    private static final int STATUS_CLASSES = 6;
    private static final int CATEGORIES = Category.values().length;
    private final boolean isShared;
    private final AtomicLongArray counts = new AtomicLongArray(Count.values().length);
    private final AtomicLongArray outcomes = new AtomicLongArray(CATEGORIES * STATUS_CLASSES);
    private final AtomicLongArray total = new AtomicLongArray(BOUNDS_MICROS.length + 2);
    private final AtomicLongArray own = new AtomicLongArray(BOUNDS_MICROS.length + 2);

    public Meters(boolean isShared) {
        this.isShared = isShared;
    }

    private void add(AtomicLongArray array, int at, long amount) {
        if (isShared) {
            array.addAndGet(at, amount);
        } else {
            array.setOpaque(at, array.getPlain(at) + amount);
        }
    }

    public void add(Count count, long amount) {
        add(counts, count.ordinal(), amount);
    }

    /** An exchange is over; status 0 means that no head was sent. */
    public void ended(Context context, int status, long nowNanos) {
        add(Count.REQUESTS_ENDED, 1);
        add(outcomes, context.category().ordinal() * STATUS_CLASSES + status / 100, 1);
        long nanos = nowNanos - context.startNanos();
        observe(total, nanos);
        observe(own, Math.max(0, nanos - context.originNanos()));
    }

    /** A message that was refused before it became an exchange. */
    public void refused(Category category, int status) {
        add(outcomes, category.ordinal() * STATUS_CLASSES + status / 100, 1);
    }

    private void observe(AtomicLongArray histogram, long nanos) {
        long micros = nanos / 1000;
        int bucket = 0;
        while (bucket < BOUNDS_MICROS.length && micros > BOUNDS_MICROS[bucket]) {
            bucket++;
        }
        add(histogram, bucket, 1);
        add(histogram, BOUNDS_MICROS.length + 1, micros);
    }

    public long get(Count count) {
        return counts.getOpaque(count.ordinal());
    }

    /** How many exchanges ended with this category and a status of this hundred. */
    public long get(Category category, int statusClass) {
        return outcomes.getOpaque(category.ordinal() * STATUS_CLASSES + statusClass);
    }

    public static long[] boundsMicros() {
        return BOUNDS_MICROS.clone();
    }

    /** Count in bucket {@code at}; the bucket after the last bound holds what is slower. */
    public long latency(boolean isOwn, int at) {
        return (isOwn ? own : total).getOpaque(at);
    }

    /** The sum over all buckets in microseconds. */
    public long latencySumMicros(boolean isOwn) {
        return (isOwn ? own : total).getOpaque(BOUNDS_MICROS.length + 1);
    }
}
