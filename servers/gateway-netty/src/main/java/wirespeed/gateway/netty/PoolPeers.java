// The pools of all loops to one address: they share its limit, and hand over its connections.
package wirespeed.gateway.netty;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Without it a loop that keeps the last connection an address may have would starve the requests of
 * the others. Called on all loops. While no request waits it costs one read of a shared number.
 */
final class PoolPeers {
    /** A loop with requests of its own keeps a connection this much longer: handing over costs one. */
    private static final long PREFERENCE_NANOS = 100_000_000;

    private final List<Pool> pools = new CopyOnWriteArrayList<>();
    private final AtomicInteger waiting = new AtomicInteger();

    void add(Pool pool) {
        pools.add(pool);
    }

    /** Whether none is left without this one. */
    boolean isLastRemoved(Pool pool) {
        pools.remove(pool);
        return pools.isEmpty();
    }

    /** A pool has begun to have requests that wait, or has none any more. */
    void waits(boolean isWaiting) {
        waiting.addAndGet(isWaiting ? 1 : -1);
    }

    /** The pool whose first request has waited longest; null for none. */
    Pool longestWaiting() {
        if (waiting.get() == 0) {
            return null;
        }
        Pool longest = null;
        for (Pool pool : pools) {
            boolean isLonger = pool.isWaiting() && (longest == null
                    || pool.waitingSinceNanos() - longest.waitingSinceNanos() < 0);
            longest = isLonger ? pool : longest;
        }
        return longest;
    }

    /** Which pool a connection of this one should go to; null when it should stay. */
    Pool insteadOf(Pool owner) {
        Pool longest = longestWaiting();
        boolean isKept = longest == null || longest == owner || owner.isWaiting()
                && owner.waitingSinceNanos() - longest.waitingSinceNanos() < PREFERENCE_NANOS;
        return isKept ? null : longest;
    }

    /** A request of this pool has to wait: another loop may keep a connection that it does not use. */
    void askFor(Pool needy) {
        for (Pool pool : pools) {
            if (pool != needy) {
                pool.loop().executor.execute(pool::giveUpUnused);
            }
        }
    }
}
