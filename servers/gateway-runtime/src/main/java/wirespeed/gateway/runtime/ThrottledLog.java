// The log of failures in traffic, throttled so that a peer cannot fill a disk with it.
package wirespeed.gateway.runtime;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.FilterFailure;
import wirespeed.gateway.core.Refusal;

/** A line a second for each place at most; the next one says how many were left out. Any thread. */
public final class ThrottledLog {
    private static final System.Logger LOG = System.getLogger("wirespeed.gateway");
    private static final long PERIOD_NANOS = 1_000_000_000;
    /** Places are names of filters and addresses, which come and go with configurations. */
    private static final int PLACES_MAX = 1000;
    private static final int CAUSES_MAX = 5;
    private static final Map<String, Place> PLACES = new ConcurrentHashMap<>();

    private static final class Place {
        final AtomicLong nextNanos = new AtomicLong(System.nanoTime());
        final AtomicInteger leftOut = new AtomicInteger();
    }

    private ThrottledLog() {
    }

    /** Logs a fault with its stack. */
    public static void fault(String where, Throwable cause) {
        log("fault in " + where, "", cause);
    }

    /** Logs what goes on wrong. */
    static void line(String what) {
        log(what, "", null);
    }

    /** Logs an exchange that fails because of a filter or without a connection; ignores others. */
    public static void failed(Context context, Category category, Throwable cause) {
        if (cause == null || cause instanceof Refusal) {
            return;
        }
        if (category == Category.FILTER_ERROR) {
            boolean isNamed = cause instanceof FilterFailure;
            log(isNamed ? "filter " + ((FilterFailure) cause).filter() : "a filter",
                    " failed a request: " + reasons(isNamed ? cause.getCause() : cause), cause);
        } else if (category == Category.CONNECT && context.address() != null) {
            log("origin " + context.origin().name() + ", address " + context.address().id(),
                    ": no connection: " + reasons(cause), null);
        }
    }

    /** A failed handshake says only by its causes what is wrong. */
    private static String reasons(Throwable failed) {
        StringBuilder reasons = new StringBuilder();
        Throwable cause = failed;
        for (int i = 0; cause != null && i < CAUSES_MAX; i++, cause = cause.getCause()) {
            String reason = cause.getMessage() == null ? cause.getClass().getSimpleName()
                    : cause.getMessage().strip();
            if (reasons.indexOf(reason) < 0) {
                reasons.append(i == 0 ? "" : ": ").append(reason);
            }
        }
        return reasons.toString();
    }

    private static void log(String where, String what, Throwable cause) {
        if (PLACES.size() >= PLACES_MAX) {
            PLACES.clear();
        }
        Place place = PLACES.computeIfAbsent(where, fresh -> new Place());
        long now = System.nanoTime();
        long next = place.nextNanos.get();
        if (now - next < 0 || !place.nextNanos.compareAndSet(next, now + PERIOD_NANOS)) {
            place.leftOut.incrementAndGet();
            return;
        }
        int leftOut = place.leftOut.getAndSet(0);
        String line = where + what
                + (leftOut == 0 ? "" : " (" + leftOut + " more were not logged)");
        if (cause == null) {
            LOG.log(System.Logger.Level.WARNING, line);
        } else {
            LOG.log(System.Logger.Level.WARNING, line, cause);
        }
    }
}
