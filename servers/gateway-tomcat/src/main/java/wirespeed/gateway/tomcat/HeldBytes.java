// Bytes of a body that stay in memory, counted by what they take of it.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.Arrays;
import wirespeed.gateway.core.BodyBudget;
import wirespeed.gateway.core.Framing;

/** To be released when the exchange is over; used by one thread. */
final class HeldBytes {
    private static final byte[] NOTHING = {};
    private static final int FIRST_BYTES = 1024;

    private final BodyBudget budget;
    private final long expected;
    private byte[] bytes = NOTHING;
    private int length;

    /**
     * Nothing yet.
     *
     * @param framing of the body; one of a known length takes no more memory than that
     */
    HeldBytes(BodyBudget budget, Framing framing) {
        this.budget = budget;
        this.expected = framing.kind() == Framing.Kind.LENGTH ? framing.length() : Long.MAX_VALUE;
    }

    int length() {
        return length;
    }

    void add(byte[] from, int count) {
        if (length + count > bytes.length) {
            long wanted = length + (long) count;
            long roomy = Math.min(Math.max(FIRST_BYTES, 2L * bytes.length), expected);
            resize((int) Math.min(Integer.MAX_VALUE - 8, Math.max(wanted, roomy)));
        }
        System.arraycopy(from, 0, bytes, length, count);
        length += count;
    }

    private void resize(int capacity) {
        budget.add(capacity - bytes.length);
        bytes = Arrays.copyOf(bytes, capacity);
    }

    /** All of it, in memory of its size. */
    ByteBuffer whole() {
        if (length < bytes.length) {
            resize(length);
        }
        return ByteBuffer.wrap(bytes);
    }

    void writeTo(OutputStream out) throws IOException {
        out.write(bytes, 0, length);
    }

    /** The budget has it back, and the memory is free once no other object uses it. */
    void release() {
        budget.add(-bytes.length);
        bytes = NOTHING;
        length = 0;
    }
}
