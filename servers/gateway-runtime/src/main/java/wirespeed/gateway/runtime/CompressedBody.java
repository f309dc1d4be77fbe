// A body on its way through a compressor.
package wirespeed.gateway.runtime;

import com.aayushatharva.brotli4j.encoder.BrotliOutputStream;
import com.aayushatharva.brotli4j.encoder.Encoder;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.zip.GZIPOutputStream;
import wirespeed.gateway.core.BodyTransform;

/** Each piece leaves whole: the origin may pause after any of them. */
final class CompressedBody implements BodyTransform {
    private static final int BUFFER_BYTES = 4096;
    private static final int BROTLI_QUALITY = 4;

    /** Hands its bytes out without a copy. */
    private static final class Out extends ByteArrayOutputStream {
        Out() {
            super(BUFFER_BYTES);
        }

        ByteBuffer take() {
            ByteBuffer bytes = ByteBuffer.wrap(buf, 0, count);
            count = 0;
            return bytes;
        }
    }

    private final Out out = new Out();
    private final OutputStream compressor;
    private byte[] buffer = new byte[BUFFER_BYTES];
    private boolean isClosed;

    private CompressedBody(String encoding) throws IOException {
        if (encoding.equals("br")) {
            compressor = new BrotliOutputStream(out,
                    new Encoder.Parameters().setQuality(BROTLI_QUALITY));
        } else {
            compressor = new GZIPOutputStream(out, BUFFER_BYTES, true);
        }
    }

    static CompressedBody of(String encoding) {
        try {
            return new CompressedBody(encoding);
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
    }

    @Override
    public ByteBuffer chunk(ByteBuffer piece) {
        int count = piece.remaining();
        if (count > buffer.length) {
            buffer = new byte[count];
        }
        piece.get(buffer, 0, count);
        try {
            compressor.write(buffer, 0, count);
            compressor.flush();
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
        return out.take();
    }

    @Override
    public ByteBuffer end() {
        close();
        return out.take();
    }

    /** Compressors hold memory that no collector sees. */
    @Override
    public void close() {
        if (isClosed) {
            return;
        }
        isClosed = true;
        try {
            compressor.close();
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
    }
}
