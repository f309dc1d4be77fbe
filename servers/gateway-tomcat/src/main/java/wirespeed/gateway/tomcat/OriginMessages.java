// The messages that HttpClient's connections carry for us: heads that gateway-core wrote and read.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.SocketTimeoutException;
import org.apache.hc.core5.http.ClassicHttpRequest;
import org.apache.hc.core5.http.ClassicHttpResponse;
import org.apache.hc.core5.http.ContentLengthStrategy;
import org.apache.hc.core5.http.HttpMessage;
import org.apache.hc.core5.http.io.HttpMessageParser;
import org.apache.hc.core5.http.io.HttpMessageWriter;
import org.apache.hc.core5.http.io.SessionInputBuffer;
import org.apache.hc.core5.http.io.SessionOutputBuffer;
import org.apache.hc.core5.http.message.BasicClassicHttpRequest;
import org.apache.hc.core5.http.message.BasicClassicHttpResponse;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.HeadCheck;
import wirespeed.gateway.core.HeadSink;
import wirespeed.gateway.core.Limits;
import wirespeed.gateway.core.Response;

/** One strict reading of heads for both carriers, and the same bytes to the origin. */
final class OriginMessages {
    private OriginMessages() {
    }

    /** A request whose head is bytes already. */
    static final class Request extends BasicClassicHttpRequest {
        private static final long serialVersionUID = 1L;
        private final transient HeadSink head;
        private final transient Framing framing;

        Request(String method, HeadSink head, Framing framing) {
            super(method, "/");
            this.head = head;
            this.framing = framing;
        }
    }

    /** A response that gateway-core has read. */
    static final class Answer extends BasicClassicHttpResponse {
        private static final long serialVersionUID = 1L;
        final transient Response response;

        Answer(Response response) {
            super(response.status());
            this.response = response;
        }
    }

    /** Copies the composed head. */
    static final class Writer implements HttpMessageWriter<ClassicHttpRequest> {
        @Override
        public void write(ClassicHttpRequest message, SessionOutputBuffer buffer, OutputStream out)
                throws IOException {
            HeadSink head = ((Request) message).head;
            buffer.write(head.array(), 0, head.length(), out);
        }
    }

    /** Reads a head byte by byte from the connection's buffer, within a time and a size. */
    static final class Parser implements HttpMessageParser<ClassicHttpResponse> {
        private byte[] head = new byte[1024];
        private OriginConnection connection;
        private SessionInputBuffer buffer;
        private Limits limits = Limits.DEFAULT;
        private long deadlineNanos;
        private boolean hasRead;

        void attach(OriginConnection owner) {
            connection = owner;
        }

        /** To be called before each response. */
        void expect(Limits newest, long deadline) {
            limits = newest;
            deadlineNanos = deadline;
            hasRead = false;
        }

        /** Whether a byte of the expected response has arrived. */
        boolean hasRead() {
            return hasRead;
        }

        /** Bytes that were received and not read yet. */
        int buffered() {
            return buffer == null ? 0 : buffer.length();
        }

        @Override
        public ClassicHttpResponse parse(SessionInputBuffer from, InputStream in)
                throws IOException {
            buffer = from;
            int length = 0;
            int end = -1;
            int scanned = 0;
            while (end < 0) {
                length = readLine(in, length);
                end = HeadCheck.end(head, 0, length, scanned, limits);
                scanned = length;
            }
            return new Answer(HeadCheck.response(head, 0, end, limits));
        }

        int readRaw(byte[] into, InputStream in) throws IOException {
            return buffer.read(into, 0, into.length, in);
        }

        private int readLine(InputStream in, int from) throws IOException {
            int length = from;
            int b = 0;
            while (b != '\n' && length <= limits.headBytesMax()) {
                b = read(in);
                if (length == head.length) {
                    head = java.util.Arrays.copyOf(head, length * 2);
                }
                head[length++] = (byte) b;
            }
            return length;
        }

        private int read(InputStream in) throws IOException {
            if (buffer.length() == 0) {
                long left = (deadlineNanos - System.nanoTime()) / 1_000_000;
                if (left <= 0 && in.available() == 0) {
                    throw new SocketTimeoutException("no response head in time");
                }
                // Bytes that came while this process got no CPU time are here already.
                connection.readTimeout((int) Math.min(Integer.MAX_VALUE, Math.max(1, left)));
            }
            int b = buffer.read(in);
            if (b < 0) {
                throw new IOException(hasRead ? "the origin closed in the middle of a head"
                        : "the origin closed without an answer");
            }
            hasRead = true;
            return b;
        }
    }

    /** Framing was decided by gateway-core; HttpClient must not decide it again. */
    static final ContentLengthStrategy REQUEST_LENGTH = OriginMessages::requestLength;
    static final ContentLengthStrategy RESPONSE_LENGTH = OriginMessages::responseLength;

    private static long requestLength(HttpMessage message) {
        return length(((Request) message).framing);
    }

    /** The method is known to the connection, which does not ask for bodies that cannot be. */
    private static long responseLength(HttpMessage message) {
        return length(((Answer) message).response.received());
    }

    private static long length(Framing framing) {
        return switch (framing.kind()) {
            case NONE -> 0;
            case LENGTH -> framing.length();
            case CHUNKED -> ContentLengthStrategy.CHUNKED;
            case UNTIL_CLOSE -> ContentLengthStrategy.UNDEFINED;
        };
    }
}
