// Lets a test see within moments that a TLS handshake with an origin takes too long.
package wirespeed.gateway.core;

/** Until it is closed, connections of this process that begin have so long for their handshake. */
public final class ShortHandshakes implements AutoCloseable {
    public ShortHandshakes(int millis) {
        HandshakeTime.millis = millis;
    }

    @Override
    public void close() {
        HandshakeTime.millis = HandshakeTime.USUAL_MILLIS;
    }
}
