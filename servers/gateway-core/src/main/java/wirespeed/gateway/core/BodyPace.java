// Notices a request body that trickles: never silent, and never done.
package wirespeed.gateway.core;

/** Counts only the time in which the gateway was ready to read. */
public final class BodyPace {
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
    public BodyPace(long bytesPerSecondMin, long graceMillis) {
        this.bytesPerSecondMin = bytesPerSecondMin;
        this.graceMillis = graceMillis;
    }

    /** The body begins now. */
    public void begin(long nowMillis) {
        startMillis = nowMillis;
        pausedMillis = 0;
        bytes = 0;
    }

    /** Reading has been switched off or on. */
    public void reading(boolean isOn, long nowMillis) {
        if (!isOn && pausedMillis == 0) {
            pausedMillis = nowMillis;
        } else if (isOn && pausedMillis != 0) {
            startMillis += nowMillis - pausedMillis;
            pausedMillis = 0;
        }
    }

    /** Bytes have arrived; whether they come too slowly. */
    public boolean isTooSlow(int count, long nowMillis) {
        bytes += count;
        long elapsed = nowMillis - startMillis;
        return elapsed > graceMillis && bytes * 1000 < bytesPerSecondMin * elapsed;
    }
}
