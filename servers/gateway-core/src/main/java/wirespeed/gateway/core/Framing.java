// How long a body is: one decision, taken once from the checked head (RFC 9112 §6.3).
package wirespeed.gateway.core;

/**
 * The framing of a body.
 *
 * @param kind which rule applies
 * @param length the body's length for {@link Kind#LENGTH}, else 0
 */
public record Framing(Kind kind, long length) {
    /** The rules of RFC 9112 §6.3. */
    public enum Kind { NONE, LENGTH, CHUNKED, UNTIL_CLOSE }

    public static final Framing NONE = new Framing(Kind.NONE, 0);
    public static final Framing CHUNKED = new Framing(Kind.CHUNKED, 0);
    public static final Framing UNTIL_CLOSE = new Framing(Kind.UNTIL_CLOSE, 0);

    /** A body of exactly this length; 0 is a body that is there and empty. */
    public static Framing length(long length) {
        return new Framing(Kind.LENGTH, length);
    }

    /** Whether no byte of a body follows the head. */
    public boolean isEmpty() {
        return kind == Kind.NONE || kind == Kind.LENGTH && length == 0;
    }

    public boolean isChunked() {
        return kind == Kind.CHUNKED;
    }

    /**
     * From the two framing fields of a message.
     *
     * @return null when neither field is there
     */
    static Framing of(Headers headers, int minor, int status) {
        if (!headers.mayHave(Field.CONTENT_LENGTH.bit | Field.TRANSFER_ENCODING.bit)) {
            return null;
        }
        String coding = headers.single(Field.TRANSFER_ENCODING, status);
        String length = headers.single(Field.CONTENT_LENGTH, status);
        if (coding != null) {
            if (length != null) {
                throw new Refusal(status, "both Content-Length and Transfer-Encoding");
            }
            return coding(coding, minor, status);
        }
        return length == null ? null : length(parseLength(length, status));
    }

    private static Framing coding(String coding, int minor, int status) {
        if (minor == 0) {
            throw new Refusal(status, "Transfer-Encoding in an HTTP/1.0 message");
        }
        if (coding.equalsIgnoreCase("chunked")) {
            return CHUNKED;
        }
        // A list or a near miss of "chunked" is an attack or a fault; a clean other name is a
        // coding that we do not have (RFC 9112 §6.1).
        boolean isOtherCoding = Ascii.isToken(coding)
                && !coding.toLowerCase(java.util.Locale.ROOT).contains("chunked");
        throw new Refusal(isOtherCoding && status == 400 ? 501 : status,
                "Transfer-Encoding is not exactly \"chunked\"");
    }

    private static long parseLength(String text, int status) {
        // 18 digits always fit a long; no real body is longer.
        if (text.isEmpty() || text.length() > 18) {
            throw new Refusal(status, "Content-Length is empty or longer than 18 digits");
        }
        long length = 0;
        for (int i = 0; i < text.length(); i++) {
            char digit = text.charAt(i);
            if (digit < '0' || digit > '9') {
                throw new Refusal(status, "Content-Length is not a plain decimal number");
            }
            length = length * 10 + digit - '0';
        }
        return length;
    }
}
