// Follows a client's chunked body line by line and refuses what is not exactly one (RFC 9112 §7.1).
package wirespeed.gateway.tomcat;

import wirespeed.gateway.core.Ascii;
import wirespeed.gateway.core.ChunkLineCheck;
import wirespeed.gateway.core.Refusal;

/** Lines are passed on after the check; the data between them is not looked at. */
final class ChunkReader {
    private static final int LINE_BYTES_MAX = 2048;
    private static final int TRAILER_LINES_MAX = 100;
    static final int TRAILER_BYTES_MAX = 8192;

    private enum Next { SIZE, DATA, DATA_END, TRAILER, NOTHING }

    private Next next = Next.NOTHING;
    private long left;
    private long extensionBytes;
    private int trailers;
    private int trailerBytes;

    void begin() {
        next = Next.SIZE;
        left = 0;
        extensionBytes = 0;
        trailers = 0;
        trailerBytes = 0;
    }

    boolean isOver() {
        return next == Next.NOTHING;
    }

    /** Bytes of the open chunk that have not come yet. */
    long data() {
        return next == Next.DATA ? left : 0;
    }

    void took(int count) {
        left -= count;
        if (left == 0) {
            next = Next.DATA_END;
        }
    }

    /** Where the line ends that begins at {@code from}, or -1 while it is not complete. */
    int line(byte[] bytes, int from, int to) {
        int at = from;
        while (at < to && bytes[at] != '\n') {
            at++;
        }
        if (next == Next.DATA_END && !isPrefixOfLineEnd(bytes, from, to)) {
            throw new Refusal(400, "a chunk is longer than its size");
        }
        if (at - from > LINE_BYTES_MAX) {
            throw new Refusal(next == Next.SIZE ? 413 : 431, "a line of the chunked body is longer"
                    + " than " + LINE_BYTES_MAX + " bytes");
        }
        if (at == to) {
            return -1;
        }
        if (at == from || bytes[at - 1] != '\r') {
            throw new Refusal(400, "LF without CR in a chunked body");
        }
        read(bytes, from, at - 1);
        return at + 1;
    }

    private static boolean isPrefixOfLineEnd(byte[] bytes, int from, int to) {
        return bytes[from] == '\r' && (to - from < 2 || bytes[from + 1] == '\n');
    }

    private void read(byte[] bytes, int from, int to) {
        switch (next) {
            case SIZE -> size(bytes, from, to);
            case DATA_END -> next = Next.SIZE;
            case TRAILER -> trailer(bytes, from, to);
            default -> throw new IllegalStateException("no line is expected");
        }
    }

    private void size(byte[] bytes, int from, int to) {
        left = ChunkLineCheck.size(bytes, from, to);
        int digits = from;
        while (digits < to && Ascii.hex(bytes[digits]) >= 0) {
            digits++;
        }
        extensionBytes += to - digits;
        if (extensionBytes > ChunkLineCheck.EXTENSION_BYTES_MAX) {
            throw new Refusal(413, "chunk extensions are longer than "
                    + ChunkLineCheck.EXTENSION_BYTES_MAX + " bytes");
        }
        next = left == 0 ? Next.TRAILER : Next.DATA;
    }

    private void trailer(byte[] bytes, int from, int to) {
        if (to == from) {
            next = Next.NOTHING;
            return;
        }
        trailers++;
        if (trailers > TRAILER_LINES_MAX) {
            throw new Refusal(431, "more than " + TRAILER_LINES_MAX + " trailers");
        }
        trailerBytes += to - from;
        if (trailerBytes > TRAILER_BYTES_MAX) {
            throw new Refusal(431, "trailers are longer than " + TRAILER_BYTES_MAX + " bytes");
        }
        if (!Ascii.isToken(bytes[from])) {
            throw new Refusal(400, "a trailer does not begin with a name");
        }
        for (int at = from; at < to; at++) {
            if (!Ascii.isValue(bytes[at])) {
                throw new Refusal(400, "control character in a trailer");
            }
        }
    }
}
