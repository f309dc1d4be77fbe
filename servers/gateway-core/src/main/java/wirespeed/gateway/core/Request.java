// A request as filters see it.
package wirespeed.gateway.core;

import java.nio.ByteBuffer;

/** Checked when it was read; setters check what filters put in. Used by one exchange only. */
public final class Request {
    private final boolean isHeadAsked;
    private String method;
    private final String target;
    private final int minor;
    private final Headers headers;
    private String path = "/";
    private String pathWithParameters;
    private String query;
    private String host;
    private String scheme = "http";
    private String clientAddress = "unknown";
    private String peerAddress;
    private Framing framing = Framing.NONE;
    private boolean keepAlive;
    private boolean expectsContinue;
    private String upgrade;
    private boolean takesTrailers;
    private boolean isHttp2;
    private boolean isAuthenticated;
    private String clientCertificate;
    private ByteBuffer body;

    public Request(String method, String target, int minor, Headers headers) {
        this.method = method;
        this.isHeadAsked = method.equals("HEAD");
        this.target = target;
        this.minor = minor;
        this.headers = headers;
    }

    public String method() {
        return method;
    }

    public void method(String method) {
        if (!Ascii.isToken(method)) {
            throw new IllegalArgumentException("invalid method \"" + method + "\"");
        }
        this.method = method.intern();
    }

    /** Whether the client waits for a head only, whatever the method has become since. */
    public boolean isHeadAsked() {
        return isHeadAsked;
    }

    /** The request target as received. */
    public String target() {
        return target;
    }

    /** 0 for HTTP/1.0, 1 for HTTP/1.1 and what came by HTTP/2. */
    public int minor() {
        return minor;
    }

    public Headers headers() {
        return headers;
    }

    /** The normalised path without the parameters of its segments; this is what is matched. */
    public String path() {
        return path;
    }

    /** The query without '?', or null. */
    public String query() {
        return query;
    }

    /** Sets the path, which begins with '/', and query that are matched and that the origin gets. */
    public void path(String path, String query) {
        if (!path.startsWith("/") && !path.equals("*")) {
            throw new IllegalArgumentException("a path begins with /");
        }
        checkTarget(path);
        if (query != null) {
            checkTarget(query);
        }
        this.path = path;
        this.pathWithParameters = null;
        this.query = query;
    }

    /** The normalised path as the origin gets it, with the parameters of its segments. */
    public String pathWithParameters() {
        return pathWithParameters == null ? path : pathWithParameters;
    }

    void pathWithParameters(String path) {
        pathWithParameters = path;
    }

    private static void checkTarget(String text) {
        for (int i = 0; i < text.length(); i++) {
            if (text.charAt(i) > 0x7e || !Ascii.isTarget(text.charAt(i))) {
                throw new IllegalArgumentException("path or query holds a character that a"
                        + " request target may not");
            }
        }
    }

    /** Host with its port as the client named it; null only in HTTP/1.0. */
    public String host() {
        return host;
    }

    /** Sets the host for routes and X-Forwarded-Host. */
    public void host(String host) {
        if (host != null) {
            try {
                Authority.check(host);
            } catch (Refusal none) {
                throw new IllegalArgumentException("invalid host \"" + host + "\"", none);
            }
        }
        this.host = host;
    }

    /** "http" or "https", as the client connected. */
    public String scheme() {
        return scheme;
    }

    public void scheme(String scheme) {
        if (!scheme.equals("http") && !scheme.equals("https")) {
            throw new IllegalArgumentException("scheme is neither http nor https");
        }
        this.scheme = scheme;
    }

    /** The scheme that the client has used, as the first trusted proxy says; else {@link #scheme}. */
    public String clientScheme() {
        String said = first(headers.get(Field.X_FORWARDED_PROTO.text));
        return said.isEmpty() ? scheme : said.toLowerCase(java.util.Locale.ROOT);
    }

    /** The host that the client has asked for, as the first trusted proxy says; else {@link #host}. */
    public String clientHost() {
        String said = first(headers.get(Field.X_FORWARDED_HOST.text));
        return said.isEmpty() ? host : said;
    }

    /** Only trusted proxies can have sent it; of several the first has spoken to the client. */
    private static String first(String list) {
        int comma = list == null ? -1 : list.indexOf(',');
        return list == null ? "" : (comma < 0 ? list : list.substring(0, comma)).trim();
    }

    /** The client's address without its port. */
    public String clientAddress() {
        return clientAddress;
    }

    public void clientAddress(String clientAddress) {
        for (int i = 0; i < clientAddress.length(); i++) {
            if (clientAddress.charAt(i) <= ' ' || clientAddress.charAt(i) > 0x7e) {
                throw new IllegalArgumentException("a client's address holds no such characters");
            }
        }
        this.clientAddress = clientAddress;
    }

    /** The address that the connection came from: the client's, or that of a trusted proxy. */
    public String peerAddress() {
        return peerAddress == null ? clientAddress : peerAddress;
    }

    void peerAddress(String peerAddress) {
        this.peerAddress = peerAddress;
    }

    /** The description of the client's certificate for the origin; null for none. */
    public String clientCertificate() {
        return clientCertificate;
    }

    public void clientCertificate(String described) {
        clientCertificate = described;
    }

    public Framing framing() {
        return framing;
    }

    void framing(Framing framing) {
        this.framing = framing;
    }

    public boolean keepAlive() {
        return keepAlive;
    }

    void keepAlive(boolean keepAlive) {
        this.keepAlive = keepAlive;
    }

    /** Whether the client waits for 100 before it sends the body. */
    public boolean expectsContinue() {
        return expectsContinue;
    }

    void expectsContinue(boolean expectsContinue) {
        this.expectsContinue = expectsContinue;
    }

    /** The protocol the client asks to switch to and the route may allow, or null. */
    public String upgrade() {
        return upgrade;
    }

    void upgrade(String upgrade) {
        this.upgrade = upgrade;
    }

    /** Whether the client said that it takes the trailers of a response. */
    public boolean takesTrailers() {
        return takesTrailers;
    }

    void takesTrailers(boolean takesTrailers) {
        this.takesTrailers = takesTrailers;
    }

    /** Whether it came by HTTP/2; all else about it is as if it had come by HTTP/1.1. */
    boolean isHttp2() {
        return isHttp2;
    }

    void cameByHttp2() {
        isHttp2 = true;
    }

    /** Whether the client has said who it is; filters may have taken the field off since. */
    public boolean isAuthenticated() {
        return isAuthenticated;
    }

    /** The origin learns who the client is: its answer may be for this one alone (RFC 9111 §3.5). */
    public void authenticate() {
        isAuthenticated = true;
    }

    /** The collected body, read-only, when a filter asked for it; else null. */
    public ByteBuffer body() {
        return body == null ? null : body.asReadOnlyBuffer();
    }

    /** Replaces the body; its length is rewritten. */
    public void body(ByteBuffer body) {
        this.body = body;
        this.framing = Framing.length(body.remaining());
    }

    /** RFC 9110 §9.2.2: sending it twice has the effect of sending it once. */
    public boolean isIdempotent() {
        return switch (method) {
            case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE" -> true;
            default -> false;
        };
    }
}
