// Cuts a body out of the received bytes, by the framing that the checked head gave.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import wirespeed.gateway.core.ChunkLineCheck;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Refusal;

/** Data goes out as retained slices; chunk lines are checked and dropped, as trailers are. */
final class BodyReader {
    /** Takes the pieces. */
    interface Sink {
        /** A piece of the body; the sink owns it. */
        void body(ByteBuf slice);
    }

    private enum State { LENGTH, UNTIL_CLOSE, SIZE_LINE, DATA, DATA_END, TRAILER, DONE }

    private static final int LINE_BYTES_MAX = 1200;
    private static final int TRAILER_BYTES_MAX = 8192;

    private State state = State.DONE;
    private long left;
    private byte[] line;
    private int lineLength;
    private int extensionBytes;
    private int trailerBytes;

    /** Begins a body; an empty one is done at once. */
    void begin(Framing framing) {
        left = framing.length();
        state = switch (framing.kind()) {
            case NONE -> State.DONE;
            case LENGTH -> left == 0 ? State.DONE : State.LENGTH;
            case CHUNKED -> State.SIZE_LINE;
            case UNTIL_CLOSE -> State.UNTIL_CLOSE;
        };
        lineLength = 0;
        extensionBytes = 0;
        trailerBytes = 0;
    }

    boolean isDone() {
        return state == State.DONE;
    }

    /** The peer has sent its last byte: whether that ends the body. */
    boolean endsWithClose() {
        return state == State.UNTIL_CLOSE || state == State.DONE;
    }

    /** Reads until the input is empty or the body is done; refuses bad chunks with 400. */
    void read(ByteBuf in, Sink sink) {
        while (state != State.DONE && in.isReadable()) {
            switch (state) {
                case UNTIL_CLOSE -> sink.body(in.readRetainedSlice(in.readableBytes()));
                case LENGTH -> data(in, sink, State.DONE);
                case DATA -> data(in, sink, State.DATA_END);
                case SIZE_LINE -> sizeLine(in);
                case DATA_END -> dataEnd(in);
                case TRAILER -> trailer(in);
                default -> throw new IllegalStateException("a body in state " + state);
            }
        }
    }

    private void data(ByteBuf in, Sink sink, State after) {
        int count = (int) Math.min(left, in.readableBytes());
        left -= count;
        if (left == 0) {
            state = after;
        }
        sink.body(in.readRetainedSlice(count));
    }

    private void sizeLine(ByteBuf in) {
        if (!readLine(in)) {
            return;
        }
        left = ChunkLineCheck.size(line, 0, lineLength);
        if (hasExtension()) {
            extensionBytes += lineLength;
        }
        if (extensionBytes > ChunkLineCheck.EXTENSION_BYTES_MAX) {
            throw new Refusal(413, "chunk extensions are longer than "
                    + ChunkLineCheck.EXTENSION_BYTES_MAX + " bytes");
        }
        lineLength = 0;
        state = left == 0 ? State.TRAILER : State.DATA;
    }

    private boolean hasExtension() {
        for (int i = 0; i < lineLength; i++) {
            if (line[i] == ';') {
                return true;
            }
        }
        return false;
    }

    private void dataEnd(ByteBuf in) {
        if (!readLine(in)) {
            if (lineLength > 1 || lineLength == 1 && line[0] != '\r') {
                throw new Refusal(400, "chunk data is longer than its size");
            }
            return;
        }
        if (lineLength != 0) {
            throw new Refusal(400, "chunk data is longer than its size");
        }
        state = State.SIZE_LINE;
    }

    /** Trailers are read to find the end and then dropped (RFC 9112 §7.1.2). */
    private void trailer(ByteBuf in) {
        if (!readLine(in)) {
            return;
        }
        if (lineLength == 0) {
            state = State.DONE;
            return;
        }
        trailerBytes += lineLength;
        int colon = 0;
        while (colon < lineLength && wirespeed.gateway.core.Ascii.isToken(line[colon])) {
            colon++;
        }
        if (colon == 0 || colon == lineLength || line[colon] != ':') {
            throw new Refusal(400, "trailer line is no field");
        }
        for (int at = colon + 1; at < lineLength; at++) {
            if (!wirespeed.gateway.core.Ascii.isValue(line[at])) {
                throw new Refusal(400, "control character in a trailer");
            }
        }
        if (trailerBytes > TRAILER_BYTES_MAX) {
            throw new Refusal(431, "trailers are longer than " + TRAILER_BYTES_MAX + " bytes");
        }
        lineLength = 0;
    }

    /** Collects a line up to CRLF; true when it is there, without its CRLF. */
    private boolean readLine(ByteBuf in) {
        if (line == null) {
            line = new byte[LINE_BYTES_MAX];
        }
        while (in.isReadable()) {
            byte b = in.readByte();
            boolean afterCr = lineLength > 0 && line[lineLength - 1] == '\r';
            if (b == '\n') {
                if (!afterCr) {
                    throw new Refusal(400, "LF without CR in the framing of a chunked body");
                }
                lineLength--;
                return true;
            }
            if (afterCr) {
                throw new Refusal(400, "CR without LF in the framing of a chunked body");
            }
            if (lineLength == LINE_BYTES_MAX) {
                throw new Refusal(state == State.SIZE_LINE ? 413 : 431,
                        "line in the framing of a chunked body is longer than "
                                + LINE_BYTES_MAX + " bytes");
            }
            line[lineLength++] = b;
        }
        return false;
    }
}
