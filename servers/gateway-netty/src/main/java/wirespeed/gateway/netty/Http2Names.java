// Names of header fields as HTTP/2 writes them: in lower case.
package wirespeed.gateway.netty;

import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.util.AsciiString;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * The names of most messages are there already, in the spelling in which HTTP/1 has them and with the hash
 * that the table of HPACK is searched by.
 */
final class Http2Names {
    static final AsciiString CONTENT_LENGTH = AsciiString.cached("content-length");
    static final AsciiString DATE = AsciiString.cached("date");
    static final AsciiString AUTHORIZATION = AsciiString.cached("authorization");
    static final AsciiString COOKIE = AsciiString.cached("cookie");
    private static final Map<String, AsciiString> KNOWN = new HashMap<>();

    static {
        for (String name : List.of("Accept", "Accept-Encoding", "Accept-Language", "Accept-Ranges", "Age",
                "Allow", "Authorization", "Cache-Control", "Connection", "Content-Disposition",
                "Content-Encoding", "Content-Language", "Content-Location", "Content-Range",
                "Content-Security-Policy", "Content-Type", "Cookie", "ETag", "Expect", "Expires", "Forwarded",
                "Host", "If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "Keep-Alive",
                "Last-Modified", "Link", "Location", "Origin", "Pragma", "Proxy-Connection", "Range",
                "Referer", "Retry-After", "Server", "Set-Cookie", "Strict-Transport-Security", "TE",
                "Traceparent", "Tracestate", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent", "Vary",
                "Via", "WWW-Authenticate", "X-Content-Type-Options", "X-Forwarded-For",
                "X-Forwarded-Host", "X-Forwarded-Proto", "X-Frame-Options", "X-Request-ID")) {
            AsciiString lower = AsciiString.cached(name.toLowerCase(Locale.ROOT));
            KNOWN.put(name, lower);
            KNOWN.put(lower.toString(), lower);
        }
        KNOWN.put("Content-Length", CONTENT_LENGTH);
        KNOWN.put("content-length", CONTENT_LENGTH);
        KNOWN.put("Date", DATE);
        KNOWN.put("date", DATE);
    }

    private Http2Names() {
    }

    /** As text; that of a usual status is there already. */
    static AsciiString status(int status) {
        return HttpResponseStatus.valueOf(status).codeAsText();
    }

    /** The name in lower case. */
    static AsciiString lower(String name) {
        AsciiString known = KNOWN.get(name);
        return known != null ? known : AsciiString.of(name.toLowerCase(Locale.ROOT));
    }
}
