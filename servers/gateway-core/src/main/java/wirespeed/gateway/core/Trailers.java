// Which trailer fields go on (RFC 9110 §6.5).
package wirespeed.gateway.core;

import java.util.Locale;
import java.util.Set;

/** A receiver may merge trailers into the head: what decides about a message is never one of them. */
public final class Trailers {
    private static final Set<String> DECIDING = Set.of("range", "max-forwards", "pragma", "expires",
            "age", "date", "location", "retry-after", "vary", "warning", "www-authenticate",
            "accept-encoding", "origin", "referer");

    private Trailers() {
    }

    /** The trailers that may be forwarded, with names in lower case; null for none. */
    public static Headers fit(Headers received) {
        if (received == null) {
            return null;
        }
        Headers fit = new Headers();
        received.forEach((name, value) -> {
            String lower = name.toLowerCase(Locale.ROOT);
            if (Field.of(lower) == null && !DECIDING.contains(lower)
                    && !lower.startsWith("content-") && !lower.startsWith("if-")
                    && !lower.startsWith("access-control-")) {
                fit.append(lower, value);
            }
        });
        return fit.size() == 0 ? null : fit;
    }

    /** The last chunk of a body with these trailers. */
    public static void write(Headers trailers, HeadSink sink) {
        sink.put('0').crlf();
        if (trailers != null) {
            trailers.writeTo(sink);
        }
        sink.crlf();
    }
}
