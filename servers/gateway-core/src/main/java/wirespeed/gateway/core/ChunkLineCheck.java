// Strict reading of a chunk's size line (RFC 9112 §7.1).
package wirespeed.gateway.core;

/**
 * Bytes in, size out. Leading blanks, signs, "0x", text after a blank and sizes that wrap are
 * refused: each of them is read as another size by some server.
 */
public final class ChunkLineCheck {
    /** All extensions of one message together; no client needs more; they are never forwarded. */
    public static final int EXTENSION_BYTES_MAX = 1024;
    /** 15 digits stay below 2^60. */
    private static final int DIGITS_MAX = 15;

    private ChunkLineCheck() {
    }

    /**
     * The size of a chunk.
     *
     * @param from first byte of the line
     * @param to after the line's last byte; its CRLF is not included
     */
    public static long size(byte[] line, int from, int to) {
        long size = 0;
        int at = from;
        while (at < to && Ascii.hex(line[at]) >= 0) {
            size = size << 4 | Ascii.hex(line[at]);
            at++;
        }
        if (at == from || at - from > DIGITS_MAX) {
            throw Refusal.bad("chunk size is not 1 to " + DIGITS_MAX + " hexadecimal digits");
        }
        if (at < to) {
            checkExtensions(line, at, to);
        }
        return size;
    }

    private static void checkExtensions(byte[] line, int from, int to) {
        if (line[from] != ';') {
            throw Refusal.bad("chunk size is followed by an invalid extension");
        }
        boolean isQuoted = false;
        for (int at = from; at < to; at++) {
            if (!Ascii.isValue(line[at])) {
                throw Refusal.bad("control character in a chunk extension");
            }
            if (isQuoted && line[at] == '\\') {
                at++;
            } else if (line[at] == '"') {
                isQuoted = !isQuoted;
            }
        }
        if (isQuoted) {
            throw Refusal.bad("chunk extension with an open quote");
        }
    }
}
