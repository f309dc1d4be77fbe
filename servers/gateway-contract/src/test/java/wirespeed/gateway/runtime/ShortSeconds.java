// Lets a test see within moments what takes seconds.
package wirespeed.gateway.runtime;

/** Until it is closed, in this process: it asks others again sooner, and nobody else has less time. */
public final class ShortSeconds implements AutoCloseable {
    public ShortSeconds(int inASecond) {
        Seconds.nanos = Seconds.USUAL_NANOS / inASecond;
    }

    @Override
    public void close() {
        Seconds.nanos = Seconds.USUAL_NANOS;
    }
}
