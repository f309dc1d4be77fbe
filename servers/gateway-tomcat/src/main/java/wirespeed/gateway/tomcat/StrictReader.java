// Hands Tomcat only what the strict checks have passed: short heads of its own, bodies by their framing.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.function.Supplier;
import wirespeed.gateway.core.ChunkFrames;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.HeadCheck;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Limits;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.Request;

/**
 * The bytes that one connection receives, between its socket and Tomcat's parser, which repairs
 * what it reads: folded lines, bare LF, a length next to a coding. Here they are seen as they came.
 * The servlet asks this reader, and not Tomcat, for the request ({@link #request}). Tomcat reads what it
 * needs itself and no more: it would refuse names of hosts with an underscore, among others.
 */
final class StrictReader {
    /** Where bytes come from; 0 when there are none now, -1 at the end. */
    interface Source {
        int read(ByteBuffer into) throws IOException;
    }

    /** Is notified how long the rest of a head may take. */
    interface Clock {
        void readTimeout(long millis);
    }

    private enum State { HEAD, LENGTH, CHUNKED, REFUSED, RAW }

    private static final String LATE_HEAD = "request head did not arrive in time";
    private static final int RECEIVED_BYTES_LEAST = 2048;
    private static final long CHUNK_BYTES_MAX = 1 << 30;
    private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);
    /** What Tomcat reads in place of a head that is refused, so that the servlet can answer it. */
    private static final byte[] REFUSED_HEAD = ascii("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    private static final byte[] GET_HEAD = ascii("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    private static final byte[] CRLF = ascii("\r\n");
    private static final byte[] LAST_SIZE = ascii("0\r\n");

    private final Source socket;
    private final Supplier<Limits> limitsNow;
    private final long headNanos;
    private final ChunkFrames frames = new ChunkFrames();
    /** What Tomcat may still get of a chunk. */
    private long announced;
    /** Whether data of a chunk was passed and not the end of its line. */
    private boolean isChunkOpen;
    /** Whether the size of the last chunk was passed. */
    private boolean isLastOpen;
    private State state = State.HEAD;
    private Limits limits;
    private byte[] received = new byte[0];
    private int from;
    private int to;
    private int scanned;
    private long began;
    private long left;
    /** Whether what comes of the body is dropped, and until when. */
    private boolean isDropping;
    private long dropNanos;
    private ByteBuffer passed = NOTHING;
    private Request request;
    private Refusal refusal;

    StrictReader(Source socket, Supplier<Limits> limits, long headMillis) {
        this.socket = socket;
        this.limitsNow = limits;
        this.headNanos = headMillis * 1_000_000;
    }

    /** For the next connection of a channel that Tomcat uses again. */
    void reset() {
        state = State.HEAD;
        received = new byte[0];
        from = to = 0;
        passed = NOTHING;
        isDropping = false;
        request = null;
        refusal = null;
        beginHead();
    }

    /** The request whose head Tomcat has just read, or its refusal. */
    Request request() {
        if (refusal != null) {
            throw refusal;
        }
        return request;
    }

    /** From now on the bytes are not HTTP/1: the protocol was switched. */
    void raw() {
        state = State.RAW;
    }

    /** Whether a head has begun that took longer than it may. */
    boolean isLate() {
        return state == State.HEAD && began != 0 && System.nanoTime() - began >= headNanos;
    }

    /** Whether the connection ends in the middle of a head that is late; true once. */
    boolean isCutLate() {
        boolean isCut = isLate() && to > from;
        if (isCut) {
            giveUp();
        }
        return isCut;
    }

    /**
     * Whether a request is on its way: its head has begun.
     *
     * @param isFirstDue whether the first one counts before its first byte, too
     */
    boolean isAwaited(boolean isFirstDue) {
        return state == State.HEAD && (began != 0 || isFirstDue && request == null);
    }

    /** Whether the protocol was switched. */
    boolean isRaw() {
        return state == State.RAW;
    }

    /** Nothing more of this connection is wanted. */
    void giveUp() {
        state = State.REFUSED;
    }

    /** The rest of the body is dropped, and not waited for after this time. */
    void dropRest(long deadlineNanos) {
        isDropping = true;
        dropNanos = deadlineNanos;
    }

    /** Whether the client may still send unneeded data: behind a refusal, or of a body. */
    boolean hasRest() {
        return state == State.REFUSED || state == State.LENGTH || state == State.CHUNKED;
    }

    /** As a channel's read; nothing is delivered of a head that is not complete. */
    int read(ByteBuffer into, Clock clock) throws IOException {
        if (passed.hasRemaining()) {
            return pass(into);
        }
        if (isDropping && hasRest() && System.nanoTime() - dropNanos >= 0) {
            giveUp();
        }
        return switch (state) {
            case HEAD -> head(into, clock);
            case LENGTH -> length(into);
            case CHUNKED -> chunked(into);
            case REFUSED -> -1;
            case RAW -> piece(into, Integer.MAX_VALUE);
        };
    }

    private int pass(ByteBuffer into) {
        int count = Math.min(into.remaining(), passed.remaining());
        into.put(into.position(), passed, passed.position(), count);
        into.position(into.position() + count);
        passed.position(passed.position() + count);
        return count;
    }

    private int head(ByteBuffer into, Clock clock) throws IOException {
        try {
            while (true) {
                if (to > from && isHeadComplete()) {
                    return pass(into);
                }
                int count = fill();
                if (count <= 0) {
                    if (began != 0) {
                        clock.readTimeout(Math.max(1, (began + headNanos - System.nanoTime())
                                / 1_000_000));
                    }
                    return count;
                }
            }
        } catch (Refusal refused) {
            refusal = refused;
            state = State.REFUSED;
            passed = ByteBuffer.wrap(REFUSED_HEAD);
            return pass(into);
        }
    }

    private boolean isHeadComplete() {
        if (began == 0) {
            began = System.nanoTime();
            limits = limitsNow.get();
        }
        skipEmptyLines();
        if (to == from) {
            refuseLate();
            return false;
        }
        int end = HeadCheck.end(received, from, to, scanned, limits);
        scanned = to - from;
        if (end < 0) {
            refuseLate();
            return false;
        }
        request = HeadCheck.request(received, from, end, limits);
        isDropping = false;
        passed = ByteBuffer.wrap(forTomcat(request));
        from = end;
        beginHead();
        if (request.framing().isChunked()) {
            state = State.CHUNKED;
            frames.begin();
            isChunkOpen = false;
            isLastOpen = false;
        } else if (!request.framing().isEmpty()) {
            state = State.LENGTH;
            left = request.framing().length();
        }
        return true;
    }

    private void refuseLate() {
        if (isLate()) {
            throw new Refusal(408, LATE_HEAD);
        }
    }

    /** RFC 9112 §2.2: some clients send an empty line after a body; the time goes on with it. */
    private void skipEmptyLines() {
        while (to - from >= 2 && received[from] == '\r' && received[from + 1] == '\n') {
            from += 2;
            scanned = 0;
        }
    }

    /** By what Tomcat decides where the body ends, whether to ask for it, and whether another request follows. */
    private static byte[] forTomcat(Request request) {
        Framing framing = request.framing();
        boolean isModern = request.minor() == 1;
        boolean isPlain = isModern && request.keepAlive() && framing.kind() == Framing.Kind.NONE;
        if (isPlain && request.method().equals("GET")) {
            return GET_HEAD;
        }
        StringBuilder head = new StringBuilder(160).append(request.method()).append(" / HTTP/1.")
                .append(request.minor()).append("\r\nHost: a\r\n");
        if (framing.isChunked()) {
            head.append("Transfer-Encoding: chunked\r\n");
        } else if (framing.kind() == Framing.Kind.LENGTH) {
            head.append("Content-Length: ").append(framing.length()).append("\r\n");
        }
        if (request.keepAlive() != isModern) {
            head.append("Connection: ").append(isModern ? "close" : "keep-alive").append("\r\n");
        }
        if (request.expectsContinue()) {
            head.append("Expect: 100-continue\r\n");
        }
        return ascii(head.append("\r\n").toString());
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    private void beginHead() {
        scanned = 0;
        began = 0;
    }

    private int length(ByteBuffer into) throws IOException {
        int count = piece(into, left);
        left -= Math.max(0, count);
        if (left == 0) {
            state = State.HEAD;
        }
        return count;
    }

    private int chunked(ByteBuffer into) throws IOException {
        try {
            while (true) {
                if (frames.data() > 0 && announced == 0) {
                    // The rest of a chunk that is longer than Tomcat takes one for.
                    passed = ByteBuffer.wrap(ascii("\r\n" + size()));
                    return pass(into);
                }
                if (frames.data() > 0) {
                    int count = piece(into, announced);
                    frames.took(Math.max(0, count));
                    announced -= Math.max(0, count);
                    return count;
                }
                if (isLineComplete()) {
                    passed = ByteBuffer.wrap(frame());
                    state = frames.isDone() ? State.HEAD : State.CHUNKED;
                    if (passed.hasRemaining()) {
                        return pass(into);
                    }
                    continue;
                }
                int count = fill();
                if (count <= 0) {
                    return count;
                }
            }
        } catch (Refusal refused) {
            state = State.REFUSED;
            throw new Refused(refused);
        }
    }

    private boolean isLineComplete() {
        while (from < to) {
            if (frames.frame(received[from++])) {
                return true;
            }
        }
        return false;
    }

    private String size() {
        announced = Math.min(frames.data(), CHUNK_BYTES_MAX);
        return Long.toHexString(announced) + "\r\n";
    }

    /** The line that ended, without extensions and trailers, which Tomcat would have limits of its own for. */
    private byte[] frame() {
        if (frames.data() > 0) {
            isChunkOpen = true;
            return ascii(size());
        }
        if (isChunkOpen || frames.isDone()) {
            isChunkOpen = false;
            return CRLF;
        }
        byte[] size = isLastOpen ? new byte[0] : LAST_SIZE;
        isLastOpen = true;
        return size;
    }

    /** The trailers of the request that was read last; null for none. */
    Headers trailers() {
        return frames.trailers();
    }

    /** At most {@code most} bytes, beginning with bytes that came with a head or a chunk's line. */
    private int piece(ByteBuffer into, long most) throws IOException {
        int room = (int) Math.min(into.remaining(), most);
        if (to > from) {
            int count = Math.min(room, to - from);
            into.put(received, from, count);
            from += count;
            return count;
        }
        int limit = into.limit();
        into.limit(into.position() + room);
        try {
            return socket.read(into);
        } finally {
            into.limit(limit);
        }
    }

    private int fill() throws IOException {
        if (from == to) {
            from = to = 0;
        } else if (to == received.length && from > 0) {
            System.arraycopy(received, from, received, 0, to - from);
            to -= from;
            from = 0;
        }
        if (to == received.length) {
            // Bounded: a head or a line that is longer than its limit has been refused before.
            received = Arrays.copyOf(received, Math.max(RECEIVED_BYTES_LEAST, 2 * to));
        }
        int count = socket.read(ByteBuffer.wrap(received, to, received.length - to));
        to += Math.max(0, count);
        return count;
    }

    /** The response to a client whose head was late and which Tomcat closes without one. */
    static ByteBuffer late() {
        String body = "408 Request Timeout: " + LATE_HEAD + "\n";
        return ByteBuffer.wrap(ascii("HTTP/1.1 408 Request Timeout\r\nContent-Type: text/plain;"
                + " charset=utf-8\r\nContent-Length: " + body.length() + "\r\nConnection: close\r\n\r\n"
                + body));
    }
}
