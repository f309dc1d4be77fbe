// How much memory bodies may take that the gateway holds, over all of its threads.
package wirespeed.gateway.core;

import java.util.concurrent.atomic.AtomicLong;

/**
 * Counts bytes from their allocation until their memory is free. Touched once for each allocated block,
 * and not at all by bodies that pass through.
 */
public final class BodyBudget {
    private final long bytesMax;
    private final AtomicLong bytes = new AtomicLong();

    public BodyBudget(long bytesMax) {
        this.bytesMax = bytesMax;
    }

    /** Memory was allocated; a negative count when it is free again. */
    public void add(long count) {
        bytes.addAndGet(count);
    }

    /**
     * Takes memory that is only of use; refused where that would leave less than half to what waits.
     *
     * @return whether it was taken
     */
    public boolean reserve(long count) {
        boolean isFree = bytes.addAndGet(count) <= bytesMax / 2;
        if (!isFree) {
            bytes.addAndGet(-count);
        }
        return isFree;
    }

    /** Whether what need not be held must go. */
    public boolean isUsedUp() {
        return bytes.get() > bytesMax;
    }

    /** How much is held now. */
    public long bytes() {
        return bytes.get();
    }
}
