// Decodes a chunked body from an origin strictly (RFC 9112 §7.1).
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.io.InputStream;
import org.apache.hc.core5.http.io.SessionInputBuffer;
import wirespeed.gateway.core.Ascii;
import wirespeed.gateway.core.ChunkLineCheck;

/** In place of HttpClient's own, which also reads what is nearly a chunk. Trailers are dropped. */
final class ChunkedBody extends InputStream {
    private static final int LINE_BYTES_MAX = 2048;
    private static final int TRAILER_LINES_MAX = 100;

    private final SessionInputBuffer buffer;
    private final InputStream in;
    private final byte[] line = new byte[LINE_BYTES_MAX];
    private long left;
    private long extensionBytes;
    private boolean isChunkOpen;
    private boolean isOver;

    ChunkedBody(SessionInputBuffer buffer, InputStream in) {
        this.buffer = buffer;
        this.in = in;
    }

    @Override
    public int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    @Override
    public int read(byte[] into, int from, int count) throws IOException {
        if (left == 0 && !isOver) {
            begin();
        }
        if (isOver) {
            return -1;
        }
        int read = buffer.read(into, from, (int) Math.min(count, left), in);
        if (read < 0) {
            throw new IOException("the origin closed in the middle of a chunk");
        }
        left -= read;
        if (left == 0 && buffer.length() >= 2) {
            // Otherwise these two bytes would look like a piece of the body that is here already.
            endOfChunk();
        }
        return read;
    }

    /** Bytes that can be had without waiting for the origin. */
    @Override
    public int available() {
        return buffer.length();
    }

    private void endOfChunk() throws IOException {
        if (line() != 0) {
            throw new IOException("a chunk is longer than its size");
        }
        isChunkOpen = false;
    }

    private void begin() throws IOException {
        if (isChunkOpen) {
            endOfChunk();
        }
        isChunkOpen = true;
        int length = line();
        left = ChunkLineCheck.size(line, 0, length);
        extensionBytes += length - digits(length);
        if (extensionBytes > ChunkLineCheck.EXTENSION_BYTES_MAX) {
            throw new IOException("chunk extensions are longer than "
                    + ChunkLineCheck.EXTENSION_BYTES_MAX + " bytes");
        }
        if (left == 0) {
            isChunkOpen = false;
            trailers();
            isOver = true;
        }
    }

    private int digits(int length) {
        int digits = 0;
        while (digits < length && Ascii.hex(line[digits]) >= 0) {
            digits++;
        }
        return digits;
    }

    private void trailers() throws IOException {
        for (int i = 0; i <= TRAILER_LINES_MAX; i++) {
            if (line() == 0) {
                return;
            }
        }
        throw new IOException("more than " + TRAILER_LINES_MAX + " trailers");
    }

    private int line() throws IOException {
        int length = 0;
        while (true) {
            int b = buffer.read(in);
            if (b < 0) {
                throw new IOException("the origin closed in the middle of a chunked body");
            }
            if (b == '\n') {
                if (length == 0 || line[length - 1] != '\r') {
                    throw new IOException("LF without CR in a chunked body");
                }
                return length - 1;
            }
            if (length == line.length) {
                throw new IOException("chunk line is longer than " + LINE_BYTES_MAX + " bytes");
            }
            line[length++] = (byte) b;
        }
    }
}
