// Reads one cookie of a request (RFC 6265 §4.2).
package wirespeed.gateway.core;

/** Only what persistence and hashing need. */
public final class Cookies {
    private Cookies() {
    }

    /** Whether a request can have a cookie with this name; servers send more than tokens, such as user[id]. */
    public static boolean isName(String name) {
        return !name.isEmpty() && name.equals(name.trim()) && Ascii.isValue(name)
                && name.chars().noneMatch(c -> c == '=' || c == ';' || c == ',' || c == '\t');
    }

    /** The value of the first cookie with this name, or null. */
    public static String get(Headers headers, String name) {
        if (!headers.mayHave(Field.COOKIE.bit)) {
            return null;
        }
        for (String line : headers.all("Cookie")) {
            for (String pair : line.split(";")) {
                int equals = pair.indexOf('=');
                if (equals > 0 && pair.substring(0, equals).trim().equals(name)) {
                    return pair.substring(equals + 1).trim();
                }
            }
        }
        return null;
    }
}
