// Strict reading of a message head: bytes in, indexed message or refusal out (RFC 9112 §2-5).
package wirespeed.gateway.core;

import java.util.Arrays;

/**
 * The only place where the syntax of a head is decided. It sees the bytes as they came: folded
 * lines, bare CR or LF and odd separators are refused here and never repaired, because a repaired
 * message is one that two servers may read differently.
 */
public final class HeadCheck {
    private static final int METHOD_BYTES_MAX = 32;

    private HeadCheck() {
    }

    /**
     * Where the head ends, or -1 while it is incomplete. Refuses as early as possible: a peer that
     * sends a bare LF would otherwise wait for its time-out.
     *
     * @param scanned how many bytes after {@code from} were looked at before
     */
    public static int end(byte[] bytes, int from, int to, int scanned, Limits limits) {
        for (int at = from + Math.max(0, scanned - 3); at < to; at++) {
            if (bytes[at] != '\n') {
                continue;
            }
            if (at == from || bytes[at - 1] != '\r') {
                throw Refusal.bad("LF without CR");
            }
            boolean emptyLine = at - 2 >= from && bytes[at - 2] == '\n';
            if (emptyLine && at - 1 > from + 1) {
                return withinHead(at + 1 - from, limits) + from;
            }
        }
        withinLimits(bytes, from, to, limits);
        return -1;
    }

    private static int withinHead(int length, Limits limits) {
        if (length > limits.headBytesMax()) {
            throw new Refusal(431, "head is longer than " + limits.headBytesMax() + " bytes");
        }
        return length;
    }

    private static void withinLimits(byte[] bytes, int from, int to, Limits limits) {
        if (to - from > limits.lineBytesMax()) {
            int newline = from;
            while (newline < to && bytes[newline] != '\n') {
                newline++;
            }
            if (newline - from > limits.lineBytesMax()) {
                throw new Refusal(414, "request line is longer than " + limits.lineBytesMax()
                        + " bytes");
            }
        }
        withinHead(to - from, limits);
    }

    /** Reads a complete request head, which {@link #end} has delimited. */
    public static Request request(byte[] bytes, int from, int to, Limits limits) {
        byte[] head = Arrays.copyOfRange(bytes, from, to);
        int methodEnd = 0;
        while (Ascii.isToken(head[methodEnd])) {
            methodEnd++;
        }
        if (methodEnd == 0 || methodEnd > METHOD_BYTES_MAX || head[methodEnd] != ' ') {
            throw Refusal.bad("method is not a token of at most " + METHOD_BYTES_MAX + " bytes");
        }
        int targetEnd = methodEnd + 1;
        while (Ascii.isTarget(head[targetEnd])) {
            targetEnd++;
        }
        if (targetEnd == methodEnd + 1 || head[targetEnd] != ' ') {
            throw Refusal.bad("request target is empty or holds a character that it may not");
        }
        int minor = version(head, targetEnd + 1);
        int lineEnd = targetEnd + 11;
        if (lineEnd > limits.lineBytesMax()) {
            throw new Refusal(414, "request line is longer than " + limits.lineBytesMax()
                    + " bytes");
        }
        Request request = new Request(method(head, methodEnd),
                Ascii.string(head, methodEnd + 1, targetEnd), minor, new Headers(head));
        fields(head, lineEnd, request.headers(), limits.fieldsMax(), 400);
        RequestRules.apply(request);
        return request;
    }

    /** Reads a complete response head; what is wrong with it is the origin's fault: 502. */
    public static Response response(byte[] bytes, int from, int to, Limits limits) {
        byte[] head = Arrays.copyOfRange(bytes, from, to);
        try {
            int minor = version(head, 0, false);
            if (head[8] != ' ') {
                throw Refusal.bad("status line has no space after the version");
            }
            int status = status(head);
            int lineEnd = reasonEnd(head, 12);
            Response response = new Response(status, minor, new Headers(head));
            fields(head, lineEnd, response.headers(), limits.fieldsMax(), 502);
            ResponseRules.apply(response);
            return response;
        } catch (Refusal refusal) {
            throw refusal.status() == 502 ? refusal : new Refusal(502, refusal.getMessage());
        }
    }

