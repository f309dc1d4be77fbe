// The client's side of a response, in Tomcat's terms.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.catalina.connector.Response;
import org.apache.coyote.ActionCode;
import org.apache.tomcat.util.http.MimeHeaders;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Headers;

/** Heads go around the servlet API, which would rewrite Content-Type and drop unknown statuses. */
final class Reply {
    /** Decided by Tomcat's own output filters, whatever origin or filters say. */
    private static final Set<String> OWNED = Set.of("connection", "keep-alive",
            "proxy-connection", "transfer-encoding", "te", "trailer", "upgrade",
            "proxy-authenticate", "content-length");

    private final Response client;
    /** What is missing of a body whose length is announced. */
    private long left;
    private byte[] last;
    private int lastCount;

    Reply(Response client) {
        this.client = client;
    }

    /** Whether the client has a part of the response. */
    boolean isCommitted() {
        return client.isCommitted();
    }

    /** Prepares the head; it leaves with the first bytes of the body or at the end. */
    void head(wirespeed.gateway.core.Response response, boolean isHead, Framing framing,
            boolean keepAlive) {
        if (client.isError()) {
            // Tomcat has made an answer of its own to a request body that it could not read.
            client.resetError();
            client.setSuspended(false);
        }
        client.setStatus(response.status());
        MimeHeaders headers = copied(response);
        length(response, isHead, framing);
        if (!keepAlive) {
            headers.addValue("Connection").setString("close");
        }
    }

    private MimeHeaders copied(wirespeed.gateway.core.Response response) {
        MimeHeaders headers = client.getCoyoteResponse().getMimeHeaders();
        response.headers().forEach((name, value) -> {
            if (!OWNED.contains(name.toLowerCase(Locale.ROOT))) {
                headers.addValue(name).setString(value);
            }
        });
        return headers;
    }

    /** The length that an origin's answer to HEAD names; -1 for none. */
    private static long announced(wirespeed.gateway.core.Response response) {
        Framing framing = response.framing();
        return framing != null && framing.kind() == Framing.Kind.LENGTH ? framing.length() : -1;
    }

    /** A response to HEAD has the length that GET would have; others have none without a body. */
    private void length(wirespeed.gateway.core.Response response, boolean isHead,
            Framing framing) {
        left = Long.MAX_VALUE;
        if (framing.kind() == Framing.Kind.LENGTH) {
            left = framing.length();
            client.setContentLengthLong(framing.length());
        } else if (isHead && announced(response) >= 0) {
            client.setContentLengthLong(announced(response));
        }
    }

    /** Prepares the answer that switches protocols; Tomcat starts the tunnel after it. */
    Tunnel tunnel(wirespeed.gateway.core.Response response, String protocol)
            throws IOException, jakarta.servlet.ServletException {
        MimeHeaders headers = copied(response);
        headers.addValue("Upgrade").setString(protocol);
        headers.addValue("Connection").setString("upgrade");
        return client.getRequest().upgrade(Tunnel.class);
    }

    /** Sets the body's trailers, asked for at its end; to be called before the first byte of it. */
    void trailers(Supplier<Headers> trailers) {
        client.getCoyoteResponse().setTrailerFields(() -> {
            Map<String, String> fields = new LinkedHashMap<>();
            Headers last = trailers.get();
            if (last != null) {
                last.forEach((name, value) -> fields.merge(name, value, (a, b) -> a + ", " + b));
            }
            return fields;
        });
    }

    /** The trailers of the request; null for none. */
    Headers requestTrailers() {
        return reader() == null ? null : reader().trailers();
    }

    /**
     * Sends a piece of the body; the last one of an announced length leaves by {@link #end}, and is not
     * to be changed before: Tomcat sends all it has with it, and the exchange ends first.
     */
    void write(byte[] bytes, int count) throws ClientFailure {
        left -= count;
        if (left == 0 && count > 0) {
            last = bytes;
            lastCount = count;
        } else {
            send(bytes, count);
        }
    }

    private void send(byte[] bytes, int count) throws ClientFailure {
        try {
            client.getOutputStream().write(bytes, 0, count);
        } catch (IOException gone) {
            throw new ClientFailure(0, "the client is gone", gone);
        }
    }

    /** Hands what was written to the socket: the origin has paused, not ended. */
    void flush() throws ClientFailure {
        try {
            client.flushBuffer();
        } catch (IOException gone) {
            throw new ClientFailure(0, "the client is gone", gone);
        }
    }

    /** The response is complete; afterwards the client has all of it. */
    void end() throws ClientFailure {
        if (last != null) {
            send(last, lastCount);
        }
        try {
            client.getOutputStream().close();
        } catch (IOException gone) {
            throw new ClientFailure(0, "the client is gone", gone);
        }
    }

    /** Forgets what was prepared and not sent. */
    void reset() {
        last = null;
        client.reset();
    }

    /** Does not wait for what the client still sends of its body. */
    void leaveRest() {
        if (reader() != null && reader().hasRest()) {
            reader().giveUp();
        }
        client.getRequest().getCoyoteRequest().action(ActionCode.DISABLE_SWALLOW_INPUT, null);
    }

    /** Tomcat drops what the client still sends of its body; not for longer than this. */
    void dropRest(long deadlineNanos) {
        if (reader() != null) {
            reader().dropRest(deadlineNanos);
        }
    }

    private StrictReader reader() {
        return client.getRequest().getCoyoteRequest().getNote(Http11.READER)
                instanceof StrictReader reader ? reader : null;
    }

    /** The rest will not come: the client must not take what it has for complete. */
    void cut() {
        client.getCoyoteResponse().action(ActionCode.CLOSE_NOW, null);
    }
}
