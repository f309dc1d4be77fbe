// A response as filters see it.
package wirespeed.gateway.core;

import java.nio.ByteBuffer;

/** Either received from an origin (its body streams by) or made here (its body is in memory). */
public final class Response {
    private int status;
    private final int minor;
    private final Headers headers;
    private Framing framing;
    private Framing received = Framing.NONE;
    private boolean keepAlive = true;
    private boolean isLocal;
    private boolean isStored;
    private ByteBuffer body;
    private BodyTransform transform;

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

    /** A response of an origin that the gateway had stored. */
    public static Response stored(int status, ByteBuffer body) {
        Response response = of(status, body);
        response.isStored = true;
        return response;
    }

    /** One that an origin's client library has read already; its body streams by. */
    public static Response received(int status, Headers headers, Framing framing) {
        Response response = new Response(status, 1, headers);
        response.framing = framing;
        response.received = framing;
        return response;
    }

    /**
     * One that HTTP/2 brought; refused with 502 when its length contradicts its end.
     *
     * @param method that the origin was asked with
     * @param isEnded whether no body follows
     */
    public static Response fromFields(int status, Headers headers, String method,
            boolean isEnded) {
        if (headers.mayHave(Field.TRANSFER_ENCODING.bit)) {
            throw new Refusal(502, "Transfer-Encoding in an HTTP/2 response");
        }
        Response response = new Response(status, 1, headers);
        Framing said = Framing.of(headers, 1, 502);
        response.framing = said != null ? said : isEnded ? Framing.length(0) : Framing.CHUNKED;
        if (!response.answers(method).isEmpty() && isEnded) {
            throw new Refusal(502, "response without the body that its Content-Length names");
        }
        return response;
    }

    public int status() {
        return status;
    }

    public void status(int status) {
        if (status < 200 || status > 599) {
            throw new IllegalArgumentException(status + " is not a final status");
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

    void framing(Framing framing) {
        this.framing = framing;
    }

    /**
     * Takes the framing of what the origin sends, before any filter changes the response (RFC 9112
     * §6.3): HEAD, 1xx, 204 and 304 have no body whatever the fields say.
     *
     * @param method that the origin was asked with
     */
    public Framing answers(String method) {
        boolean hasNone = method.equals("HEAD") || isBodyless();
        received = hasNone ? Framing.NONE : framing == null ? Framing.UNTIL_CLOSE : framing;
        if (status == 204 && framing != null && !framing.isEmpty()) {
            // RFC 9110 §8.6: a length has no place here. The body that it announces may come late,
            // and would be read as the next answer.
            keepAlive = false;
        }
        return received;
    }

    /** The framing in which the origin sends its body; without a body for what was made here. */
    public Framing received() {
        return received;
    }

    /**
     * The framing of what the client gets: it asked for HEAD or not, whatever a filter made of that,
     * and a body that is not there is an empty one.
     */
    public Framing framingFor(Request request) {
        if (request.isHeadAsked() || isBodyless()) {
            return Framing.NONE;
        }
        if (status == 205) {
            // RFC 9110 §15.3.6: it has no content, and says so by its length.
            return Framing.length(0);
        }
        if (body != null) {
            return Framing.length(body.remaining());
        }
        if (transform != null && !received.isEmpty()) {
            return Framing.CHUNKED;
        }
        return received.kind() == Framing.Kind.NONE ? Framing.length(0) : received;
    }

    private boolean isBodyless() {
        return status < 200 || status == 204 || status == 304;
    }

    /**
     * Has the body changed piece by piece on its way to the client, after what was asked for before;
     * its length is no longer known.
     */
    public void transform(BodyTransform next) {
        transform = transform == null ? next : transform.then(next);
        headers.removeKnown(Field.CONTENT_LENGTH.bit);
        if (framing != null && framing.kind() == Framing.Kind.LENGTH) {
            framing = Framing.CHUNKED;
        }
    }

    /** The transform that changes the body; null for none. */
    public BodyTransform transform() {
        return transform;
    }

    /** Changes a body that is in memory; to be called before its head is sent. */
    public void transformBody() {
        if (body == null || transform == null) {
            return;
        }
        ByteBuffer begin = transform.chunk(body.asReadOnlyBuffer());
        ByteBuffer kept = ByteBuffer.allocate(begin.remaining()).put(begin).flip();
        ByteBuffer end = transform.end();
        endTransform();
        body(ByteBuffer.allocate(kept.remaining() + end.remaining()).put(kept).put(end).flip());
    }

    /** To be called when the exchange is over. */
    public void endTransform() {
        BodyTransform ended = transform;
        transform = null;
        if (ended != null) {
            ended.close();
        }
    }

    /** Whether the origin lets its connection be used again. */
    public boolean keepAlive() {
        return keepAlive;
    }

    void keepAlive(boolean keepAlive) {
        this.keepAlive = keepAlive;
    }

    /** Whether this response comes from the gateway, which made it or had it stored. */
    public boolean isLocal() {
        return isLocal;
    }

    /** Whether an origin made this response, for this request or for an earlier one. */
    public boolean isFromOrigin() {
        return !isLocal || isStored;
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
