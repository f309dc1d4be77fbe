/** Skips the body of a request, which no resource here uses. */
package wirespeed.httpserver;

/** Finds the end of a body, strictly, and never skips more than {@link #BODY_BYTES_MAX}. */
final class BodySkipper {
    /** Above it the connection is closed: reading on would cost more than a new one. */
    static final long BODY_BYTES_MAX = 1 << 20;
    private static final int EXTENSION_BYTES_MAX = 1024;
    private static final int TRAILER_BYTES_MAX = 8192;

    private enum State {
        DATA, SIZE, EXTENSION, SIZE_LF, DATA_CR, DATA_LF,
        TRAILER_LINE, TRAILER, TRAILER_LF, END_LF, DONE
    }

    private final boolean isChunked;
    private State state;
    private long left;
    private long total;
    private int digits;
    private int extensionBytes;
    private int trailerBytes;

    private BodySkipper(boolean isChunked, long left) {
        this.isChunked = isChunked;
        this.left = left;
        state = isChunked ? State.SIZE : State.DATA;
    }

    static BodySkipper chunked() {
        return new BodySkipper(true, 0);
    }

    static BodySkipper ofLength(long bytes) {
        return new BodySkipper(false, bytes);
    }

    boolean isDone() {
        return state == State.DONE;
    }

    /**
     * Skips the available bytes; returns where the body or the bytes end, -1 if it is malformed.
     */
    int skip(byte[] bytes, int from, int to) {
        int at = from;
        while (at < to && state != State.DONE) {
            if (state == State.DATA) {
                int step = (int) Math.min(left, to - at);
                left -= step;
                at += step;
                if (left == 0) {
                    state = isChunked ? State.DATA_CR : State.DONE;
                }
            } else if (!framing(bytes[at++])) {
                return -1;
            }
        }
        return at;
    }

    /** One byte of a chunk's frame (RFC 9112 §7.1); false rejects it. */
    private boolean framing(byte each) {
        return switch (state) {
            case SIZE -> size(each);
            case EXTENSION -> extension(each);
            case SIZE_LF -> each == Bytes.LF && dataOrTrailer();
            case DATA_CR -> each == Bytes.CR && go(State.DATA_LF);
            case DATA_LF -> each == Bytes.LF && go(State.SIZE);
            case TRAILER_LINE -> each == Bytes.CR ? go(State.END_LF)
                    : Bytes.is(Bytes.TOKEN, each) && trailerByte() && go(State.TRAILER);
            case TRAILER -> each == Bytes.CR ? go(State.TRAILER_LF)
                    : Bytes.is(Bytes.VALUE, each) && trailerByte();
            case TRAILER_LF -> each == Bytes.LF && go(State.TRAILER_LINE);
            case END_LF -> each == Bytes.LF && go(State.DONE);
            default -> throw new IllegalStateException("no frame byte is due in " + state);
        };
    }

    private boolean size(byte each) {
        int digit = Bytes.hex(each);
        if (digit >= 0) {
            left = left * 16 + digit;
            return ++digits <= 8 && total + left <= BODY_BYTES_MAX;
        }
        if (digits == 0) {
            return false;
        }
        return each == ';' ? go(State.EXTENSION) : each == Bytes.CR && go(State.SIZE_LF);
    }

    private boolean extension(byte each) {
        if (each == Bytes.CR) {
            return go(State.SIZE_LF);
        }
        return Bytes.is(Bytes.VALUE, each) && ++extensionBytes <= EXTENSION_BYTES_MAX;
    }

    private boolean dataOrTrailer() {
        total += left;
        digits = 0;
        return go(left == 0 ? State.TRAILER_LINE : State.DATA);
    }

    private boolean trailerByte() {
        return ++trailerBytes <= TRAILER_BYTES_MAX;
    }

    private boolean go(State next) {
        state = next;
        return true;
    }
}
