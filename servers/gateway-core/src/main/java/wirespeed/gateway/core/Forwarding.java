// The fields that the gateway removes from and adds to a message between client and origin.
package wirespeed.gateway.core;

import java.nio.ByteBuffer;
import java.util.Locale;
import java.util.Set;

/** Messages are always framed again: one length or chunked, one Host, our own connection fields. */
public final class Forwarding {
    private static final String CLIENT_CERTIFICATE = "X-Forwarded-Client-Cert";
    private static final Set<String> WRITTEN = Set.of("x-forwarded-for", "forwarded",
            CLIENT_CERTIFICATE.toLowerCase(Locale.ROOT), "via");
    private static final byte[] HTTP_11_LINE = Ascii.bytes(" HTTP/1.1\r\n");
    private static final byte[] CHUNKED = Ascii.bytes("Transfer-Encoding: chunked\r\n");
    private static final byte[] CONTENT_LENGTH = Ascii.bytes("Content-Length: ");
    private static final byte[] HOST = Ascii.bytes("Host: ");
    /** What Allow says of the gateway itself; origins may know others. */
    static final String METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
    private static final String MAX_FORWARDS = "Max-Forwards";
    /** RFC 9110 §7.6.2: the largest value that this gateway takes for Max-Forwards. */
    private static final long HOPS_MAX = 1_000_000_000;
    private static final byte[] UPGRADE = Ascii.bytes("Connection: upgrade\r\nUpgrade: ");

    private final String viaName;
    private final Networks trusted;
    /** Of requests by HTTP/1.0, HTTP/1.1 and HTTP/2. */
    private final String[] via;

    /**
     * The fields about client and gateway that origins receive, and whose fields are trusted.
     *
     * @param viaName how this gateway names itself in Via; unique, or loops are seen where none is
     * @param trusted the proxies whose X-Forwarded-* are kept and extended; those of others are dropped
     */
    public Forwarding(String viaName, Networks trusted) {
        this.viaName = viaName;
        this.trusted = trusted;
        this.via = new String[] {"1.0 " + viaName, "1.1 " + viaName, "2.0 " + viaName};
    }

    /** To be called before any filter sees the request; refuses loops and bad Connection lists. */
    public void accept(Request request) {
        Headers headers = request.headers();
        if (headers.mayHave(Field.VIA.bit)) {
            for (String via : headers.all("Via")) {
                if (via.contains(viaName) && names(via, viaName)) {
                    throw new Refusal(508, "Via names this gateway already");
                }
            }
        }
        request.upgrade(upgrade(request));
        request.takesTrailers(takesTrailers(headers, request.minor()));
        HopByHop.strip(headers, 400);
        headers.removeKnown(Field.NEVER_TAKEN);
        if (headers.mayHave(Field.AUTHORIZATION.bit)) {
            request.authenticate();
        }
        if (trusted.contains(request.clientAddress())) {
            request.peerAddress(request.clientAddress());
            request.clientAddress(client(headers, request.clientAddress()));
        } else {
            headers.removeKnown(Field.SAID_BY_PROXIES);
        }
    }

    /**
     * RFC 9110 §7.6.3: each element is a protocol, who received by it, and perhaps a comment. Another
     * gateway's name may hold this one's.
     */
    private static boolean names(String via, String name) {
        for (String element : via.split(",")) {
            String[] words = element.trim().split("[ \t]+", 3);
            if (words.length > 1 && words[1].equalsIgnoreCase(name)) {
                return true;
            }
        }
        return false;
    }

    /** The last address that no trusted proxy has: what stands before it anybody can have sent. */
    private String client(Headers headers, String peer) {
        String client = peer;
        byte[] address = IpAddress.parse(peer);
        String[] hops = String.join(",", headers.all(Field.X_FORWARDED_FOR.text)).split(",");
        for (int at = hops.length - 1; at >= 0 && trusted.contains(address); at--) {
            String hop = hops[at].trim();
            address = IpAddress.ofHop(hop);
            if (address == null && !isName(hop)) {
                break;
            }
            client = address == null ? hop : IpAddress.text(address);
        }
        return client;
    }

    /** Some proxies write "unknown", or a name that says nothing. */
    private static boolean isName(String hop) {
        for (int i = 0; i < hop.length(); i++) {
            char c = hop.charAt(i);
            boolean isPlain = c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
                    || "[]:._%-".indexOf(c) >= 0;
            if (!isPlain) {
                return false;
            }
        }
        return !hop.isEmpty() && hop.length() <= 64;
    }

