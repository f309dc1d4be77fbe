// Clients and origins over TLS whose socket a test can end apart from TLS.
package wirespeed.gateway.contract;

import java.io.ByteArrayOutputStream;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;

/** The JDK's TLS over sockets of the test. */
final class TlsPeers {
    private final SSLContext context;
    private final Map<Socket, Below> below = new ConcurrentHashMap<>();

    TlsPeers(SSLContext context) {
        this.context = context;
    }

    /** The end of TLS does not end it: a peer may say close_notify and keep its socket open. */
    private static final class Below extends Socket {
        private final boolean isInPieces;
        /** What is written waits here; null while it is sent at once. */
        private ByteArrayOutputStream collected;

        Below(boolean isInPieces) {
            this.isInPieces = isInPieces;
        }

        @Override
        public void shutdownOutput() {
            // See cut.
        }

        void cut() throws IOException {
            super.shutdownOutput();
        }

        @Override
        public OutputStream getOutputStream() throws IOException {
            OutputStream whole = super.getOutputStream();
            return new FilterOutputStream(whole) {
                @Override
                public void write(byte[] bytes, int from, int count) throws IOException {
                    if (collected != null) {
                        collected.write(bytes, from, count);
                        return;
                    }
                    int step = isInPieces ? 1 : Math.max(1, count);
                    for (int i = from; i < from + count; i += step) {
                        whole.write(bytes, i, step);
                    }
                }
            };
        }

        void sendCollected() throws IOException {
            byte[] all = collected.toByteArray();
            collected = null;
            getOutputStream().write(all);
        }
    }

    /**
     * A client that has shaken hands.
     *
     * @param isInPieces whether each byte is sent alone, those of TLS included
     */
    SSLSocket client(InetSocketAddress gateway, boolean isInPieces, String... protocols) throws IOException {
        Below socket = new Below(isInPieces);
        socket.setTcpNoDelay(true);
        socket.connect(gateway);
        SSLSocket tls = (SSLSocket) context.getSocketFactory().createSocket(socket, "127.0.0.1",
                gateway.getPort(), true);
        if (protocols.length > 0) {
            tls.setEnabledProtocols(protocols);
        }
        below.put(tls, socket);
        tls.startHandshake();
        return tls;
    }

    ServerSocket origin(InetAddress address) throws IOException {
        return origin(address, 0);
    }

    /** One that shakes hands so late. */
    ServerSocket origin(InetAddress address, int millis) throws IOException {
        return new ServerSocket(0, 50, address) {
            @Override
            public Socket accept() throws IOException {
                Below socket = new Below(false);
                implAccept(socket);
                LockSupport.parkNanos(millis * 1_000_000L);
                Socket tls = context.getSocketFactory().createSocket(socket, null, true);
                below.put(tls, socket);
                return tls;
            }
        };
    }

    /** Ends what the socket sends, without an alert where it is encrypted. */
    void cut(Socket socket) throws IOException {
        Below encrypted = below.get(socket);
        if (encrypted != null) {
            encrypted.cut();
        } else {
            socket.shutdownOutput();
        }
    }

    /** From now on nothing is sent, until {@link #sendCollected} sends all of it in one write. */
    void collect(Socket encrypted) {
        below.get(encrypted).collected = new ByteArrayOutputStream();
    }

    void sendCollected(Socket encrypted) throws IOException {
        below.get(encrypted).sendCollected();
    }

    /** Sends bytes that TLS has not made. */
    void sendBelow(Socket encrypted, byte[] bytes) throws IOException {
        below.get(encrypted).getOutputStream().write(bytes);
    }

    void reset(Socket socket) throws IOException {
        Socket lowest = below.containsKey(socket) ? below.get(socket) : socket;
        lowest.setSoLinger(true, 0);
        lowest.close();
    }
}
