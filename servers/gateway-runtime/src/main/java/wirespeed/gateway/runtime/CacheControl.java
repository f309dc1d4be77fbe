// The directives of Cache-Control (RFC 9111 §5.2).
package wirespeed.gateway.runtime;

import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import wirespeed.gateway.core.Headers;

/** Names in lower case; a number that is none counts as 0, which is the safe reading (§4.2.1). */
final class CacheControl {
    private static final long SECONDS_MAX = 1L << 31;

    private final Map<String, String> directives = new HashMap<>();

    static CacheControl of(Headers headers) {
        CacheControl control = new CacheControl();
        List<String> lines = headers.all("Cache-Control");
        for (String line : lines) {
            control.parse(line);
        }
        if (lines.isEmpty() && "no-cache".equalsIgnoreCase(headers.get("Pragma"))) {
            control.directives.put("no-cache", "");
        }
        return control;
    }

    /** A comma within a quoted string ends no directive; a quote that nothing closes begins no string. */
    private void parse(String line) {
        int from = 0;
        boolean mayQuote = true;
        for (int at = 0; at < line.length(); at++) {
            if (line.charAt(at) == ',') {
                directive(line.substring(from, at).trim());
                from = at + 1;
            } else if (line.charAt(at) == '"' && mayQuote) {
                int close = closingQuote(line, at);
                mayQuote = close >= 0;
                at = Math.max(at, close);
            }
        }
        directive(line.substring(from).trim());
    }

    /** RFC 9110 §5.6.4: a backslash quotes what follows it; -1 for none. */
    private static int closingQuote(String line, int open) {
        for (int at = open + 1; at < line.length(); at++) {
            if (line.charAt(at) == '"') {
                return at;
            }
            at += line.charAt(at) == '\\' ? 1 : 0;
        }
        return -1;
    }

    private void directive(String text) {
        int equals = text.indexOf('=');
        String name = (equals < 0 ? text : text.substring(0, equals)).trim()
                .toLowerCase(Locale.ROOT);
        String value = equals < 0 ? "" : text.substring(equals + 1).trim().replace("\"", "");
        if (!name.isEmpty()) {
            directives.putIfAbsent(name, value);
        }
    }

    boolean has(String name) {
        return directives.containsKey(name);
    }

    /** Seconds of a directive; -1 when it is not there. */
    long seconds(String name) {
        String value = directives.get(name);
        if (value == null) {
            return -1;
        }
        return seconds(value, 0);
    }

    /** RFC 9111 §1.2.2: a number that is too large counts as 2^31, an invalid one as {@code otherwise}. */
    static long seconds(String digits, long otherwise) {
        if (digits == null || digits.isEmpty()) {
            return otherwise;
        }
        long seconds = 0;
        for (int i = 0; i < digits.length(); i++) {
            char digit = digits.charAt(i);
            if (digit < '0' || digit > '9') {
                return otherwise;
            }
            seconds = Math.min(SECONDS_MAX, seconds * 10 + digit - '0');
        }
        return seconds;
    }

    /** For how long a response may be stale already; -1 for not at all (§5.2.1.2). */
    long staleSecondsMax() {
        String value = directives.get("max-stale");
        return value != null && value.isEmpty() ? Long.MAX_VALUE : seconds("max-stale");
    }
}
