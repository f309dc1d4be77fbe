// Decodes a chunked body from an origin strictly (RFC 9112 §7.1).
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.io.InputStream;
import org.apache.hc.core5.http.io.SessionInputBuffer;
import wirespeed.gateway.core.ChunkFrames;
import wirespeed.gateway.core.Headers;

/** In place of HttpClient's own, which also reads what is nearly a chunk. */
final class ChunkedBody extends InputStream {
    private final SessionInputBuffer buffer;
    private final InputStream in;
    private final ChunkFrames frames = new ChunkFrames();

    ChunkedBody(SessionInputBuffer buffer, InputStream in) {
        this.buffer = buffer;
        this.in = in;
        frames.begin();
    }

    @Override
    public int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    @Override
    public int read(byte[] into, int from, int count) throws IOException {
        while (frames.data() == 0 && !frames.isDone()) {
            frame();
        }
        if (frames.isDone()) {
            return -1;
        }
        int read = buffer.read(into, from, (int) Math.min(count, frames.data()), in);
        if (read < 0) {
            throw new IOException("the origin closed in the middle of a chunk");
        }
        frames.took(read);
        // Otherwise the end of a chunk would look like a piece of the body that is here already.
        boolean isInLine = true;
        while (isInLine && frames.data() == 0 && buffer.length() > 0) {
            isInLine = !frame();
        }
        return read;
    }

    private boolean frame() throws IOException {
        int next = buffer.read(in);
        if (next < 0) {
            throw new IOException("the origin closed in the middle of a chunked body");
        }
        return frames.frame((byte) next);
    }

    /** Bytes that can be had without waiting for the origin. */
    @Override
    public int available() {
        return buffer.length();
    }

    /** The trailers after the last chunk; null for none. */
    Headers trailers() {
        return frames.trailers();
    }
}
