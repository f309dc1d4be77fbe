// Changes a response body piece by piece while it streams by.
package wirespeed.gateway.core;

import java.nio.ByteBuffer;

/**
 * Made by a post filter for one response and used by one thread at a time. What a filter does to the
 * body it also says in the header fields; the length is the gateway's business.
 */
public interface BodyTransform {
    /**
     * Returns the bytes that go on in place of a piece.
     *
     * @param piece valid during the call only
     * @return valid until the next call; empty when nothing is to be sent yet
     */
    ByteBuffer chunk(ByteBuffer piece);

    /** Returns the bytes that follow the last piece. */
    ByteBuffer end();

    /** Called once, after the end or when there will be none. */
    default void close() {
        // Most hold nothing.
    }

    /** Both, one after the other. */
    default BodyTransform then(BodyTransform next) {
        BodyTransform first = this;
        return new BodyTransform() {
            @Override
            public ByteBuffer chunk(ByteBuffer piece) {
                return next.chunk(first.chunk(piece));
            }

            @Override
            public ByteBuffer end() {
                ByteBuffer last = next.chunk(first.end());
                ByteBuffer kept = ByteBuffer.allocate(last.remaining()).put(last).flip();
                ByteBuffer end = next.end();
                return ByteBuffer.allocate(kept.remaining() + end.remaining()).put(kept).put(end)
                        .flip();
            }

            @Override
            public void close() {
                first.close();
                next.close();
            }
        };
    }
}