    /**
     * WebSocket only: nothing else is worth a raw connection to the origin, h2c least of all. Its
     * handshake is a GET without a body (RFC 6455 §4.1), which nothing raw could be mixed up with.
     */
    private static String upgrade(Request request) {
        Headers headers = request.headers();
        boolean isHandshake = request.minor() == 1 && request.method().equals("GET")
                && request.framing().isEmpty() && headers.mayHave(Field.UPGRADE.bit);
        if (!isHandshake) {
            return null;
        }
        String upgrade = headers.get("Upgrade");
        boolean isListed = HopByHop.options(headers).stream()
                .anyMatch(option -> option.equalsIgnoreCase("upgrade"));
        return isListed && "websocket".equalsIgnoreCase(upgrade) ? "websocket" : null;
    }

    /** RFC 9110 §10.1.4: only who says so is sure to do something with trailers. */
    private static boolean takesTrailers(Headers headers, int minor) {
        return minor == 1 && headers.mayHave(Field.TE.bit) && headers.all("TE").stream()
                .flatMap(line -> java.util.Arrays.stream(line.split(",")))
                .anyMatch(coding -> coding.trim().equalsIgnoreCase("trailers"));
    }

    /**
     * Whether {@link #prepare} gives this field a value of its own that no filter sees before. Not
     * X-Forwarded-Proto and -Host, whose values are the request's scheme and host.
     */
    public static boolean isWritten(String field) {
        return WRITTEN.contains(field.toLowerCase(Locale.ROOT));
    }

    /**
     * The gateway's own answer to a request that goes no further: OPTIONS for the server as a whole, and
     * OPTIONS and TRACE whose last hop this is (RFC 9110 §7.6.2).
     *
     * @return null for other requests
     */
    public static Response ownAnswer(Request request) {
        boolean isLastHop = countsHops(request) && request.headers().get(MAX_FORWARDS).matches("0+");
        if (!isLastHop && !request.path().equals("*")) {
            return null;
        }
        // An echo of TRACE would show a script what it must not read.
        Response own = Response.of(request.method().equals("TRACE") ? 405 : 204, ByteBuffer.allocate(0));
        own.headers().add("Allow", METHODS);
        return own;
    }

    private static boolean countsHops(Request request) {
        return (request.method().equals("OPTIONS") || request.method().equals("TRACE"))
                && request.headers().has(MAX_FORWARDS);
    }

    private static void countHop(Headers headers) {
        String hops = headers.get(MAX_FORWARDS);
        if (hops.matches("\\d+")) {
            long left = hops.chars().mapToLong(digit -> digit - '0')
                    .reduce(0, (before, digit) -> Math.min(HOPS_MAX, 10 * before + digit));
            headers.set(MAX_FORWARDS, String.valueOf(Math.max(0, left - 1)));
        }
    }

    /** Adds the fields that describe client and gateway to the origin; once per request. */
    public void prepare(Request request) {
        prepare(request, request.headers());
    }

    /** The fields of a request that no origin has been asked yet, as one gets them. */
    public Headers prepared(Context context) {
        Headers copy = context.request().headers().copy();
        prepare(context.request(), copy);
        StrippedPrefix.tell(context.route(), context.request(), copy);
        return copy;
    }

    private void prepare(Request request, Headers headers) {
        headers.removeKnown(Field.HOP_BY_HOP);
        if (countsHops(request)) {
            countHop(headers);
        }
        headers.append(Field.X_FORWARDED_FOR,
                extended(headers, Field.X_FORWARDED_FOR, request.peerAddress()));
        if (!isAbsent(headers, Field.FORWARDED)) {
            String peer = request.peerAddress();
            headers.append(Field.FORWARDED, extended(headers, Field.FORWARDED,
                    peer.indexOf(':') < 0 ? "for=" + peer : "for=\"[" + peer + "]\""));
        }
        if (isAbsent(headers, Field.X_FORWARDED_PROTO)) {
            headers.append(Field.X_FORWARDED_PROTO, request.scheme());
        }
        if (request.host() != null && isAbsent(headers, Field.X_FORWARDED_HOST)) {
            headers.append(Field.X_FORWARDED_HOST, request.host());
        }
        if (request.clientCertificate() != null) {
            headers.set(CLIENT_CERTIFICATE, request.clientCertificate());
        }
        headers.append(Field.VIA, via(request));
    }

    /** The element of Via by which this gateway knows a request that it has sent. */
    private String via(Request request) {
        return via[request.isHttp2() ? 2 : request.minor()];
    }

    /** Takes all lines of a list off and puts an element behind them. */
    private static String extended(Headers headers, Field field, String last) {
        if (isAbsent(headers, field)) {
            return last;
        }
        String before = String.join(", ", headers.all(field.text));
        headers.remove(field.text);
        return before + ", " + last;
    }

    private static boolean isAbsent(Headers headers, Field field) {
        return !headers.mayHave(field.bit) || !headers.has(field.text);
    }

