/**
 * The strict parser of request heads: bytes in, fields or an error status out; no I/O, no objects.
 *
 * <p>It rejects everything that two parsers could understand differently (RFC 9112 §2.2, §3, §5,
 * §6): bare CR or LF, folded lines, blanks before a colon, more than one length. Until a head is
 * complete it is read from its first byte each time; its size is limited, and so is the work.
 */
package wirespeed.httpserver;

import java.nio.charset.StandardCharsets;

/** The last head. One instance serves all connections of a loop, one after another. */
final class RequestHead {
    static final int LINE_BYTES_MAX = 4096;
    static final int HEAD_BYTES_MAX = 8192;
    static final int FIELDS_MAX = 100;
    static final int METHOD_BYTES_MAX = 32;
    /** The result of {@link #read} when more bytes are needed. */
    static final int INCOMPLETE = 0;
    private static final byte[] HOST = lower("host");
    private static final byte[] CONNECTION = lower("connection");
    private static final byte[] CONTENT_LENGTH = lower("content-length");
    private static final byte[] TRANSFER_ENCODING = lower("transfer-encoding");
    private static final byte[] EXPECT = lower("expect");
    private static final byte[] CLOSE = lower("close");
    private static final byte[] KEEP_ALIVE = lower("keep-alive");
    private static final byte[] CHUNKED = lower("chunked");
    private static final byte[] CONTINUE = lower("100-continue");
    private static final byte[] HTTP_SCHEME = lower("http");
    private static final byte[] HTTPS_SCHEME = lower("https");
    private static final byte[] HTTP = "HTTP/".getBytes(StandardCharsets.US_ASCII);

    Method method;
    /** The path and query within the bytes that were read. */
    int targetFrom;
    int targetTo;
    int minorVersion;
    boolean isKeepAlive;
    boolean isChunked;
    boolean isContinueExpected;
    /** The declared length of the body; -1 without one. */
    long bodyBytes;

    private byte[] bytes;
    private int at;
    private int end;
    private int fields;
    private boolean hasHost;
    private boolean isCloseAsked;
    private boolean isAuthorityInTarget;
    private int fieldsFrom;
    private int fieldsTo;

    /**
     * Reads one head.
     *
     * @return the bytes it took; {@link #INCOMPLETE}; or a negative status for the error response
     */
    int read(byte[] source, int from, int to) {
        bytes = source;
        at = from;
        end = to;
        fields = 0;
        hasHost = false;
        isCloseAsked = false;
        isChunked = false;
        isContinueExpected = false;
        bodyBytes = -1;
        int outcome = lines(from);
        if (outcome == INCOMPLETE && to - from >= HEAD_BYTES_MAX) {
            return -431;
        }
        return outcome;
    }

    private int lines(int from) {
        // RFC 9112 §2.2: some old clients send an empty line before the request line.
        if (end - at >= 2 && bytes[at] == Bytes.CR && bytes[at + 1] == Bytes.LF) {
            at += 2;
        }
        int lineFrom = at;
        int outcome = requestLine();
        // Where parsing stopped: at the end of the line, at an error, or at the end of the bytes.
        if (at - lineFrom > LINE_BYTES_MAX) {
            return -414;
        }
        if (outcome <= 0) {
            return outcome;
        }
        fieldsFrom = at;
        while (at < end && bytes[at] != Bytes.CR) {
            outcome = field();
            if (outcome <= 0) {
                return outcome;
            }
        }
        fieldsTo = at;
        if (end - at < 2) {
            return INCOMPLETE;
        }
        if (bytes[at + 1] != Bytes.LF) {
            return -400;
        }
        at += 2;
        return at - from > HEAD_BYTES_MAX ? -431 : whole(at - from);
    }

    /** Checks that need the complete head. */
    private int whole(int length) {
        if (minorVersion == 1 && !hasHost || isChunked && (bodyBytes >= 0 || minorVersion == 0)) {
            return -400;
        }
        return length;
    }

