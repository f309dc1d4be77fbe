// Speaks HTTP/2 in frames that no library would send.
package wirespeed.gateway.contract;

import io.netty.buffer.Unpooled;
import io.netty.handler.codec.http2.DefaultHttp2HeadersDecoder;
import io.netty.handler.codec.http2.Http2Exception;
import io.netty.handler.codec.http2.Http2Headers;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/** Fields go out as literals; only answers need a decoder. */
final class RawHttp2 implements AutoCloseable {
    /**
     * The outcome of a stream.
     *
     * @param heads each head and trailer section in order
     * @param reset the error code of RST_STREAM, or -1
     */
    record Answer(List<Http2Headers> heads, String body, int reset) {
        int status() {
            return heads.isEmpty() ? 0
                    : Integer.parseInt(heads.get(heads.size() - 1).status().toString());
        }
    }

    private static final int DATA = 0;
    private static final int HEADERS = 1;
    private static final int RST_STREAM = 3;
    private static final int SETTINGS = 4;
    private static final int PING = 6;
    private static final int GOAWAY = 7;
    private static final int WINDOW_UPDATE = 8;
    private static final int END_STREAM = 1;
    private static final int END_HEADERS = 4;
    private static final byte[] CANCEL = {0, 0, 0, 8};

    final Socket socket;
    private final DataInputStream in;
    private final DefaultHttp2HeadersDecoder decoder = new DefaultHttp2HeadersDecoder(false);
    /** The last stream that GOAWAY named, or -1 before it. */
    int lastStream = -1;
    /** The error that GOAWAY named, or -1 before it. */
    int goAwayError = -1;
    /** The streams that the gateway has reset, as far as frames were read. */
    final List<Integer> resets = new ArrayList<>();
    /** How much may be sent over all streams; known when the frames until now were read. */
    long window = 65_535;
    /** The same of each stream on which data was sent. */
    private final Map<Integer, Long> windows = new HashMap<>();

    RawHttp2(SSLContext context, InetSocketAddress address) throws IOException {
        this(encrypted(context, address));
    }

    private static Socket encrypted(SSLContext context, InetSocketAddress address)
            throws IOException {
        SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket(
                address.getAddress(), address.getPort());
        SSLParameters parameters = socket.getSSLParameters();
        parameters.setApplicationProtocols(new String[] {"h2"});
        socket.setSSLParameters(parameters);
        return socket;
    }