    private static String method(byte[] head, int end) {
        if (end == 3 && head[0] == 'G' && head[1] == 'E' && head[2] == 'T') {
            return "GET";
        }
        return Ascii.string(head, 0, end).intern();
    }

    /** The minor version of "HTTP/1.x" + CRLF at this place. */
    private static int version(byte[] head, int at) {
        int minor = version(head, at, true);
        if (head[at + 8] != '\r') {
            throw Refusal.bad("request line does not end after the version");
        }
        return minor;
    }

    private static int version(byte[] head, int at, boolean isRequest) {
        boolean isVersion = head.length >= at + 10 && head[at] == 'H' && head[at + 1] == 'T'
                && head[at + 2] == 'T' && head[at + 3] == 'P' && head[at + 4] == '/'
                && head[at + 6] == '.' && isDigit(head[at + 5]) && isDigit(head[at + 7]);
        if (!isVersion) {
            throw Refusal.bad("no HTTP version where one belongs");
        }
        int minor = head[at + 7] - '0';
        if (head[at + 5] != '1' || isRequest && minor > 1) {
            throw new Refusal(505, "HTTP version is neither 1.0 nor 1.1");
        }
        return Math.min(minor, 1);
    }

    private static int status(byte[] head) {
        if (head.length < 15 || !isDigit(head[9]) || !isDigit(head[10]) || !isDigit(head[11])) {
            throw Refusal.bad("status code is not three digits");
        }
        int status = (head[9] - '0') * 100 + (head[10] - '0') * 10 + head[11] - '0';
        if (status < 100 || status > 599) {
            throw Refusal.bad("status code " + status + " is not between 100 and 599");
        }
        return status;
    }

    /** After the reason phrase's CRLF; the phrase and its space may be missing. */
    private static int reasonEnd(byte[] head, int at) {
        if (head[at] != ' ' && head[at] != '\r') {
            throw Refusal.bad("status code is followed by neither a space nor the line's end");
        }
        while (Ascii.isValue(head[at])) {
            at++;
        }
        if (head[at] != '\r' || head[at + 1] != '\n') {
            throw Refusal.bad("control character in the reason phrase");
        }
        return at + 2;
    }

    private static void fields(byte[] head, int at, Headers headers, int fieldsMax, int status) {
        if (head[at - 1] != '\n' || head[at - 2] != '\r') {
            throw new Refusal(status, "bare CR at the end of the first line");
        }
        while (head[at] != '\r') {
            if (headers.received() == fieldsMax) {
                throw new Refusal(status == 400 ? 431 : status,
                        "more than " + fieldsMax + " header fields");
            }
            at = field(head, at, headers);
        }
        if (at + 2 != head.length) {
            throw Refusal.bad("bare CR where a header field begins");
        }
    }

    /** Reads one line and returns where the next begins. */
    private static int field(byte[] head, int nameStart, Headers headers) {
        int nameEnd = nameStart;
        while (Ascii.isToken(head[nameEnd])) {
            nameEnd++;
        }
        if (head[nameEnd] != ':' || nameEnd == nameStart) {
            throw Refusal.bad(nameReason(head[nameEnd], nameEnd == nameStart));
        }
        int lineEnd = nameEnd + 1;
        while (Ascii.isValue(head[lineEnd])) {
            lineEnd++;
        }
        if (head[lineEnd] != '\r' || head[lineEnd + 1] != '\n') {
            throw Refusal.bad("control character in a header value");
        }
        headers.line(nameStart, nameEnd);
        return lineEnd + 2;
    }

    private static String nameReason(byte found, boolean atStart) {
        if (found == ' ' || found == '\t') {
            return atStart ? "folded header line (obs-fold)" : "whitespace before a header's colon";
        }
        return found == '\r' ? "header line without a colon" : "header name is not a token";
    }

    private static boolean isDigit(byte b) {
        return b >= '0' && b <= '9';
    }
}
