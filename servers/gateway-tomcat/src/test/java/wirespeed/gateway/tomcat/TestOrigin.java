// An origin that keeps what it received and answers as the test says.
package wirespeed.gateway.tomcat;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;

/** Blocking sockets and a thread a connection: simple enough to be trusted. */
final class TestOrigin implements AutoCloseable {
    /** A request as it arrived. */
    record Seen(String head, String body, boolean isComplete) {
        String line() {
            return head.substring(0, head.indexOf("\r\n"));
        }

        String header(String name) {
            return TestClient.header(head, name);
        }
    }

    /** Answers a request; false closes the connection. */
    interface Handler {
        boolean answer(Seen seen, Socket socket, OutputStream out) throws Exception;
    }

    final List<Seen> seen = new CopyOnWriteArrayList<>();
    final AtomicInteger connections = new AtomicInteger();
    volatile Handler handler = TestOrigin::echo;
    /** Whether request bodies are read before the handler is asked. */
    volatile boolean readsBodies = true;
    private final ServerSocket listener;
    private final Set<Socket> open = ConcurrentHashMap.newKeySet();

    TestOrigin() throws IOException {
        listener = new ServerSocket(0, 200, InetAddress.getLoopbackAddress());
        daemon(this::accept);
    }

    private static void daemon(Runnable work) {
        Thread thread = new Thread(work, "test-origin");
        thread.setDaemon(true);
        thread.start();
    }

    int port() {
        return listener.getLocalPort();
    }

    String address() {
        return "127.0.0.1:" + port();
    }

    static boolean echo(Seen seen, Socket socket, OutputStream out) throws IOException {
        respond(out, 200, "", seen.line() + "|" + seen.body());
        return true;
    }

    static void respond(OutputStream out, int status, String headers, String body)
            throws IOException {
        write(out, "HTTP/1.1 " + status + " X\r\n" + headers + "Content-Length: " + body.length()
                + "\r\n\r\n" + body);
    }

    static void write(OutputStream out, String text) throws IOException {
        out.write(text.getBytes(StandardCharsets.ISO_8859_1));
        out.flush();
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
                daemon(() -> serve(socket));
            } catch (IOException closed) {
                return;
            }
        }
    }

    private void serve(Socket socket) {
        try (socket) {
            InputStream in = new BufferedInputStream(socket.getInputStream());
            boolean isKept = true;
            while (isKept) {
                Seen next = read(in);
                seen.add(next);
                isKept = handler.answer(next, socket, socket.getOutputStream());
            }
        } catch (Exception gone) {
            // The gateway may close at any time; tests look at what was seen.
        } finally {
            open.remove(socket);
        }
    }

    private Seen read(InputStream in) throws IOException {
        StringBuilder text = new StringBuilder();
        while (text.indexOf("\r\n\r\n") < 0) {
            int b = in.read();
            if (b < 0) {
                throw new EOFException();
            }
            text.append((char) b);
        }
        String head = text.toString();
        if (!readsBodies) {
            return new Seen(head, "", false);
        }
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        boolean isComplete = TestClient.body(in, head, body, false);
        return new Seen(head, body.toString(StandardCharsets.ISO_8859_1), isComplete);
    }

    /** As an origin that restarts. */
    void dropConnections() throws IOException {
        for (Socket socket : open) {
            socket.close();
        }
    }

    @Override
    public void close() throws IOException {
        listener.close();
        dropConnections();
    }
}
