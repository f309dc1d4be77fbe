// One connection to an origin: HttpClient's, with strict reading.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.net.SocketException;
import java.util.List;
import javax.net.ssl.SSLSocket;
import org.apache.hc.client5.http.io.ManagedHttpClientConnection;
import org.apache.hc.core5.function.Supplier;
import org.apache.hc.core5.http.ContentLengthStrategy;
import org.apache.hc.core5.http.Header;
import org.apache.hc.core5.http.HttpException;
import org.apache.hc.core5.http.config.Http1Config;
import org.apache.hc.core5.http.impl.io.DefaultBHttpClientConnection;
import org.apache.hc.core5.http.impl.io.SocketHolder;
import org.apache.hc.core5.http.io.SessionInputBuffer;
import org.apache.hc.core5.http.io.SessionOutputBuffer;
import org.apache.hc.core5.http.io.entity.AbstractHttpEntity;
import org.apache.hc.core5.io.CloseMode;
import org.apache.hc.core5.util.Timeout;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.HeadSink;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Limits;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.core.Response;

/** Sockets, buffers and body streams are HttpClient's; heads and chunk lines are read by us. */
final class OriginConnection extends DefaultBHttpClientConnection
        implements ManagedHttpClientConnection {
    /** For bytes that are here already; a record may be incomplete. */
    private static final Timeout AT_ONCE = Timeout.ofMilliseconds(1);

    private final OriginMessages.Parser parser;
    private Meters meters;
    private Address address;
    private ChunkedBody chunked;
    private boolean wasUsed;
    private int requests;
    private long connectNanos;

    OriginConnection(Http1Config config) {
        this(config, new OriginMessages.Parser());
    }

    private OriginConnection(Http1Config config, OriginMessages.Parser parser) {
        super(config, null, null, OriginMessages.RESPONSE_LENGTH, OriginMessages.REQUEST_LENGTH,
                OriginMessages.Writer::new, ignored -> parser);
        this.parser = parser;
        parser.attach(this);
    }

    /**
     * Counts the connection, once it is established, until it is closed.
     *
     * @param nanos that this took
     */
    void count(Meters counters, Address to, long nanos) {
        connectNanos = nanos;
        meters = counters;
        address = to;
        address.connections().incrementAndGet();
        meters.add(Meters.Count.ORIGIN_CONNECTIONS_OPENED, 1);
        meters.add(Meters.Count.ORIGIN_CONNECTIONS_OPEN, 1);
    }

    private synchronized void uncount() {
        if (address != null) {
            address.connections().decrementAndGet();
            meters.add(Meters.Count.ORIGIN_CONNECTIONS_OPEN, -1);
            address = null;
        }
    }

    /** Whether an answer came on this connection before. */
    boolean wasUsed() {
        return wasUsed;
    }

    /** How long it took to be established, with a TLS handshake. */
    long connectNanos() {
        return connectNanos;
    }

    /** Whether bytes wait that the gateway did not ask for; they would answer the wrong request. */
    boolean hasUnasked() throws IOException {
        Socket socket = getSocket();
        return parser.buffered() > 0 || socket == null || socket.getInputStream().available() > 0
                || hasRecord() && isDataAvailable(AT_ONCE);
    }

    /** Whether TLS has something to decrypt, which may be data or its own. */
    private boolean hasRecord() throws IOException {
        SocketHolder holder = getSocketHolder();
        return holder.getSocket() != holder.getBaseSocket()
                && holder.getBaseSocket().getInputStream().available() > 0;
    }

    void sendHead(String method, HeadSink head, Framing framing) throws IOException {
        try {
            sendRequestHeader(new OriginMessages.Request(method, head, framing));
            if (framing.isEmpty()) {
                flush();
            }
        } catch (HttpException e) {
            throw new IOException(e);
        }
    }

    /** Something that writes a body. */
    interface BodyWriter {
        /** Whether all of it was written; an answer may come first. */
        boolean writeTo(OutputStream out) throws IOException;

        /** The trailers after its last chunk; null for none. */
        Headers trailers();
    }

    /** Sends a body with the framing that the head announced. */
    void sendBody(String method, Framing framing, BodyWriter body) throws IOException {
        OriginMessages.Request request = new OriginMessages.Request(method, null, framing);
        request.setEntity(new Outgoing(body));
        try {
            sendRequestEntity(request);
            flush();
        } catch (HttpException e) {
            throw new IOException(e);
        }
    }

    /** The next response head, interim ones included. */
    Response readHead(Limits limits, long deadlineNanos) throws IOException {
        parser.expect(limits, deadlineNanos);
        try {
            return ((OriginMessages.Answer) receiveResponseHeader()).response;
        } catch (HttpException e) {
            throw new IOException(e);
        }
    }

    /** A new request begins; nothing of its answer has arrived. */
    void begin() {
        requests++;
        parser.expect(Limits.DEFAULT, Long.MAX_VALUE);
    }

    /** How many were begun on this connection. */
    int requests() {
        return requests;
    }

    boolean hasReadAny() {
        return parser.hasRead();
    }

    /** The body of a response that has one; never to be closed, which would read it to its end. */
    InputStream body(Response response) throws IOException {
        OriginMessages.Answer answer = new OriginMessages.Answer(response);
        try {
            receiveResponseEntity(answer);
            return answer.getEntity().getContent();
        } catch (HttpException e) {
            throw new IOException(e);
        }
    }

    /** The trailers of the body that was read last; null for none. */
    Headers trailers() {
        return chunked == null ? null : chunked.trailers();
    }

    void answered() {
        wasUsed = true;
    }

    /** Bytes that were received and not read yet. */
    int buffered() {
        return parser.buffered();
    }

    /** Bytes after a switch of protocols, those first that came with the head. */
    int readRaw(byte[] into) throws IOException {
        return parser.readRaw(into, ensureOpen().getInputStream());
    }

    void writeRaw(byte[] bytes, int count) throws IOException {
        OutputStream out = ensureOpen().getOutputStream();
        out.write(bytes, 0, count);
        out.flush();
    }

    /** The client sends nothing more; notifies the origin, behind all that was sent. */
    void endRaw() throws IOException {
        Socket socket = getSocket();
        if (socket != null) {
            socket.shutdownOutput();
        }
    }

    /**
     * Makes a write that waits fail, while an answer can still be read. Below TLS, whose own close would
     * wait for the write.
     */
    void endOutput() {
        SocketHolder holder = getSocketHolder();
        try {
            if (holder != null) {
                holder.getBaseSocket().shutdownOutput();
            }
        } catch (IOException closedAlready) {
            // Then nothing waits.
        }
    }

    void readTimeout(int millis) throws SocketException {
        Socket socket = getSocket();
        if (socket != null) {
            socket.setSoTimeout(millis);
        }
    }

    @Override
    protected InputStream createContentInputStream(long length, SessionInputBuffer buffer,
            InputStream in) {
        chunked = length == ContentLengthStrategy.CHUNKED ? new ChunkedBody(buffer, in) : null;
        return chunked != null ? chunked : super.createContentInputStream(length, buffer, in);
    }

    @Override
    protected OutputStream createContentOutputStream(long length, SessionOutputBuffer buffer,
            OutputStream out, Supplier<List<? extends Header>> trailers) {
        return length == ContentLengthStrategy.CHUNKED ? new ChunkedOut(buffer, out)
                : super.createContentOutputStream(length, buffer, out, trailers);
    }

    @Override
    public Socket getSocket() {
        SocketHolder holder = getSocketHolder();
        return holder == null ? null : holder.getSocket();
    }

    @Override
    public void bind(Socket socket) throws IOException {
        super.bind(socket);
    }

    @Override
    public void bind(SSLSocket tls, Socket base) throws IOException {
        super.bind(tls, base);
    }

    @Override
    public void passivate() {
        // The next user sets its own time-outs.
    }

    @Override
    public void activate() {
        // As above.
    }

    @Override
    public void close() throws IOException {
        uncount();
        super.close();
    }

    @Override
    public void close(CloseMode mode) {
        uncount();
        super.close(mode);
    }

    /** A body that somebody else writes. */
    private static final class Outgoing extends AbstractHttpEntity {
        private final BodyWriter writer;

        Outgoing(BodyWriter writer) {
            super((String) null, null);
            this.writer = writer;
        }

        @Override
        public void writeTo(OutputStream out) throws IOException {
            boolean isComplete = writer.writeTo(out);
            if (isComplete && out instanceof ChunkedOut chunked) {
                chunked.finish(writer.trailers());
            }
        }

        @Override
        public InputStream getContent() {
            throw new UnsupportedOperationException("written, never read");
        }

        @Override
        public boolean isStreaming() {
            return true;
        }

        @Override
        public boolean isRepeatable() {
            return false;
        }

        @Override
        public long getContentLength() {
            return -1;
        }

        @Override
        public void close() {
            // Holds nothing.
        }
    }
}
