// The time of one event loop, as its deadlines see it.
package wirespeed.gateway.netty;

/**
 * Goes on by little more than a tick at most between two ticks of the loop. A process that got no
 * time for seconds has not looked at what arrived meanwhile; were that time counted, all its timers
 * would fire before it does, and cut clients and origins that are well. Used by one thread.
 */
final class LoopClock {
    /** Two ticks: a loop that is merely busy keeps true time. */
    private static final long STEP_NANOS_MAX = 2L * Wheel.TICK_MILLIS * 1_000_000;

    private long lostNanos;
    private long tickNanos;
    private long nowNanos;

    void start(long realNanos) {
        nowNanos = realNanos;
        tickNanos = realNanos;
    }

    /** The system's clock was read. */
    void read(long realNanos) {
        nowNanos = realNanos - lostNanos;
        long excess = nowNanos - tickNanos - STEP_NANOS_MAX;
        if (excess > 0) {
            lostNanos += excess;
            nowNanos -= excess;
        }
    }

    /** The loop's timer has fired; what had arrived before was read in the round before it. */
    void tick() {
        tickNanos = nowNanos;
    }

    long nowMillis() {
        return nowNanos / 1_000_000;
    }
}
