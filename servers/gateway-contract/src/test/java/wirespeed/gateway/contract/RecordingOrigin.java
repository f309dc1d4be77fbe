// An origin that keeps what it received and answers as the test says.
package wirespeed.gateway.contract;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Blocking sockets and a thread a connection: simple enough to be trusted. */
final class RecordingOrigin implements AutoCloseable {
    /** A request as it arrived. */
    record Seen(String head, String body, int connection) {
        String line() {
            return head.substring(0, head.indexOf("\r\n"));
        }

        String header(String name) {
            for (String line : head.split("\r\n")) {
                if (line.regionMatches(true, 0, name + ":", 0, name.length() + 1)) {
                    return line.substring(name.length() + 1).trim();
                }
            }
            return null;
        }
    }

    /** Answers a request on its socket; false closes the connection. */
    interface Handler {
        boolean answer(Seen seen, OutputStream out, Socket socket) throws IOException;
    }

    final List<Seen> seen = new CopyOnWriteArrayList<>();
    final AtomicInteger connections = new AtomicInteger();
    private final ServerSocket listener;
    private final Thread acceptor = new Thread(this::accept, "origin");
    private final java.util.Set<Socket> open = ConcurrentHashMap.newKeySet();
    volatile Handler handler = RecordingOrigin::ordinary;
    /** Whether a request is answered behind its body; else behind its head. */
    volatile boolean readsBodies = true;

    RecordingOrigin() throws IOException {
        this(new ServerSocket(0, 200, InetAddress.getLoopbackAddress()));
    }

    RecordingOrigin(ServerSocket listener) {
        this.listener = listener;
        acceptor.setDaemon(true);
        acceptor.start();
    }

    InetAddress address() {
        return listener.getInetAddress();
    }

    int port() {
        return listener.getLocalPort();
    }

    static boolean ordinary(Seen seen, OutputStream out, Socket socket) throws IOException {
        respond(out, 200, "", seen.line() + "|" + seen.body());
        return true;
    }

    /** Answers as {@link #ordinary} does, once the latch is open. */
    static Handler after(CountDownLatch latch) {
        return (seen, out, socket) -> {
            awaitQuietly(latch);
            return ordinary(seen, out, socket);
        };
    }

    /** Waits for at most a minute; an interrupt ends the wait and stays set. */
    static void awaitQuietly(CountDownLatch latch) {
        awaitQuietly(latch, 60_000);
    }

    static void awaitQuietly(CountDownLatch latch, int millis) {
        try {
            latch.await(millis, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    static void respond(OutputStream out, int status, String headers, String body)
            throws IOException {
        out.write(("HTTP/1.1 " + status + " X\r\n" + headers + "Content-Length: " + body.length()
                + "\r\n\r\n" + body).getBytes(StandardCharsets.ISO_8859_1));
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
                int number = connections.incrementAndGet();
                Thread thread = new Thread(() -> serve(socket, number), "origin-" + number);
                thread.setDaemon(true);
                thread.start();
            } catch (IOException closed) {
                return;
            }
        }
    }

    private void serve(Socket socket, int number) {
        try (socket) {
            InputStream in = new BufferedInputStream(socket.getInputStream());
            Seen next = read(in, number);
            while (next != null) {
                seen.add(next);
                if (!handler.answer(next, socket.getOutputStream(), socket)) {
                    return;
                }
                next = read(in, number);
            }
        } catch (IOException | NumberFormatException gone) {
            // The gateway may close at any time; tests look at what was seen.
        } finally {
            open.remove(socket);
        }
    }

    private Seen read(InputStream in, int number) throws IOException {
        StringBuilder head = new StringBuilder();
        while (head.length() < 4 || !head.substring(head.length() - 4).equals("\r\n\r\n")) {
            int b = in.read();
            if (b < 0) {
                return null;
            }
            head.append((char) b);
        }
        Seen seen = new Seen(head.toString(), "", number);
        String body = "";
        if (!readsBodies) {
            return seen;
        }
        if (seen.header("Transfer-Encoding") != null) {
            body = chunked(in);
        } else if (seen.header("Content-Length") != null) {
            int length = Integer.parseInt(seen.header("Content-Length"));
            body = new String(in.readNBytes(length), StandardCharsets.ISO_8859_1);
            if (body.length() < length) {
                // A request that breaks off does not count.
                return null;
            }
        }
        return new Seen(seen.head(), body, number);
    }

    private static String chunked(InputStream in) throws IOException {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        while (true) {
            int size = Integer.parseInt(line(in), 16);
            body.write(in.readNBytes(size));
            line(in);
            if (size == 0) {
                return body.toString(StandardCharsets.ISO_8859_1);
            }
        }
    }

    private static String line(InputStream in) throws IOException {
        StringBuilder line = new StringBuilder();
        for (int b = in.read(); b >= 0 && b != '\n'; b = in.read()) {
            if (b != '\r') {
                line.append((char) b);
            }
        }
        return line.toString();
    }

    /** Closes all connections, as an origin that restarts. */
    void dropConnections() throws IOException {
        for (Socket socket : open) {
            socket.close();
        }
    }

    /** Afterwards a connection is refused: the kernel listens for as long as a thread is in accept. */
    @Override
    public void close() throws IOException {
        listener.close();
        try {
            acceptor.join(TimeUnit.MINUTES.toMillis(1));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        dropConnections();
    }
}
