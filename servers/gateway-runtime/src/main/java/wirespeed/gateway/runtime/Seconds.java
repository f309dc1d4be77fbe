// The second in which others are asked again.
package wirespeed.gateway.runtime;

/** A test that waits for several such questions makes it shorter; nothing else changes it. */
final class Seconds {
    static final long USUAL_NANOS = 1_000_000_000;

    static volatile long nanos = USUAL_NANOS;

    private Seconds() {
    }
}