    private int requestLine() {
        int from = at;
        while (at < end && Bytes.is(Bytes.TOKEN, bytes[at])) {
            at++;
        }
        if (at - from > METHOD_BYTES_MAX) {
            return -400;
        }
        if (at == end) {
            return INCOMPLETE;
        }
        if (bytes[at] != ' ' || at == from) {
            // A lone CR may be the first half of an empty line.
            return bytes[at] == Bytes.CR && at == from && end - at == 1 ? INCOMPLETE : -400;
        }
        method = Method.of(bytes, from, at);
        targetFrom = ++at;
        while (at < end && Bytes.is(Bytes.TARGET, bytes[at])) {
            at++;
        }
        if (at == end) {
            return INCOMPLETE;
        }
        targetTo = at;
        if (bytes[at] != ' ' || at == targetFrom) {
            return -400;
        }
        at++;
        int outcome = version();
        return outcome <= 0 ? outcome : targetForm();
    }

    private int version() {
        for (byte each : HTTP) {
            if (at == end) {
                return INCOMPLETE;
            }
            if (bytes[at++] != each) {
                return -400;
            }
        }
        if (end - at < 5) {
            return INCOMPLETE;
        }
        int major = bytes[at] - '0';
        int minor = bytes[at + 2] - '0';
        if (major < 0 || major > 9 || minor < 0 || minor > 9 || bytes[at + 1] != '.'
                || bytes[at + 3] != Bytes.CR || bytes[at + 4] != Bytes.LF) {
            return -400;
        }
        if (major != 1 || minor > 1) {
            return -505;
        }
        minorVersion = minor;
        isKeepAlive = minor == 1;
        at += 5;
        return 1;
    }

    /** RFC 9112 §3.2: the four forms; only path and query of an absolute form are kept. */
    private int targetForm() {
        isAuthorityInTarget = false;
        if (bytes[targetFrom] == '/') {
            return 1;
        }
        if (method == Method.CONNECT) {
            return isAuthority(targetFrom, targetTo) ? 1 : -400;
        }
        if (targetTo - targetFrom == 1 && bytes[targetFrom] == '*') {
            return method == Method.OPTIONS ? 1 : -400;
        }
        int slashes = targetFrom;
        while (slashes < targetTo && bytes[slashes] != ':') {
            slashes++;
        }
        boolean isHttp = Bytes.isWord(bytes, targetFrom, slashes, HTTP_SCHEME)
                || Bytes.isWord(bytes, targetFrom, slashes, HTTPS_SCHEME);
        if (!isHttp || targetTo - slashes < 4 || bytes[slashes + 1] != '/'
                || bytes[slashes + 2] != '/') {
            return -400;
        }
        int authorityFrom = slashes + 3;
        int authorityTo = authorityFrom;
        while (authorityTo < targetTo && bytes[authorityTo] != '/' && bytes[authorityTo] != '?') {
            authorityTo++;
        }
        isAuthorityInTarget = true;
        targetFrom = authorityTo;
        return authorityTo > authorityFrom && isAuthority(authorityFrom, authorityTo) ? 1 : -400;
    }

    private int field() {
        int nameFrom = at;
        while (at < end && Bytes.is(Bytes.TOKEN, bytes[at])) {
            at++;
        }
        if (at == end) {
            return INCOMPLETE;
        }
        if (bytes[at] != ':' || at == nameFrom) {
            return -400;
        }
        int nameTo = at++;
        while (at < end && Bytes.isBlank(bytes[at])) {
            at++;
        }
        int valueFrom = at;
        while (at < end && Bytes.is(Bytes.VALUE, bytes[at])) {
            at++;
        }
        if (end - at < 2) {
            return at == end || bytes[at] == Bytes.CR ? INCOMPLETE : -400;
        }
        if (bytes[at] != Bytes.CR || bytes[at + 1] != Bytes.LF) {
            return -400;
        }
        int valueTo = at;
        while (valueTo > valueFrom && Bytes.isBlank(bytes[valueTo - 1])) {
            valueTo--;
        }
        at += 2;
        if (++fields > FIELDS_MAX) {
            return -431;
        }
        return meaning(nameFrom, nameTo, valueFrom, valueTo);
    }

