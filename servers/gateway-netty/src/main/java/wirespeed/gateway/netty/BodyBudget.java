// How much memory bodies may take that wait in the gateway, over all loops.
package wirespeed.gateway.netty;

import java.util.concurrent.atomic.AtomicLong;

/** Touched once for each allocated block, and not at all by bodies that pass through. */
final class BodyBudget {
    private final long bytesMax;
    private final AtomicLong bytes = new AtomicLong();

    BodyBudget(long bytesMax) {
        this.bytesMax = bytesMax;
    }

    void add(long count) {
        bytes.addAndGet(count);
    }

    /**
     * Takes memory that is only of use; refused where that would leave less than half to what waits.
     *
     * @return whether it was taken
     */
    boolean reserve(long count) {
        boolean isFree = bytes.addAndGet(count) <= bytesMax / 2;
        if (!isFree) {
            bytes.addAndGet(-count);
        }
        return isFree;
    }

    /** Whether what need not be held must go. */
    boolean isUsedUp() {
        return bytes.get() > bytesMax;
    }

    long bytes() {
        return bytes.get();
    }
}
