// Notices a request body that trickles: never silent, and never done.
package wirespeed.gateway.netty;

/** Counts only the time in which the gateway was ready to read. */
final class BodyPace {
    private final long bytesPerSecondMin;
    private final long graceMillis;
    private long startMillis;
    private long pausedMillis;
    private long bytes;

    /**
     * A pace.
     *
     * @param bytesPerSecondMin least average; 0 for no bound
     * @param graceMillis how long after the beginning any average will do
     */
    BodyPace(long bytesPerSecondMin, long graceMillis) {
        this.bytesPerSecondMin = bytesPerSecondMin;
        this.graceMillis = graceMillis;
    }

    void begin(long nowMillis) {
        startMillis = nowMillis;
        pausedMillis = 0;
        bytes = 0;
    }

    /** Reading has been switched off or on. */
    void reading(boolean isOn, long nowMillis) {
        if (!isOn && pausedMillis == 0) {
            pausedMillis = nowMillis;
        } else if (isOn && pausedMillis != 0) {
            startMillis += nowMillis - pausedMillis;
            pausedMillis = 0;
        }
    }

    /** Bytes have arrived; whether they come too slowly. */
    boolean isTooSlow(int count, long nowMillis) {
        bytes += count;
        long elapsed = nowMillis - startMillis;
        return elapsed > graceMillis && bytes * 1000 < bytesPerSecondMin * elapsed;
    }
}