    /** The few fields that determine where a message ends and whether the connection stays open. */
    private int meaning(int nameFrom, int nameTo, int from, int to) {
        return switch (nameTo - nameFrom) {
            case 4 -> Bytes.isWord(bytes, nameFrom, nameTo, HOST) ? host(from, to) : 1;
            case 6 -> Bytes.isWord(bytes, nameFrom, nameTo, EXPECT) ? expect(from, to) : 1;
            case 10 -> Bytes.isWord(bytes, nameFrom, nameTo, CONNECTION) ? connection(from, to) : 1;
            case 14 -> Bytes.isWord(bytes, nameFrom, nameTo, CONTENT_LENGTH) ? length(from, to) : 1;
            case 17 -> Bytes.isWord(bytes, nameFrom, nameTo, TRANSFER_ENCODING)
                    ? coding(from, to) : 1;
            default -> 1;
        };
    }

    private int host(int from, int to) {
        if (hasHost || !(isAuthority(from, to) || from == to && isAuthorityInTarget)) {
            return -400;
        }
        hasHost = true;
        return 1;
    }

    /** Host with an optional port: no user, no list, a port of digits (RFC 3986 §3.2). */
    private boolean isAuthority(int from, int to) {
        int hostTo = from;
        if (from < to && bytes[from] == '[') {
            while (hostTo < to && bytes[hostTo] != ']') {
                hostTo++;
            }
            if (hostTo - from < 3 || hostTo++ == to) {
                return false;
            }
        } else {
            while (hostTo < to && Bytes.is(Bytes.HOST, bytes[hostTo])) {
                hostTo++;
            }
        }
        if (hostTo == from || hostTo < to && bytes[hostTo] != ':' || to - hostTo > 6) {
            return false;
        }
        for (int each = hostTo + 1; each < to; each++) {
            if (bytes[each] < '0' || bytes[each] > '9') {
                return false;
            }
        }
        return true;
    }

    private int expect(int from, int to) {
        if (!Bytes.isWord(bytes, from, to, CONTINUE)) {
            return -417;
        }
        isContinueExpected = minorVersion == 1;
        return 1;
    }

    private int connection(int from, int to) {
        int word = from;
        for (int each = from; each <= to; each++) {
            if (each == to || bytes[each] == ',' || Bytes.isBlank(bytes[each])) {
                if (Bytes.isWord(bytes, word, each, CLOSE)) {
                    isKeepAlive = false;
                    isCloseAsked = true;
                } else if (Bytes.isWord(bytes, word, each, KEEP_ALIVE)) {
                    isKeepAlive = !isCloseAsked;
                }
                word = each + 1;
            }
        }
        return 1;
    }

    private int length(int from, int to) {
        if (bodyBytes >= 0 || from == to || to - from > 18) {
            return -400;
        }
        long value = 0;
        for (int each = from; each < to; each++) {
            if (bytes[each] < '0' || bytes[each] > '9') {
                return -400;
            }
            value = value * 10 + bytes[each] - '0';
        }
        bodyBytes = value;
        return 1;
    }

    private int coding(int from, int to) {
        if (isChunked) {
            return -400;
        }
        if (Bytes.isWord(bytes, from, to, CHUNKED)) {
            isChunked = true;
            return 1;
        }
        for (int each = from; each < to; each++) {
            if (bytes[each] == ',') {
                return -400;
            }
        }
        return from == to ? -400 : -501;
    }

    /** The value of a field of the last head, or null if it is absent; the first one wins. */
    String field(String name) {
        return value(name, true);
    }

    /** The values of a field that is a list: all of its lines (RFC 9110 §5.3); null without any. */
    String list(String name) {
        return value(name, false);
    }

    private String value(String name, boolean isFirstEnough) {
        byte[] wanted = lower(name);
        String value = null;
        int line = fieldsFrom;
        while (line < fieldsTo && (value == null || !isFirstEnough)) {
            int colon = line;
            while (bytes[colon] != ':') {
                colon++;
            }
            int lineTo = colon;
            while (bytes[lineTo] != Bytes.CR) {
                lineTo++;
            }
            if (Bytes.isWord(bytes, line, colon, wanted)) {
                String found = new String(bytes, colon + 1, lineTo - colon - 1,
                        StandardCharsets.ISO_8859_1).strip();
                value = value == null ? found : value + ", " + found;
            }
            line = lineTo + 2;
        }
        return value;
    }

    private static byte[] lower(String word) {
        return word.getBytes(StandardCharsets.US_ASCII);
    }
}
