// An origin that speaks HTTP/2 with prior knowledge, in frames that no library would send.
package wirespeed.gateway.contract;

import io.netty.buffer.Unpooled;
import io.netty.handler.codec.http2.DefaultHttp2HeadersDecoder;
import io.netty.handler.codec.http2.Http2Headers;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;

/** A thread a connection; each test says what one does, from the first SETTINGS on. */
final class RawHttp2Origin implements AutoCloseable {
    static final int DATA = 0;
    static final int HEADERS = 1;
    static final int RST_STREAM = 3;
    static final int SETTINGS = 4;
    static final int PING = 6;
    static final int GOAWAY = 7;
    static final int CONTINUATION = 9;
    static final int END_STREAM = 1;
    static final int END_HEADERS = 4;
    static final int ACK = 1;

    /** A frame as it arrived. */
    record Frame(int type, int flags, int stream, byte[] payload) {
        /** The last byte of an error code. */
        int code() {
            return payload[3];
        }
    }

    /** What happens on a connection; returns or throws when it is over. */
    interface Script {
        void run(Connection connection) throws Exception;
    }

    final List<Frame> resets = new CopyOnWriteArrayList<>();
    final AtomicInteger connections = new AtomicInteger();
    private final Set<Socket> open = ConcurrentHashMap.newKeySet();
    private final ServerSocket listener = new ServerSocket(0, 200,
            InetAddress.getLoopbackAddress());
    private final Script script;
    private final Thread acceptor = new Thread(this::accept, "h2-origin");

    RawHttp2Origin(Script script) throws IOException {
        this.script = script;
        acceptor.setDaemon(true);
        acceptor.start();
    }

    int port() {
        return listener.getLocalPort();
    }

    private void accept() {
        while (!listener.isClosed()) {
            try {
                Socket socket = listener.accept();
                // Before the look: of the close and this thread, one sees what the other has done.
                open.add(socket);
                if (listener.isClosed()) {
                    // A thread that already waits for a client can still get one after the close.
                    socket.close();
                    return;
                }
                connections.incrementAndGet();
                Thread serving = new Thread(() -> serve(socket), "h2-origin-connection");
                serving.setDaemon(true);
                serving.start();
            } catch (IOException closed) {
                return;
            }
        }
    }

    private void serve(Socket socket) {
        try (socket) {
            script.run(new Connection(socket));
        } catch (Exception gone) {
            // The gateway may close at any time.
        } finally {
            open.remove(socket);
        }
    }

    /** Afterwards a connection is refused: the kernel listens for as long as a thread is in accept. */
    @Override
    public void close() throws IOException {
        listener.close();
        try {
            acceptor.join(60_000);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        for (Socket socket : open) {
            socket.close();
        }
    }

    /** One connection of the gateway's. */
    final class Connection {
        private final Socket socket;
        private final DataInputStream in;
        private final DefaultHttp2HeadersDecoder decoder = new DefaultHttp2HeadersDecoder(false);

        private Connection(Socket socket) throws IOException {
            this.socket = socket;
            in = new DataInputStream(socket.getInputStream());
            in.readNBytes(24);
        }

        void frame(int type, int flags, int stream, byte... payload) throws IOException {
            socket.getOutputStream().write(bytes(type, flags, stream, payload));
        }

        /** Many frames in one write; the gateway need not read between them. */
        void frames(int count, int type, int flags, int stream, byte... payload)
                throws IOException {
            ByteArrayOutputStream all = new ByteArrayOutputStream();
            for (int i = 0; i < count; i++) {
                all.write(bytes(type, flags, stream, payload));
            }
            socket.getOutputStream().write(all.toByteArray());
        }

        private static byte[] bytes(int type, int flags, int stream, byte[] payload) {
            java.nio.ByteBuffer frame = java.nio.ByteBuffer.allocate(9 + payload.length);
            frame.put((byte) (payload.length >> 16)).putShort((short) payload.length)
                    .put((byte) type).put((byte) flags).putInt(stream).put(payload);
            return frame.array();
        }

        Frame read() throws IOException {
            int length = in.readUnsignedByte() << 16 | in.readUnsignedShort();
            Frame frame = new Frame(in.readUnsignedByte(), in.readUnsignedByte(), in.readInt(),
                    in.readNBytes(length));
            if (frame.type() == RST_STREAM) {
                resets.add(frame);
            } else if (frame.type() == SETTINGS && (frame.flags() & ACK) == 0) {
                frame(SETTINGS, ACK, 0);
            }
            return frame;
        }

        /** The next frame of this kind; others are passed over. */
        Frame await(int type) throws IOException {
            Frame next = read();
            while (next.type() != type) {
                next = read();
            }
            return next;
        }

        Http2Headers fields(Frame head) throws Exception {
            return decoder.decodeHeaders(head.stream(), Unpooled.wrappedBuffer(head.payload()));
        }

        /** ":status: 200" of the static table, and a body. */
        void answer(int stream, String body) throws IOException {
            frame(HEADERS, END_HEADERS, stream, (byte) 0x88);
            frame(DATA, END_STREAM, stream, body.getBytes(StandardCharsets.ISO_8859_1));
        }
    }
}
