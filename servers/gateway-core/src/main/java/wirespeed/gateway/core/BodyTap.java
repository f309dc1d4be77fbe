// Sees a response body while it streams by; the bytes are not held up.
package wirespeed.gateway.core;

import java.nio.ByteBuffer;

/** For the cache and for logs; what it wants to keep it copies. */
public interface BodyTap {
    /** A piece of the body, valid during the call only. */
    void chunk(ByteBuffer bytes);

    /**
     * Called exactly once.
     *
     * @param isComplete whether the body arrived as its framing promised and was seen in full
     */
    void end(boolean isComplete);
}
