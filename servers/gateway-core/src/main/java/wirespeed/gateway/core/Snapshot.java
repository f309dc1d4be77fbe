// Everything that one configuration means, immutable and swapped as a whole.
package wirespeed.gateway.core;

import java.util.Map;
import java.util.concurrent.atomic.LongAdder;

/**
 * An exchange ends on the snapshot on which it began. The count of its exchanges shows when the
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
    private final LongAdder begun;
    private final LongAdder ended;

    public Snapshot(long version, Chain chain, RouteTable routes, Map<String, Origin> origins,
            Limits limits, Forwarding forwarding) {
        this(version, chain, routes, origins, limits, forwarding, new LongAdder(), new LongAdder());
    }

    /** With counters of a test's, which can let exchanges begin and end between two looks. */
    Snapshot(long version, Chain chain, RouteTable routes, Map<String, Origin> origins,
            Limits limits, Forwarding forwarding, LongAdder begun, LongAdder ended) {
        this.begun = begun;
        this.ended = ended;
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

    /** To be called before any filter sees the request; refuses what must reach none. */
    public void accept(Request request) {
        routes.checkPath(request);
        forwarding.accept(request);
    }

    /** An exchange begins on this snapshot. */
    public void begin() {
        begun.increment();
    }

    /** An exchange that began here is over. */
    public void end() {
        ended.increment();
    }

    /**
     * Whether no exchange uses this snapshot; only meaningful once it is no longer current. Reads the
     * ended first: later, exchanges that began and ended in between would make up for others.
     */
    public boolean isUnused() {
        long over = ended.sum();
        return over == begun.sum();
    }
}
