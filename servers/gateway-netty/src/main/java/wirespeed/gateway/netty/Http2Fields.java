// Between the fields of HTTP/2 and the requests and responses that filters see.
package wirespeed.gateway.netty;

import io.netty.handler.codec.http2.DefaultHttp2Headers;
import io.netty.handler.codec.http2.Http2Headers;
import io.netty.util.AsciiString;
import java.util.Locale;
import java.util.Map;
import wirespeed.gateway.core.Failure;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Limits;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.RequestRules;
import wirespeed.gateway.core.Response;

/** For the side of the clients; a malformed request is refused. */
final class Http2Fields {
    private static final AsciiString PROTOCOL = Http2Headers.PseudoHeaderName.PROTOCOL.value();

    private Http2Fields() {
    }

    /**
     * The request that a head says, by the rules that requests of HTTP/1 obey.
     *
     * @param hasBody whether the stream goes on
     */
    static Request request(Http2Headers fields, boolean hasBody, Limits limits) {
        checkPseudoFields(fields);
        checkSize(fields, limits);
        Headers headers = new Headers();
        StringBuilder cookies = null;
        for (Map.Entry<CharSequence, CharSequence> field : fields) {
            String name = field.getKey().toString();
            String value = field.getValue().toString();
            if (name.startsWith(":")) {
                continue;
            }
            if (!name.equals(name.toLowerCase(Locale.ROOT))) {
                throw Refusal.malformed("upper-case header name in HTTP/2");
            }
            if (hasBlankEnds(value)) {
                throw Refusal.malformed("value of header " + name + " begins or ends with a blank");
            }
            if (name.equals("cookie")) {
                // RFC 9113 §8.2.3: crumbs are joined before HTTP/1.
                cookies = cookies == null ? new StringBuilder(value) : cookies.append("; ").append(value);
            } else {
                add(headers, name, value, limits);
            }
        }
        if (cookies != null && cookies.length() > 0) {
            add(headers, "cookie", cookies.toString(), limits);
        }
        String authority = text(fields.authority(), headers.get("host"));
        return RequestRules.fromFields(text(fields.method(), ""), text(fields.path(), ""),
                authority, headers, hasBody);
    }

    private static void checkPseudoFields(Http2Headers fields) {
        if (fields.contains(PROTOCOL)) {
            // RFC 8441 §3: extended CONNECT is not offered, and elsewhere the field has no meaning.
            throw Refusal.malformed(":protocol is not offered");
        }
        if ("CONNECT".contentEquals(text(fields.method(), ""))) {
            throw new Refusal(405, "CONNECT is not offered");
        }
        String said = text(fields.scheme(), "");
        if (!said.equals("https") && !said.equals("http")) {
            throw Refusal.malformed(":scheme is neither http nor https");
        }
    }

    /** The bounds that a head of HTTP/1 with these fields would have. */
    private static void checkSize(Http2Headers fields, Limits limits) {
        int line = length(fields.method()) + length(fields.path()) + " HTTP/1.1\r\n".length() + 1;
        if (line > limits.lineBytesMax()) {
            throw new Refusal(414, "request line is longer than " + limits.lineBytesMax() + " bytes");
        }
        long head = line;
        for (Map.Entry<CharSequence, CharSequence> field : fields) {
            head += field.getKey().length() + field.getValue().length() + ": \r\n".length();
        }
        if (head > limits.headBytesMax()) {
            throw new Refusal(431, "head is longer than " + limits.headBytesMax() + " bytes");
        }
    }

    private static int length(CharSequence text) {
        return text == null ? 0 : text.length();
    }

    /** The trailers of a body. */
    static Headers trailers(Http2Headers trailers, Limits limits) {
        Headers fields = new Headers();
        for (Map.Entry<CharSequence, CharSequence> field : trailers) {
            if (hasBlankEnds(field.getValue().toString())) {
                throw Refusal.malformed("trailer that begins or ends with a blank");
            }
            add(fields, field.getKey().toString(), field.getValue().toString(), limits);
        }
        return fields;
    }

    /**
     * RFC 9113 §8.2.1: such a value is malformed. By HTTP/1 the blanks would not be a part of it, and
     * rules that compare it would see another one than the origin.
     */
    static boolean hasBlankEnds(String value) {
        return !value.isEmpty() && (isBlank(value.charAt(0)) || isBlank(value.charAt(value.length() - 1)));
    }

    private static boolean isBlank(char character) {
        return character == ' ' || character == '\t';
    }

    private static void add(Headers headers, String name, String value, Limits limits) {
        if (headers.size() >= limits.fieldsMax()) {
            throw new Refusal(431, "more than " + limits.fieldsMax() + " header fields");
        }
        try {
            headers.add(name, value);
        } catch (IllegalArgumentException bad) {
            throw Refusal.malformed(bad.getMessage());
        }
    }

    private static String text(CharSequence value, String otherwise) {
        String text = value == null ? otherwise : value.toString();
        if (text == null) {
            throw Refusal.malformed("neither :authority nor Host");
        }
        return text;
    }

    /** The head of a response; its body is sent with this framing. */
    static Http2Headers head(Response response, Framing framing, Loop loop) {
        boolean isOurs = framing.kind() == Framing.Kind.LENGTH;
        // RFC 9110 §8.6: a 204 has none.
        boolean isDropped = isOurs || response.status() == 204;
        Http2Headers head = new DefaultHttp2Headers(false)
                .status(Http2Names.status(response.status()));
        response.headers().forEach((name, value) -> {
            AsciiString lower = Http2Names.lower(name);
            boolean isLength = isDropped && lower.equals(Http2Names.CONTENT_LENGTH);
            if (!isLength && !isConnectionField(lower)) {
                head.add(lower, value);
            }
        });
        if (isOurs) {
            head.set(Http2Names.CONTENT_LENGTH, String.valueOf(framing.length()));
        }
        if (!head.contains(Http2Names.DATE)) {
            head.set(Http2Names.DATE, loop.date());
        }
        return head;
    }

    /** The head of a response that refuses a request; no body says why. */
    static Http2Headers refusal(Refusal refusal, Loop loop) {
        Response response = Failure.refused(refusal);
        response.headers().remove("Content-Type");
        return head(response, Framing.NONE, loop);
    }

    /** The head of an interim response. */
    static Http2Headers interim(Response response) {
        Http2Headers head = new DefaultHttp2Headers(false)
                .status(Http2Names.status(response.status()));
        response.headers().forEach((name, value) -> {
            AsciiString lower = Http2Names.lower(name);
            // RFC 9110 §8.6: clients take a response with a length here for malformed.
            if (!lower.equals(Http2Names.CONTENT_LENGTH)) {
                head.add(lower, value);
            }
        });
        return head;
    }

    private static boolean isConnectionField(AsciiString name) {
        return switch (name.toString()) {
            case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade" ->
                true;
            default -> false;
        };
    }
}
