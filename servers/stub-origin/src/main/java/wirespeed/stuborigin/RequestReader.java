/** Reads the requests of one connection: the few fields that the stub needs, and skips bodies. */
package wirespeed.stuborigin;

import java.nio.charset.StandardCharsets;

/**
 * A simple parser for well-formed requests. It does not check what a gateway may forward ({@code
 * --record} shows that), but it never guesses: a request that it cannot frame is malformed.
 */
final class RequestReader {
    static final int HEAD_BYTES_MAX = 64 * 1024;

    /** The result of reading. */
    enum Outcome { INCOMPLETE, CONTINUE_EXPECTED, COMPLETE, MALFORMED }

    private enum State { HEAD, BODY, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER }

    private static final byte[] VERSION = ascii("http/1.");
    private static final byte[] HEAD = ascii("head");
    private static final byte[] EXPECT = ascii("expect");
    private static final byte[] CONNECTION = ascii("connection");
    private static final byte[] CLOSE = ascii("close");
    private static final byte[] KEEP_ALIVE = ascii("keep-alive");
    private static final byte[] REQUEST_ID = ascii("x-request-id");
    private static final byte[] FAULT = ascii("x-stub-fault");
    private static final byte[] LATENCY = ascii("x-stub-latency");
    private static final byte[] LENGTH = ascii("content-length");
    private static final byte[] CODING = ascii("transfer-encoding");
    private static final byte[] CHUNKED = ascii("chunked");

    boolean isHead;
    boolean isOld;
    boolean isKeepAlive;
    /** The field's value; the array is larger and reused. */
    byte[] requestId = {};
    int requestIdBytes;
    String fault = "";
    String latency = "";
    /** Where reading stopped. */
    int at;

    private State state = State.HEAD;
    private long left;
    private boolean isChunked;
    private boolean isContinueExpected;
    private boolean isMalformed;

    /** Reads on; after COMPLETE the next call starts the next request. */
    Outcome read(byte[] bytes, int from, int to) {
        at = from;
        if (state == State.HEAD) {
            int end = headEnd(bytes, from, to);
            if (end < 0) {
                return to - from > HEAD_BYTES_MAX ? Outcome.MALFORMED : Outcome.INCOMPLETE;
            }
            head(bytes, from, end - 2);
            if (isMalformed) {
                return Outcome.MALFORMED;
            }
            at = end;
            state = isChunked ? State.CHUNK_SIZE : State.BODY;
            if (isContinueExpected) {
                return Outcome.CONTINUE_EXPECTED;
            }
        }
        return body(bytes, to);
    }

    private static int headEnd(byte[] bytes, int from, int to) {
        for (int at = from + 3; at < to; at++) {
            if (bytes[at] == '\n' && bytes[at - 1] == '\r' && bytes[at - 2] == '\n'
                    && bytes[at - 3] == '\r') {
                return at + 1;
            }
        }
        return -1;
    }

    private void head(byte[] bytes, int from, int to) {
        isChunked = false;
        isContinueExpected = false;
        left = 0;
        requestIdBytes = 0;
        fault = "";
        latency = "";
        int line = requestLine(bytes, from, to);
        while (!isMalformed && line < to) {
            int colon = find(bytes, line, to, ':');
            int end = find(bytes, line, to, '\r');
            isMalformed = colon >= end || colon == line || bytes[end + 1] != '\n';
            if (!isMalformed) {
                field(bytes, line, colon, end);
            }
            line = end + 2;
        }
        isContinueExpected &= isChunked || left > 0;
    }

    /** Returns where the fields start. */
    private int requestLine(byte[] bytes, int from, int to) {
        int methodTo = find(bytes, from, to, ' ');
        int targetTo = find(bytes, methodTo + 1, to, ' ');
        int end = find(bytes, from, to, '\r');
        isMalformed = methodTo == from || targetTo <= methodTo + 1 || end - targetTo != 9
                || !is(bytes, targetTo + 1, targetTo + 8, VERSION);
        isHead = !isMalformed && is(bytes, from, methodTo, HEAD);
        isOld = !isMalformed && bytes[end - 1] == '0';
        isKeepAlive = !isOld;
        return end + 2;
    }

    /** The ends of head and line follow, so that an index one further can be read. */
    private static int find(byte[] bytes, int from, int to, char wanted) {
        int each = from;
        while (each < to && bytes[each] != wanted) {
            each++;
        }
        return each;
    }

