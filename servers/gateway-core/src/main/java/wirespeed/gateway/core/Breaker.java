// Takes an address out of use after failures and lets it back in carefully.
package wirespeed.gateway.core;

/**
 * Closed → open after {@value #FAILURES_IN_A_ROW} failures in a row, or more than half of at least
 * {@value #WINDOW_MIN} within ten seconds. Open for 10 s × how often in succession; then one probe.
 * Calls are short and rare enough (one an exchange) for a lock that is only taken on failures and
 * while the address is out of use.
 */
public final class Breaker {
    static final int FAILURES_IN_A_ROW = 5;
    static final int WINDOW_MIN = 20;
    static final long WINDOW_MILLIS = 10_000;
    static final long EJECTION_MILLIS = 10_000;
    static final int EJECTIONS_MAX = 30;
    /** By which two times may differ that were rounded. */
    private static final long CLOCK_MILLIS = 1;

    private volatile boolean isOpen;
    private volatile int row;
    private volatile long closedMillis = Long.MIN_VALUE / 2;
    private long ejectedMillis = Long.MIN_VALUE / 2;
    private long openUntilMillis;
    private long probeUntilMillis;
    private int ejections;
    private long windowStartMillis;
    // Written without a lock: a lost count moves a threshold by one request.
    private volatile int windowTotal;
    private int windowFailed;

    /** Whether a request may be sent; while ejected, one request per ejection time is a probe. */
    boolean isUsable(long nowMillis) {
        return !isOpen || mayProbe(nowMillis);
    }

    public boolean isOpen() {
        return isOpen;
    }

    private synchronized boolean mayProbe(long nowMillis) {
        return nowMillis >= openUntilMillis && nowMillis >= probeUntilMillis;
    }

    /** The balancer chose this address; while open that uses up the probe. */
    synchronized void chosen(long nowMillis) {
        if (isOpen && nowMillis >= openUntilMillis) {
            probeUntilMillis = nowMillis + EJECTION_MILLIS;
        }
    }

    /**
     * A response came whose status speaks for the address.
     *
     * @param askedMillis when its request began, on the clock of the exchanges
     */
    public void succeeded(long askedMillis) {
        windowTotal++;
        if (row != 0 || isOpen) {
            close(askedMillis);
        }
    }

    private synchronized void close(long askedMillis) {
        if (isOpen && wasUnderWay(askedMillis)) {
            // Only what was asked since can say that it is well.
            return;
        }
        row = 0;
        if (isOpen) {
            isOpen = false;
            ejections = Math.max(0, ejections - 1);
            closedMillis = System.nanoTime() / 1_000_000;
        }
    }

    /** Whether a request began before the address was last ejected. */
    private boolean wasUnderWay(long askedMillis) {
        return askedMillis <= ejectedMillis + CLOCK_MILLIS;
    }

    /** When an ejection last ended, on the clock of the exchanges. */
    long closedMillis() {
        return closedMillis;
    }

    /**
     * No connection, a reset, a time-out or a malformed answer.
     *
     * @param askedMillis when its request began, on the clock of the exchanges
     */
    public synchronized void failed(long askedMillis, long nowMillis) {
        if (wasUnderWay(askedMillis) || isOpen && nowMillis < openUntilMillis) {
            // Nothing new: only a probe prolongs, and only what was asked since ejects again.
            return;
        }
        if (nowMillis - windowStartMillis > WINDOW_MILLIS) {
            windowStartMillis = nowMillis;
            windowTotal = 0;
            windowFailed = 0;
        }
        row++;
        windowFailed++;
        windowTotal++;
        boolean isMajority = windowTotal >= WINDOW_MIN && windowFailed * 2 > windowTotal;
        if (isOpen || row >= FAILURES_IN_A_ROW || isMajority) {
            eject(nowMillis);
        }
    }

    private void eject(long nowMillis) {
        ejections = Math.min(EJECTIONS_MAX, ejections + 1);
        ejectedMillis = nowMillis;
        openUntilMillis = nowMillis + EJECTION_MILLIS * ejections;
        probeUntilMillis = 0;
        isOpen = true;
        windowTotal = 0;
        windowFailed = 0;
    }
}
