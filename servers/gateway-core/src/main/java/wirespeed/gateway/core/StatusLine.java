// Status lines, rendered once.
package wirespeed.gateway.core;

import java.util.Map;

/** The reason phrase means nothing (RFC 9112 §4) but is expected by people who read traces. */
public final class StatusLine {
    private static final Map<Integer, String> REASONS = Map.ofEntries(
            Map.entry(100, "Continue"), Map.entry(101, "Switching Protocols"),
            Map.entry(103, "Early Hints"), Map.entry(200, "OK"), Map.entry(201, "Created"),
            Map.entry(202, "Accepted"), Map.entry(204, "No Content"),
            Map.entry(206, "Partial Content"), Map.entry(301, "Moved Permanently"),
            Map.entry(302, "Found"), Map.entry(303, "See Other"), Map.entry(304, "Not Modified"),
            Map.entry(307, "Temporary Redirect"), Map.entry(308, "Permanent Redirect"),
            Map.entry(400, "Bad Request"), Map.entry(401, "Unauthorized"),
            Map.entry(403, "Forbidden"), Map.entry(404, "Not Found"),
            Map.entry(405, "Method Not Allowed"), Map.entry(408, "Request Timeout"),
            Map.entry(409, "Conflict"), Map.entry(412, "Precondition Failed"),
            Map.entry(413, "Content Too Large"), Map.entry(414, "URI Too Long"),
            Map.entry(416, "Range Not Satisfiable"), Map.entry(417, "Expectation Failed"),
            Map.entry(422, "Unprocessable Content"), Map.entry(429, "Too Many Requests"),
            Map.entry(431, "Request Header Fields Too Large"),
            Map.entry(500, "Internal Server Error"), Map.entry(501, "Not Implemented"),
            Map.entry(502, "Bad Gateway"), Map.entry(503, "Service Unavailable"),
            Map.entry(504, "Gateway Timeout"), Map.entry(505, "HTTP Version Not Supported"),
            Map.entry(508, "Loop Detected"));
    private static final byte[][] LINES = new byte[600][];

    static {
        for (int status = 100; status < LINES.length; status++) {
            LINES[status] = Ascii.bytes("HTTP/1.1 " + status + " " + reason(status) + "\r\n");
        }
    }

    private StatusLine() {
    }

    static byte[] of(int status) {
        return LINES[status];
    }

    /** The usual phrase, or an empty string. */
    public static String reason(int status) {
        return REASONS.getOrDefault(status, "");
    }
}
