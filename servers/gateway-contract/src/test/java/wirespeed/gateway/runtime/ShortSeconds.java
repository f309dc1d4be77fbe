// Lets a test see within moments what takes seconds.
package wirespeed.gateway.runtime;

/** Until it is closed, this process asks others again sooner; all their time-outs stay as they are. */
public final class ShortSeconds implements AutoCloseable {
    public ShortSeconds(int inASecond) {
        Seconds.nanos = Seconds.USUAL_NANOS / inASecond;
    }

    @Override
    public void close() {
        Seconds.nanos = Seconds.USUAL_NANOS;
    }
}
