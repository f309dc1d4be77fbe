// The frames of a chunked body, byte by byte: no I/O (RFC 9112 §7.1).
package wirespeed.gateway.core;

/**
 * Both carriers read chunked bodies from both sides through it. The caller has the bytes; it asks
 * how many of them are data ({@link #data}), reports how many it took ({@link #took}), and passes
 * all others to {@link #frame}, which refuses anything that is not exactly a frame.
 */
public final class ChunkFrames {
    /** One size line or trailer line. */
    static final int LINE_BYTES_MAX = 2048;
    /** All trailers of one message together. */
    public static final int TRAILER_BYTES_MAX = 8192;
    private static final int TRAILER_LINES_MAX = 100;

    private enum State { SIZE, DATA, DATA_END, TRAILER, DONE }

    private State state = State.DONE;
    private long left;
    private byte[] line;
    private int lineLength;
    private int extensionBytes;
    private int trailerBytes;
    private Headers trailers;

    /** A body begins. */
    public void begin() {
        state = State.SIZE;
        left = 0;
        lineLength = 0;
        extensionBytes = 0;
        trailerBytes = 0;
        trailers = null;
    }

    /** Whether the last frame was read; a frame machine that never began is done, too. */
    public boolean isDone() {
        return state == State.DONE;
    }

    /** Bytes of the open chunk that have not been taken; 0 when a frame is due. */
    public long data() {
        return state == State.DATA ? left : 0;
    }

    /** Data was taken, at most {@link #data} bytes. */
    public void took(long count) {
        left -= count;
        if (left == 0) {
            state = State.DATA_END;
        }
    }

    /** The trailer fields that came; null for none. All of them, unfit ones too. */
    public Headers trailers() {
        return trailers;
    }

    /**
     * One byte of a frame, which is due.
     *
     * @return whether it ends a line
     */
    public boolean frame(byte each) {
        boolean isAfterCr = lineLength > 0 && line[lineLength - 1] == '\r';
        if (each == '\n') {
            if (!isAfterCr) {
                throw Refusal.bad("LF without CR in the framing of a chunked body");
            }
            lineLength--;
            lineEnds();
            lineLength = 0;
            return true;
        }
        if (isAfterCr) {
            throw Refusal.bad("CR without LF in the framing of a chunked body");
        }
        if (state == State.DATA_END && each != '\r') {
            throw Refusal.bad("chunk data is longer than its size");
        }
        keep(each);
        return false;
    }

    private void keep(byte each) {
        if (line == null) {
            line = new byte[64];
        } else if (lineLength == LINE_BYTES_MAX) {
            throw new Refusal(state == State.SIZE ? 413 : 431, "line in the framing of a chunked"
                    + " body is longer than " + LINE_BYTES_MAX + " bytes");
        } else if (lineLength == line.length) {
            line = java.util.Arrays.copyOf(line, 2 * lineLength);
        }
        line[lineLength++] = each;
    }

    private void lineEnds() {
        switch (state) {
            case SIZE -> size();
            case DATA_END -> state = State.SIZE;
            case TRAILER -> trailer();
            default -> throw new IllegalStateException("no frame is due in state " + state);
        }
    }

    private void size() {
        left = ChunkLineCheck.size(line, 0, lineLength);
        int digits = 0;
        while (digits < lineLength && Ascii.hex(line[digits]) >= 0) {
            digits++;
        }
        extensionBytes += lineLength - digits;
        if (extensionBytes > ChunkLineCheck.EXTENSION_BYTES_MAX) {
            throw new Refusal(413, "chunk extensions are longer than "
                    + ChunkLineCheck.EXTENSION_BYTES_MAX + " bytes");
        }
        state = left == 0 ? State.TRAILER : State.DATA;
    }

    private void trailer() {
        if (lineLength == 0) {
            state = State.DONE;
            return;
        }
        trailerBytes += lineLength;
        if (trailerBytes > TRAILER_BYTES_MAX
                || trailers != null && trailers.size() == TRAILER_LINES_MAX) {
            throw new Refusal(431, "trailers are longer than " + TRAILER_BYTES_MAX + " bytes or"
                    + " more than " + TRAILER_LINES_MAX);
        }
        int colon = 0;
        while (colon < lineLength && Ascii.isToken(line[colon])) {
            colon++;
        }
        if (colon == 0 || colon == lineLength || line[colon] != ':') {
            throw Refusal.bad("invalid trailer line");
        }
        for (int at = colon + 1; at < lineLength; at++) {
            if (!Ascii.isValue(line[at])) {
                throw Refusal.bad("control character in a trailer");
            }
        }
        if (trailers == null) {
            trailers = new Headers();
        }
        trailers.append(Ascii.string(line, 0, colon),
                Ascii.string(line, colon + 1, lineLength).trim());
    }
}
