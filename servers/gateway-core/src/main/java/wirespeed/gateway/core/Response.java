// A response as filters see it.
package wirespeed.gateway.core;

import java.nio.ByteBuffer;

/** Either received from an origin (its body streams by) or made here (its body is in memory). */
public final class Response {
    private int status;
    private final int minor;
    private final Headers headers;
    private Framing framing;
    private boolean keepAlive = true;
    private boolean isLocal;
    private ByteBuffer body;

    Response(int status, int minor, Headers headers) {
        this.status = status;
        this.minor = minor;
        this.headers = headers;
    }

    /** A response of the gateway itself. */
    public static Response of(int status, String contentType, String body) {
        byte[] bytes = body.getBytes(java.nio.charset.StandardCharsets.UTF_8);
        Response response = of(status, ByteBuffer.wrap(bytes));
        if (bytes.length > 0) {
            response.headers.append("Content-Type", contentType);
        }
        return response;
    }

    /** A response of the gateway itself with this body. */
    public static Response of(int status, ByteBuffer body) {
        Response response = new Response(status, 1, new Headers());
        response.isLocal = true;
        response.body(body);
        return response;
    }

    /** One that an origin's client library has read already; its body streams by. */
    public static Response received(int status, Headers headers, Framing framing) {
        Response response = new Response(status, 1, headers);
        response.framing = framing;
        return response;
    }

    public int status() {
        return status;
    }

    public void status(int status) {
        if (status < 200 || status > 599) {
            throw new IllegalArgumentException(status + " is no final status");
        }
        this.status = status;
    }

    public Headers headers() {
        return headers;
    }

    int minor() {
        return minor;
    }

    /** The framing; null from an origin that said nothing, which means "until it closes". */
    public Framing framing() {
        return framing;
    }

    public void framing(Framing framing) {
        this.framing = framing;
    }

    /**
     * The framing once the request is known (RFC 9112 §6.3): HEAD, 1xx, 204 and 304 have no body
     * whatever the fields say.
     */
    public Framing bodyFraming(String method) {
        if (method.equals("HEAD") || status < 200 || status == 204 || status == 304) {
            return Framing.NONE;
        }
        return framing == null ? Framing.UNTIL_CLOSE : framing;
    }

    /** Whether the origin lets its connection be used again. */
    public boolean keepAlive() {
        return keepAlive;
    }

    void keepAlive(boolean keepAlive) {
        this.keepAlive = keepAlive;
    }

    /** Whether the gateway made this response. */
    public boolean isLocal() {
        return isLocal;
    }

    /** The body in memory, read-only; null while it streams from the origin. */
    public ByteBuffer body() {
        return body == null ? null : body.asReadOnlyBuffer();
    }

    /** Replaces the body; its length is rewritten. */
    public void body(ByteBuffer body) {
        this.body = body;
        this.framing = Framing.length(body.remaining());
    }
}
