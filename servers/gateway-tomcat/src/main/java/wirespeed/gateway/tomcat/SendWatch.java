// Ends uploads whose origin takes nothing more: a blocking write knows no time-out.
package wirespeed.gateway.tomcat;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** One for all request bodies that are being sent; {@link #run} looks at them every so often. */
final class SendWatch implements Runnable {
    static final int PERIOD_MILLIS = 100;

    private final Set<Send> underWay = ConcurrentHashMap.newKeySet();

    /** A request body on its way to an origin; to be closed when it is sent. */
    final class Send implements AutoCloseable {
        private final OriginConnection connection;
        private final long patienceNanos;
        private final long deadlineNanos;
        private volatile long sinceNanos = System.nanoTime();
        private volatile boolean isClientsTurn;
        private boolean isLate;
        private boolean isClientLate;
        private boolean isOver;

        private Send(OriginConnection connection, int patienceMillis, long deadlineNanos) {
            this.connection = connection;
            this.patienceNanos = patienceMillis * 1_000_000L;
            this.deadlineNanos = deadlineNanos;
        }

        /** The origin has taken everything so far, and the client is waited for. */
        void awaitClient() {
            isClientsTurn = true;
        }

        /** There is one more piece for the origin to take. */
        void awaitOrigin() {
            sinceNanos = System.nanoTime();
            isClientsTurn = false;
        }

        private synchronized void look(long now) {
            boolean isStalled = !isClientsTurn && now - sinceNanos > patienceNanos;
            if (!isOver && !isLate && (isStalled || now - deadlineNanos > 0)) {
                isLate = true;
                isClientLate = isClientsTurn;
                connection.endOutput();
            }
        }

        /** Whether it was ended, so that writing failed. */
        synchronized boolean isLate() {
            return isLate;
        }

        /** Whether it was ended for want of a client that sends the rest in time. */
        synchronized boolean isClientLate() {
            return isClientLate;
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
     * @param deadlineNanos for all of it, as System.nanoTime
     */
    Send begin(OriginConnection connection, int patienceMillis, long deadlineNanos) {
        Send send = new Send(connection, patienceMillis, deadlineNanos);
        underWay.add(send);
        return send;
    }

    @Override
    public void run() {
        long now = System.nanoTime();
        underWay.forEach(send -> send.look(now));
    }
}
