// Decides when a request is refused before any work is done for it.
package wirespeed.gateway.netty;

import io.netty.util.internal.PlatformDependent;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.core.OptionValues;

/** Too many exchanges, a loop that is late, or direct memory that runs out. One a loop. */
final class Shedder {
    private static final int LATE_TICKS = 3;

    private final Gateway gateway;
    private final int inFlightMax;
    private final int lagMillisMax;
    private final long directBytesMax;
    private long lastTickMillis;
    private int lateTicks;
    private boolean isFull;
    private boolean isTight;

    Shedder(Gateway gateway) {
        OptionValues limits = gateway.options("limits");
        this.gateway = gateway;
        inFlightMax = limits.count("in-flight");
        lagMillisMax = limits.millis("loop-lag");
        directBytesMax = PlatformDependent.maxDirectMemory() / 100
                * limits.count("direct-memory-percent");
    }

    /** The loop's timer has fired; it should have done so one tick after the last time. */
    void tick(long nowMillis) {
        long lag = lastTickMillis == 0 ? 0 : nowMillis - lastTickMillis - Wheel.TICK_MILLIS;
        lastTickMillis = nowMillis;
        // One late tick is a pause of the machine; three in a row are too much work.
        lateTicks = lag > lagMillisMax ? lateTicks + 1 : 0;
        long used = PlatformDependent.usedDirectMemory();
        isFull = used > directBytesMax;
        isTight = used > directBytesMax / 8 * 7;
    }

    /** Whether direct memory will soon be so full that requests must be refused. */
    boolean isTight() {
        return isTight;
    }

    /** Whether requests are refused because direct memory is nearly used up. */
    boolean isFull() {
        return isFull;
    }

    /** Why a new exchange must be refused, or null. */
    String reason() {
        if (lateTicks >= LATE_TICKS) {
            return "event loop is late";
        }
        if (isFull) {
            return "direct memory is nearly used up";
        }
        return gateway.inFlight().get() >= inFlightMax ? "too many exchanges" : null;
    }
}
