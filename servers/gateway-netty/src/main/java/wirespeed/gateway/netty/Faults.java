// The log of what must not happen, so that a peer who makes it happen cannot fill a disk.
package wirespeed.gateway.netty;

import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/** One stack a second at most; the next line says how many were left out. */
final class Faults {
    private static final System.Logger LOG = System.getLogger("wirespeed.gateway");
    private static final long PERIOD_NANOS = 1_000_000_000;
    private static final AtomicLong NEXT = new AtomicLong(System.nanoTime());
    private static final AtomicInteger LEFT_OUT = new AtomicInteger();

    private Faults() {
    }

    static void log(String where, Throwable cause) {
        long now = System.nanoTime();
        long next = NEXT.get();
        if (now - next < 0 || !NEXT.compareAndSet(next, now + PERIOD_NANOS)) {
            LEFT_OUT.incrementAndGet();
            return;
        }
        int leftOut = LEFT_OUT.getAndSet(0);
        LOG.log(System.Logger.Level.WARNING, "fault in " + where
                + (leftOut == 0 ? "" : " (" + leftOut + " others were not logged)"), cause);
    }
}