    /** The head for an origin; may be written again for another address. */
    public static void writeRequest(Context context, Address address, HeadSink sink) {
        Request request = context.request();
        Route route = context.route();
        String path = route == null ? request.pathWithParameters()
                : route.forwardedPath(request);
        sink.put(request.method()).put(' ').put(path);
        if (request.query() != null) {
            sink.put('?').put(request.query());
        }
        sink.put(HTTP_11_LINE);
        Headers headers = request.headers();
        // The one line of a client can stay where it is; filters may have made it none, or several.
        boolean isKept = context.origin().settings().preserveHost() && headers.count(Field.HOST) == 1;
        long rewritten = Field.CONTENT_LENGTH.bit | (isKept ? 0 : Field.HOST.bit);
        if (!isKept) {
            sink.put(HOST).put(authority(context, address)).crlf();
        }
        Framing framing = request.framing();
        headers.removeKnown(rewritten);
        headers.writeTo(sink);
        if (framing.isChunked()) {
            sink.put(CHUNKED);
        } else if (framing.kind() == Framing.Kind.LENGTH) {
            sink.put(CONTENT_LENGTH).put(framing.length()).crlf();
        }
        if (request.upgrade() != null && route != null && route.allowsUpgrade()) {
            sink.put(UPGRADE).put(request.upgrade()).crlf();
        }
        sink.crlf();
    }

    /** Path and query for the origin of an exchange. */
    public static String target(Context context) {
        Request request = context.request();
        String path = context.route() == null ? request.pathWithParameters()
                : context.route().forwardedPath(request);
        return request.query() == null ? path : path + '?' + request.query();
    }

    /**
     * The name that an address is asked for, in either version of HTTP: with preserve-host that of the
     * field Host, or where a filter has removed it, of the client.
     */
    public static String authority(Context context, Address address) {
        if (!context.origin().settings().preserveHost()) {
            return address.authority();
        }
        Request request = context.request();
        String field = request.headers().get(Field.HOST.text);
        String host = field == null ? request.host() : field;
        return host == null ? address.authority() : host;
    }

    /** Refuses a 101 that was not asked for, or that leads to another protocol (RFC 9110 §7.8). */
    public static void checkSwitch(Context context, Response response) {
        String asked = context.request().upgrade();
        Route route = context.route();
        if (asked == null || route == null || !route.allowsUpgrade()) {
            throw new Refusal(502, "unrequested 101");
        }
        if (!asked.equalsIgnoreCase(response.headers().get("Upgrade"))) {
            throw new Refusal(502, "101 without the protocol that was asked for");
        }
    }

    /** Takes the origin's connection fields off a response. */
    public static void acceptResponse(Response response) {
        HopByHop.strip(response.headers(), 502);
    }

    /**
     * The head for an HTTP/1 client.
     *
     * @param framing how the body will be sent; UNTIL_CLOSE only to a client that closes
     * @param date the value of Date where the response has none (RFC 9110 §6.6.1)
     */
    public static void writeResponse(Context context, Framing framing, boolean keepAlive,
            String date, HeadSink sink) {
        Response response = context.response();
        Headers headers = response.headers();
        sink.put(StatusLine.of(response.status()));
        headers.removeKnown(Field.HOP_BY_HOP);
        boolean ownsLength = framing.kind() == Framing.Kind.LENGTH || framing.isChunked();
        if (ownsLength || response.status() == 204 || framing.kind() == Framing.Kind.UNTIL_CLOSE) {
            headers.removeKnown(Field.CONTENT_LENGTH.bit);
        }
        headers.writeTo(sink);
        if (!headers.has("Date")) {
            sink.line("Date", date);
        }
        if (framing.isChunked()) {
            sink.put(CHUNKED);
        } else if (ownsLength) {
            sink.put(CONTENT_LENGTH).put(framing.length()).crlf();
        }
        connection(context.request(), keepAlive, sink);
        sink.crlf();
    }

    private static void connection(Request request, boolean keepAlive, HeadSink sink) {
        if (!keepAlive) {
            sink.line("Connection", "close");
        } else if (request.minor() == 0) {
            sink.line("Connection", "keep-alive");
        }
    }

    /** The head of an interim response. */
    public static void writeInterim(Response response, HeadSink sink) {
        sink.put(StatusLine.of(response.status()));
        response.headers().removeKnown(Field.HOP_BY_HOP | Field.CONTENT_LENGTH.bit);
        response.headers().writeTo(sink);
        sink.crlf();
    }

    /** The head of the answer that switches protocols. */
    public static void writeSwitch(Response response, String protocol, HeadSink sink) {
        sink.put(StatusLine.of(101));
        response.headers().removeKnown(Field.HOP_BY_HOP | Field.CONTENT_LENGTH.bit);
        response.headers().writeTo(sink);
        sink.put(UPGRADE).put(protocol).crlf().crlf();
    }
}