    private void field(byte[] bytes, int name, int colon, int end) {
        int from = colon + 1;
        while (from < end && bytes[from] == ' ') {
            from++;
        }
        switch (colon - name) {
            case 6 -> isContinueExpected |= is(bytes, name, colon, EXPECT);
            case 10 -> {
                if (is(bytes, name, colon, CONNECTION)) {
                    isKeepAlive = !is(bytes, from, end, CLOSE)
                            && (isKeepAlive || is(bytes, from, end, KEEP_ALIVE));
                }
            }
            case 12 -> {
                if (is(bytes, name, colon, REQUEST_ID)) {
                    keepRequestId(bytes, from, end);
                } else if (is(bytes, name, colon, FAULT)) {
                    fault = text(bytes, from, end);
                }
            }
            case 14 -> {
                if (is(bytes, name, colon, LENGTH)) {
                    length(text(bytes, from, end));
                } else if (is(bytes, name, colon, LATENCY)) {
                    latency = text(bytes, from, end);
                }
            }
            case 17 -> isChunked |= is(bytes, name, colon, CODING) && is(bytes, from, end, CHUNKED);
            default -> {
                // no other field changes the response
            }
        }
    }

    private void keepRequestId(byte[] bytes, int from, int to) {
        requestIdBytes = to - from;
        if (requestId.length < requestIdBytes) {
            requestId = new byte[Math.max(64, requestIdBytes)];
        }
        System.arraycopy(bytes, from, requestId, 0, requestIdBytes);
    }

    private static String text(byte[] bytes, int from, int to) {
        return new String(bytes, from, to - from, StandardCharsets.ISO_8859_1).strip();
    }

    /** Whether a range is this lower-case word, in any case. */
    private static boolean is(byte[] bytes, int from, int to, byte[] lower) {
        boolean isEqual = to - from == lower.length;
        for (int each = 0; isEqual && each < lower.length; each++) {
            int value = bytes[from + each];
            isEqual = (value >= 'A' && value <= 'Z' ? value | 0x20 : value) == lower[each];
        }
        return isEqual;
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    private void length(String value) {
        try {
            left = Long.parseLong(value);
            isMalformed |= left < 0;
        } catch (NumberFormatException notALength) {
            isMalformed = true;
        }
    }

    private Outcome body(byte[] bytes, int to) {
        while (true) {
            switch (state) {
                case BODY -> {
                    skip(to);
                    return left > 0 ? Outcome.INCOMPLETE : complete();
                }
                case CHUNK_DATA -> {
                    skip(to);
                    if (left > 0) {
                        return Outcome.INCOMPLETE;
                    }
                    state = State.CHUNK_END;
                }
                default -> {
                    String line = line(bytes, to);
                    if (line == null) {
                        return to - at > HEAD_BYTES_MAX ? Outcome.MALFORMED : Outcome.INCOMPLETE;
                    }
                    if (chunkLine(line)) {
                        return isMalformed ? Outcome.MALFORMED : complete();
                    }
                }
            }
        }
    }

    /** One line of a chunked body; true if it is the last one, or malformed. */
    private boolean chunkLine(String line) {
        if (state == State.TRAILER) {
            return line.isEmpty();
        }
        if (state == State.CHUNK_END) {
            state = State.CHUNK_SIZE;
            isMalformed = !line.isEmpty();
            return isMalformed;
        }
        try {
            left = Long.parseLong(line.split(";", 2)[0].strip(), 16);
            isMalformed = left < 0;
        } catch (NumberFormatException notASize) {
            isMalformed = true;
        }
        state = left == 0 ? State.TRAILER : State.CHUNK_DATA;
        return isMalformed;
    }

    private void skip(int to) {
        int step = (int) Math.min(left, to - at);
        left -= step;
        at += step;
    }

    private String line(byte[] bytes, int to) {
        for (int end = at; end + 1 < to; end++) {
            if (bytes[end] == '\r' && bytes[end + 1] == '\n') {
                String line = new String(bytes, at, end - at, StandardCharsets.ISO_8859_1);
                at = end + 2;
                return line;
            }
        }
        return null;
    }

    private Outcome complete() {
        state = State.HEAD;
        return Outcome.COMPLETE;
    }
}