    /** With prior knowledge on a connection that stands. */
    RawHttp2(Socket connected) throws IOException {
        socket = connected;
        socket.setSoTimeout(60_000);
        socket.getOutputStream().write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".getBytes(
                StandardCharsets.US_ASCII));
        in = new DataInputStream(socket.getInputStream());
        frame(SETTINGS, 0, 0, new byte[0]);
        // Answers of any size, without a thought about windows.
        frame(WINDOW_UPDATE, 0, 0, new byte[] {0x3f, 0, 0, 0});
    }

    void frame(int type, int flags, int stream, byte[] payload) throws IOException {
        socket.getOutputStream().write(bytes(type, flags, stream, payload));
    }

    /** Many frames in one write: a slow machine does not spread them over minutes. */
    void frames(int count, int type, int flags, int stream, byte[] payload) throws IOException {
        byte[] one = bytes(type, flags, stream, payload);
        ByteArrayOutputStream all = new ByteArrayOutputStream(count * one.length);
        for (int i = 0; i < count; i++) {
            all.write(one);
        }
        socket.getOutputStream().write(all.toByteArray());
    }

    private static byte[] bytes(int type, int flags, int stream, byte[] payload)
            throws IOException {
        ByteArrayOutputStream frame = new ByteArrayOutputStream();
        frame.write(payload.length >> 16);
        frame.write(payload.length >> 8);
        frame.write(payload.length);
        frame.write(type);
        frame.write(flags);
        for (int shift = 24; shift >= 0; shift -= 8) {
            frame.write(stream >> shift);
        }
        frame.write(payload);
        return frame.toByteArray();
    }

    /** A request without a body and its reset, in one piece. */
    void resetAtOnce(int stream, String... fields) throws IOException {
        ByteArrayOutputStream both = new ByteArrayOutputStream();
        both.write(bytes(HEADERS, END_HEADERS | END_STREAM, stream, block(fields)));
        both.write(bytes(RST_STREAM, 0, stream, CANCEL));
        socket.getOutputStream().write(both.toByteArray());
    }

    /** A piece of a body and the reset of its stream, in one piece. */
    void dataAndReset(int stream, String body) throws IOException {
        ByteArrayOutputStream both = new ByteArrayOutputStream();
        both.write(bytes(DATA, 0, stream, body.getBytes(StandardCharsets.ISO_8859_1)));
        both.write(bytes(RST_STREAM, 0, stream, CANCEL));
        socket.getOutputStream().write(both.toByteArray());
    }

    void reset(int stream) throws IOException {
        frame(RST_STREAM, 0, stream, CANCEL);
    }

    /** Names and values in turn, as literals without Huffman coding. */
    void headers(int stream, boolean isEnd, String... fields) throws IOException {
        frame(HEADERS, END_HEADERS | (isEnd ? END_STREAM : 0), stream, block(fields));
    }

    private static byte[] block(String... fields) throws IOException {
        ByteArrayOutputStream block = new ByteArrayOutputStream();
        for (int i = 0; i < fields.length; i += 2) {
            block.write(0);
            literal(block, fields[i]);
            literal(block, fields[i + 1]);
        }
        return block.toByteArray();
    }

    private static void literal(ByteArrayOutputStream block, String text) throws IOException {
        byte[] bytes = text.getBytes(StandardCharsets.ISO_8859_1);
        if (bytes.length > 126) {
            throw new IllegalArgumentException("longer than one byte of length says");
        }
        block.write(bytes.length);
        block.write(bytes);
    }

    void data(int stream, boolean isEnd, String body) throws IOException {
        window -= body.length();
        windows.merge(stream, 65_535L - body.length(), (known, all) -> known - body.length());
        frame(DATA, isEnd ? END_STREAM : 0, stream, body.getBytes(StandardCharsets.ISO_8859_1));
    }

    /**
     * One frame of the gateway.
     *
     * @param head the nine bytes before the payload
     */
    private record Frame(byte[] head, byte[] payload) {
        int stream() {
            return head[8] & 0xff | (head[7] & 0xff) << 8;
        }

        boolean is(int type) {
            return head[3] == type;
        }

        boolean isEnd() {
            return head[3] <= HEADERS && (head[4] & END_STREAM) != 0;
        }
    }

    /** The next frame, with what belongs to the connection done; null at its end. */
    private Frame next() throws IOException {
        byte[] head = in.readNBytes(9);
        if (head.length < 9) {
            return null;
        }
        Frame frame = new Frame(head, in.readNBytes((head[0] & 0xff) << 16 | (head[1] & 0xff) << 8
                | head[2] & 0xff));
        if (frame.is(RST_STREAM)) {
            resets.add(frame.stream());
        } else if (frame.is(GOAWAY)) {
            lastStream = frame.payload[3] & 0xff | (frame.payload[2] & 0xff) << 8;
            goAwayError = frame.payload[7];
        } else if (frame.is(WINDOW_UPDATE)) {
            long more = ByteBuffer.wrap(frame.payload).getInt();
            if (frame.stream() == 0) {
                window += more;
            } else {
                windows.merge(frame.stream(), 65_535 + more, (known, all) -> known + more);
            }
        } else if (frame.is(SETTINGS) && head[4] == 0) {
            frame(SETTINGS, 1, 0, new byte[0]);
        } else if (frame.is(PING) && head[4] == 0) {
            frame(PING, 1, 0, frame.payload);
        }
        return frame;
    }

    /** How much of each answer the gateway may send from now on without an update. */
    void streamWindow(int bytes) throws IOException {
        frame(SETTINGS, 0, 0, ByteBuffer.allocate(6).putShort((short) 4).putInt(bytes).array());
    }

    /** Reads until this much may be sent on the stream. */
    void awaitWindow(int stream, int bytes) throws IOException {
        while (window < bytes || windows.getOrDefault(stream, 65_535L) < bytes) {
            if (next() == null) {
                throw new IOException("the gateway has closed");
            }
        }
    }

    /** Reads until the head of this stream's answer has come. */
    void awaitHead(int stream) throws IOException, Http2Exception {
        Frame frame = next();
        while (!frame.is(HEADERS)) {
            frame = next();
        }
        decoder.decodeHeaders(stream, Unpooled.wrappedBuffer(frame.payload));
        if (frame.stream() != stream) {
            throw new IOException("the head of stream " + frame.stream() + " came first");
        }
    }

    /** Reads until the stream is over, the connection ends, or GOAWAY excludes the stream. */
    Answer read(int stream) throws IOException, Http2Exception {
        List<Http2Headers> heads = new ArrayList<>();
        StringBuilder body = new StringBuilder();
        while (true) {
            Frame frame = next();
            if (frame == null) {
                return new Answer(heads, body.toString(), -1);
            }
            boolean isMine = frame.stream() == stream;
            if (frame.is(HEADERS)) {
                Http2Headers fields = decoder.decodeHeaders(stream, Unpooled.wrappedBuffer(frame.payload));
                if (isMine) {
                    heads.add(fields);
                }
            } else if (frame.is(DATA) && isMine) {
                body.append(new String(frame.payload, StandardCharsets.ISO_8859_1));
            } else if (frame.is(RST_STREAM) && isMine) {
                return new Answer(heads, body.toString(), frame.payload[3]);
            }
            if (isMine && frame.isEnd() || lastStream >= 0 && lastStream < stream) {
                return new Answer(heads, body.toString(), -1);
            }
        }
    }

    /** The error by which a stream is reset, as far as the gateway knows when it answers a PING; or -1. */
    int resetBy(int stream) throws IOException {
        frame(PING, 0, 0, new byte[8]);
        int error = -1;
        for (Frame frame = next(); frame != null && !(frame.is(PING) && frame.head[4] == 1); frame = next()) {
            if (frame.is(RST_STREAM) && frame.stream() == stream) {
                error = frame.payload[3];
            }
        }
        return error;
    }

    /** Whether the gateway closes within the time-out of the socket. */
    boolean isClosed() {
        try {
            while (in.read() >= 0) {
                // Frames of the connection's end.
            }
            return true;
        } catch (java.net.SocketTimeoutException open) {
            return false;
        } catch (IOException reset) {
            return true;
        }
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
