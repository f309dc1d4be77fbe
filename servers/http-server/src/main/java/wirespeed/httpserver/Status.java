/** Responses other than a resource. */
package wirespeed.httpserver;

import java.nio.charset.StandardCharsets;

/** A status with the bytes of its line and its short body. */
enum Status {
    OK(200, "OK"),
    PARTIAL_CONTENT(206, "Partial Content"),
    NOT_MODIFIED(304, "Not Modified"),
    BAD_REQUEST(400, "Bad Request"),
    NOT_FOUND(404, "Not Found"),
    METHOD_NOT_ALLOWED(405, "Method Not Allowed"),
    REQUEST_TIMEOUT(408, "Request Timeout"),
    PRECONDITION_FAILED(412, "Precondition Failed"),
    URI_TOO_LONG(414, "URI Too Long"),
    RANGE_NOT_SATISFIABLE(416, "Range Not Satisfiable"),
    EXPECTATION_FAILED(417, "Expectation Failed"),
    HEAD_TOO_LARGE(431, "Request Header Fields Too Large"),
    SERVER_ERROR(500, "Internal Server Error"),
    NOT_IMPLEMENTED(501, "Not Implemented"),
    VERSION_NOT_SUPPORTED(505, "HTTP Version Not Supported");

    private static final Status[] BY_CODE = new Status[600];
    final int code;
    /** {@code HTTP/1.1 404 Not Found} and the end of the line. */
    final byte[] line;
    final byte[] body;

    static {
        for (Status status : values()) {
            BY_CODE[status.code] = status;
        }
    }

    Status(int code, String reason) {
        this.code = code;
        line = ("HTTP/1.1 " + code + " " + reason + "\r\n").getBytes(StandardCharsets.US_ASCII);
        body = (code + " " + reason + "\n").getBytes(StandardCharsets.US_ASCII);
    }

    static Status of(int code) {
        return BY_CODE[code];
    }
}
