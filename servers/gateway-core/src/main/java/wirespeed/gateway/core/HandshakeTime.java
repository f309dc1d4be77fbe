// How long a TLS handshake with an origin may always take.
package wirespeed.gateway.core;

/** A test that waits for its end makes it shorter; nothing else changes it. */
final class HandshakeTime {
    static final int USUAL_MILLIS = 10_000;

    static volatile int millis = USUAL_MILLIS;

    private HandshakeTime() {
    }
}
