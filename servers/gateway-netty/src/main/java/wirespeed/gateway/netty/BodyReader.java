// Cuts a body out of the received bytes, by the framing that the checked head gave.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import wirespeed.gateway.core.ChunkFrames;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Headers;

/** Data goes out as retained slices; what frames it is read by {@link ChunkFrames}. */
class BodyReader {
    /** Takes the pieces. */
    interface Sink {
        /** A piece of the body; the sink owns it. */
        void body(ByteBuf slice);
    }

    private enum State { LENGTH, UNTIL_CLOSE, CHUNKED, DONE }

    private State state = State.DONE;
    private long left;
    private ChunkFrames frames;

    /** Begins a body; an empty one is done at once. */
    void begin(Framing framing) {
        left = framing.length();
        state = switch (framing.kind()) {
            case NONE -> State.DONE;
            case LENGTH -> left == 0 ? State.DONE : State.LENGTH;
            case CHUNKED -> State.CHUNKED;
            case UNTIL_CLOSE -> State.UNTIL_CLOSE;
        };
        if (state == State.CHUNKED && frames == null) {
            frames = new ChunkFrames();
        }
        if (frames != null) {
            frames.begin();
        }
    }

    boolean isDone() {
        return state == State.DONE;
    }

    /** Whether at most this many bytes are missing to the body's end. */
    boolean endsWithin(long bytes) {
        return state == State.DONE || state == State.LENGTH && left <= bytes;
    }

    /** The peer has sent its last byte: whether that ends the body. */
    boolean endsWithClose() {
        return state == State.UNTIL_CLOSE || state == State.DONE;
    }

    /** The trailers after the last chunk of the body; null for none. */
    Headers trailers() {
        return frames == null ? null : frames.trailers();
    }

    /** Reads until the input is empty or the body is done; refuses bad chunks with 400. */
    void read(ByteBuf in, Sink sink) {
        while (state != State.DONE && in.isReadable()) {
            switch (state) {
                case UNTIL_CLOSE -> sink.body(in.readRetainedSlice(in.readableBytes()));
                case LENGTH -> data(in, sink);
                case CHUNKED -> chunked(in, sink);
                default -> throw new IllegalStateException("a body in state " + state);
            }
        }
    }

    private void data(ByteBuf in, Sink sink) {
        int count = (int) Math.min(left, in.readableBytes());
        left -= count;
        if (left == 0) {
            state = State.DONE;
        }
        sink.body(in.readRetainedSlice(count));
    }

    private void chunked(ByteBuf in, Sink sink) {
        if (frames.data() > 0) {
            int count = (int) Math.min(frames.data(), in.readableBytes());
            frames.took(count);
            sink.body(in.readRetainedSlice(count));
            return;
        }
        frames.frame(in.readByte());
        if (frames.isDone()) {
            state = State.DONE;
        }
    }
}
