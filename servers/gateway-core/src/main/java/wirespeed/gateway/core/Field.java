// The header fields that the gateway itself reads, each with a small number.
package wirespeed.gateway.core;

/**
 * A head is parsed once; each line gets the number of its field there, so that later questions
 * ("is there an Upgrade?", "drop what is hop-by-hop") are a bit test and never a string search. At
 * most 31: {@link Headers} keeps their numbers in five bits.
 */
enum Field {
    HOST("Host"), CONNECTION("Connection"), CONTENT_LENGTH("Content-Length"),
    TRANSFER_ENCODING("Transfer-Encoding"), TE("TE"), TRAILER("Trailer"), UPGRADE("Upgrade"),
    KEEP_ALIVE("Keep-Alive"), PROXY_CONNECTION("Proxy-Connection"),
    PROXY_AUTHENTICATE("Proxy-Authenticate"), PROXY_AUTHORIZATION("Proxy-Authorization"),
    EXPECT("Expect"), VIA("Via"), X_FORWARDED_FOR("X-Forwarded-For"),
    X_FORWARDED_HOST("X-Forwarded-Host"), X_FORWARDED_PROTO("X-Forwarded-Proto"),
    FORWARDED("Forwarded"), AUTHORIZATION("Authorization"), COOKIE("Cookie"),
    SET_COOKIE("Set-Cookie"), CACHE_CONTROL("Cache-Control"), HTTP2_SETTINGS("HTTP2-Settings"),
    X_REAL_IP("X-Real-IP"), X_CLIENT_IP("X-Client-IP"), TRUE_CLIENT_IP("True-Client-IP"),
    X_ORIGINAL_URL("X-Original-URL"), X_REWRITE_URL("X-Rewrite-URL"),
    FRONT_END_HTTPS("Front-End-Https"),
    /** Scripts by CGI take it for the environment's HTTP_PROXY. */
    PROXY("Proxy"),
    /** Any other name with this beginning. */
    X_FORWARDED_OTHER("X-Forwarded-"),
    /** A name that is one of these once its underscores are hyphens; never a name itself. */
    TWIN("");

    /** Never forwarded: RFC 9110 §7.6.1, and what older proxies added to that list. */
    static final long HOP_BY_HOP = bits(CONNECTION, TE, TRAILER, UPGRADE, KEEP_ALIVE,
            PROXY_CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TRANSFER_ENCODING,
            HTTP2_SETTINGS);
    /** RFC 9113 §8.2.2: they make a message of HTTP/2 malformed, as other fields of HOP_BY_HOP do not. */
    static final long CONNECTION_SPECIFIC = bits(CONNECTION, UPGRADE, KEEP_ALIVE, PROXY_CONNECTION,
            TRANSFER_ENCODING, HTTP2_SETTINGS);
    /** A Connection header that lists one of these wants the next hop to misread the message. */
    static final long NEVER_LISTED = bits(HOST, CONTENT_LENGTH, TRANSFER_ENCODING, AUTHORIZATION,
            COOKIE, FORWARDED, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, VIA,
            CACHE_CONTROL);

    /** Fields about the client and its request for an origin; only a trusted proxy may set them. */
    static final long SAID_BY_PROXIES = bits(X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO,
            X_FORWARDED_OTHER, FORWARDED, X_REAL_IP, X_CLIENT_IP, TRUE_CLIENT_IP, X_ORIGINAL_URL,
            X_REWRITE_URL, FRONT_END_HTTPS);

    /**
     * Never taken from a client. Origins that speak CGI, WSGI or PHP see one name for {@code a_b} and
     * {@code a-b}: a twin would stand in for a field that was checked or removed.
     */
    static final long NEVER_TAKEN = bits(PROXY, TWIN);

    private static final Field[] ALL = values();
    private static final Field[][] BY_LENGTH = new Field[24][];

    final String text;
    final long bit = 1L << ordinal();

    static {
        for (int length = 0; length < BY_LENGTH.length; length++) {
            int wanted = length;
            BY_LENGTH[length] = java.util.Arrays.stream(ALL)
                    .filter(field -> field.text.length() == wanted).toArray(Field[]::new);
        }
    }

    Field(String text) {
        this.text = text;
    }

    /** The field with this name, or null for one that means nothing to the gateway. */
    static Field of(byte[] bytes, int from, int to) {
        int length = to - from;
        if (length < BY_LENGTH.length) {
            for (Field field : BY_LENGTH[length]) {
                if (Ascii.equalsIgnoreCase(bytes, from, to, field.text)) {
                    return field;
                }
            }
        }
        int start = X_FORWARDED_OTHER.text.length();
        boolean isOther = length > start && (bytes[from] | 0x20) == 'x'
                && Ascii.equalsIgnoreCase(bytes, from, from + start, X_FORWARDED_OTHER.text);
        return isOther ? X_FORWARDED_OTHER : twin(bytes, from, to);
    }

    private static Field twin(byte[] bytes, int from, int to) {
        int at = from;
        while (at < to && bytes[at] != '_') {
            at++;
        }
        if (at == to) {
            return null;
        }
        byte[] hyphenated = java.util.Arrays.copyOfRange(bytes, from, to);
        for (int i = 0; i < hyphenated.length; i++) {
            hyphenated[i] = hyphenated[i] == '_' ? (byte) '-' : hyphenated[i];
        }
        return of(hyphenated, 0, hyphenated.length) == null ? null : TWIN;
    }

    static Field of(String name) {
        int length = name.length();
        if (length < BY_LENGTH.length) {
            for (Field field : BY_LENGTH[length]) {
                if (field.text.equalsIgnoreCase(name)) {
                    return field;
                }
            }
        }
        int start = X_FORWARDED_OTHER.text.length();
        if (length > start && name.regionMatches(true, 0, X_FORWARDED_OTHER.text, 0, start)) {
            return X_FORWARDED_OTHER;
        }
        return name.indexOf('_') < 0 ? null : twin(Ascii.bytes(name), 0, length);
    }

    private static long bits(Field... fields) {
        long bits = 0;
        for (Field field : fields) {
            bits |= 1L << field.ordinal();
        }
        return bits;
    }
}
