// Encodes a chunked request body for an origin.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import org.apache.hc.core5.http.io.SessionOutputBuffer;
import wirespeed.gateway.core.HeadSink;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Trailers;

/**
 * In place of HttpClient's own, which writes the last chunk when it is closed: a body that was
 * broken off would look complete to the origin. Here only {@link #finish} writes it.
 */
final class ChunkedOut extends OutputStream {
    private static final byte[] CRLF = {'\r', '\n'};

    private final SessionOutputBuffer buffer;
    private final OutputStream out;

    ChunkedOut(SessionOutputBuffer buffer, OutputStream out) {
        this.buffer = buffer;
        this.out = out;
    }

    @Override
    public void write(int b) throws IOException {
        write(new byte[] {(byte) b}, 0, 1);
    }

    @Override
    public void write(byte[] bytes, int from, int count) throws IOException {
        if (count > 0) {
            buffer.write(Integer.toHexString(count).getBytes(StandardCharsets.US_ASCII), out);
            buffer.write(CRLF, out);
            buffer.write(bytes, from, count, out);
            buffer.write(CRLF, out);
        }
    }

    @Override
    public void flush() throws IOException {
        buffer.flush(out);
    }

    /** Writes the last chunk, with these trailers; null for none. */
    void finish(Headers trailers) throws IOException {
        HeadSink sink = new HeadSink();
        Trailers.write(trailers, sink);
        buffer.write(sink.array(), 0, sink.length(), out);
    }
}
