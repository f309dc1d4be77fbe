// Ends uploads whose origin takes nothing more: a blocking write knows no time-out.
package wirespeed.gateway.tomcat;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** One for all request bodies that are being sent; {@link #run} looks at them every so often. */
final class SendWatch implements Runnable {
    static final int PERIOD_MILLIS = 100;

    /** As much at most between two looks: a process that got no time has not waited for its peers. */
    private static final long STEP_NANOS_MAX = 2L * PERIOD_MILLIS * 1_000_000;

    private final Set<Send> underWay = ConcurrentHashMap.newKeySet();
    private long lookedNanos = System.nanoTime();
    /** The time of this watch. */
    private volatile long clockNanos;

    /** A request body on its way to an origin; to be closed when it is sent. */
    final class Send implements AutoCloseable {
        private final OriginConnection connection;
        private final long patienceNanos;
        private final long fairNanos;
        private final long deadlineNanos;
        private volatile long sinceNanos = clockNanos;
        private volatile boolean isClientsTurn;
        private boolean isLate;
        private boolean isStalled;
        private boolean isOver;

        private Send(OriginConnection connection, int patienceMillis, long begunNanos,
                long deadlineNanos) {
            this.connection = connection;
            this.patienceNanos = patienceMillis * 1_000_000L;
            this.fairNanos = (deadlineNanos - begunNanos) / 2;
            this.deadlineNanos = deadlineNanos;
        }

        /** The origin has taken everything so far, and the client is waited for. */
        void awaitClient() {
            isClientsTurn = true;
        }

        /** There is one more piece for the origin to take. */
        void awaitOrigin() {
            sinceNanos = clockNanos;
            isClientsTurn = false;
        }

        private synchronized void look(long now) {
            if (isOver || isLate) {
                return;
            }
            boolean isPast = now - deadlineNanos > 0;
            isStalled = !isClientsTurn && isLongerThan(isPast ? Math.min(fairNanos, patienceNanos) : patienceNanos);
            if (isStalled || isPast) {
                isLate = true;
                connection.endOutput();
            }
        }

        /** The clock may have stood where it was for up to a step before the piece came. */
        private boolean isLongerThan(long nanos) {
            return clockNanos - sinceNanos > nanos + STEP_NANOS_MAX;
        }

        /** Whether it was ended, so that writing failed. */
        synchronized boolean isLate() {
            return isLate;
        }

        /**
         * Whether it was ended because the origin took nothing for too long, or for half of the exchange
         * and to its end. That it was the origin's turn then says nothing: behind each piece it is for moments.
         */
        synchronized boolean isStalled() {
            return isStalled;
        }

        @Override
        public synchronized void close() {
            isOver = true;
            underWay.remove(this);
        }
    }

    /**
     * Watches over a body that is to be sent now.
     *
     * @param patienceMillis for each piece of it
     * @param begunNanos when the exchange began, as System.nanoTime
     * @param deadlineNanos for all of it, likewise
     */
    Send begin(OriginConnection connection, int patienceMillis, long begunNanos, long deadlineNanos) {
        Send send = new Send(connection, patienceMillis, begunNanos, deadlineNanos);
        underWay.add(send);
        return send;
    }

    @Override
    public void run() {
        look(System.nanoTime());
    }

    void look(long now) {
        clockNanos += Math.min(now - lookedNanos, STEP_NANOS_MAX);
        lookedNanos = now;
        underWay.forEach(send -> send.look(now));
    }
}
