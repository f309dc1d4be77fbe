// Everything that one configuration means, immutable and swapped as a whole.
package wirespeed.gateway.core;

import java.util.Map;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.LongSupplier;

/**
 * An exchange ends on the snapshot on which it began. The count of its exchanges tells when the
 * filters of an old snapshot can be closed.
 */
public final class Snapshot {
    private final long version;
    private final Chain chain;
    private final RouteTable routes;
    private final Map<String, Origin> origins;
    private final Limits limits;
    private final Limits answerLimits;
    private final Forwarding forwarding;
    private final LongAdder begun = new LongAdder();
    private final LongAdder ended = new LongAdder();

    public Snapshot(long version, Chain chain, RouteTable routes, Map<String, Origin> origins,
            Limits limits, Forwarding forwarding) {
        this.version = version;
        this.chain = chain;
        this.routes = routes;
        this.origins = Map.copyOf(origins);
        this.limits = limits;
        this.answerLimits = limits.ofAnswers();
        this.forwarding = forwarding;
    }

    /** Grows by one with each swap. */
    public long version() {
        return version;
    }

    public Chain chain() {
        return chain;
    }

    public RouteTable routes() {
        return routes;
    }

    public Map<String, Origin> origins() {
        return origins;
    }

    public Limits limits() {
        return limits;
    }

    /** Bounds on the heads that origins send. */
    public Limits answerLimits() {
        return answerLimits;
    }

    public Forwarding forwarding() {
        return forwarding;
    }

    /** An exchange begins on this snapshot. */
    public void begin() {
        begun.increment();
    }

    /** An exchange that began here is over. */
    public void end() {
        ended.increment();
    }

    /** Whether no exchange uses this snapshot; only meaningful once it is no longer current. */
    public boolean isUnused() {
        return areEqual(ended::sum, begun::sum);
    }

    /** Reads the ended first: later, those that began and ended in between would make up for others. */
    static boolean areEqual(LongSupplier ended, LongSupplier begun) {
        long over = ended.getAsLong();
        return over == begun.getAsLong();
    }
}
