// Reads one parameter of a query, as forms write them.
package wirespeed.gateway.core;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;

/** Decoded, so that no other spelling of a name passes a rule about it. */
final class QueryParameters {
    private QueryParameters() {
    }

    /** The value of the first parameter with this name, or null. */
    static String get(String query, String name) {
        for (int from = 0; query != null && from <= query.length();) {
            int end = query.indexOf('&', from);
            end = end < 0 ? query.length() : end;
            int equals = query.indexOf('=', from);
            boolean hasValue = equals >= 0 && equals < end;
            if (decoded(query.substring(from, hasValue ? equals : end)).equals(name)) {
                return hasValue ? decoded(query.substring(equals + 1, end)) : "";
            }
            from = end + 1;
        }
        return null;
    }

    private static String decoded(String text) {
        if (text.indexOf('%') < 0 && text.indexOf('+') < 0) {
            return text;
        }
        try {
            return URLDecoder.decode(text, StandardCharsets.UTF_8);
        } catch (IllegalArgumentException malformed) {
            return text;
        }
    }
}
