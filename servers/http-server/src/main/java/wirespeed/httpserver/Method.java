/** The request methods that the server knows by name. */
package wirespeed.httpserver;

import java.nio.charset.StandardCharsets;

/** A method; other methods of RFC 9110 get 405, unknown ones 501. */
enum Method {
    GET, HEAD, POST, PUT, DELETE, OPTIONS, CONNECT, TRACE, PATCH, OTHER;

    private static final Method[] NAMED = values();
    private final byte[] word = name().getBytes(StandardCharsets.US_ASCII);

    /** The method of these bytes; methods are case-sensitive. */
    static Method of(byte[] bytes, int from, int to) {
        if (to - from == 3 && bytes[from] == 'G' && bytes[from + 1] == 'E'
                && bytes[from + 2] == 'T') {
            return GET;
        }
        for (Method method : NAMED) {
            if (method != OTHER && java.util.Arrays.equals(bytes, from, to, method.word, 0,
                    method.word.length)) {
                return method;
            }
        }
        return OTHER;
    }
}
