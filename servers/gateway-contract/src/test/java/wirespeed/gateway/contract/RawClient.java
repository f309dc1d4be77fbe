// Speaks to a gateway in bytes.
package wirespeed.gateway.contract;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

/** Nothing is repaired or hidden, in neither direction. */
final class RawClient implements AutoCloseable {
    /** A response as it arrived; status 0 when the connection ended before one. */
    record Answer(int status, String head, String body, boolean isComplete) {
        String header(String name) {
            for (String line : head.split("\r\n")) {
                if (line.regionMatches(true, 0, name + ":", 0, name.length() + 1)) {
                    return line.substring(name.length() + 1).trim();
                }
            }
            return null;
        }
    }

    static final Answer NONE = new Answer(0, "", "", false);
    private static final int TIMEOUT_MILLIS = 60_000;
    final Socket socket;
    private final InputStream in;

    RawClient(InetSocketAddress gateway) throws IOException {
        this(gateway, null);
    }

    /** From this address of the machine; null for any. */
    RawClient(InetSocketAddress gateway, String from) throws IOException {
        socket = new Socket();
        if (from != null) {
            socket.bind(new InetSocketAddress(from, 0));
        }
        socket.setTcpNoDelay(true);
        socket.setSoTimeout(TIMEOUT_MILLIS);
        socket.connect(gateway, TIMEOUT_MILLIS);
        in = new BufferedInputStream(socket.getInputStream());
    }

    /** Over a socket that is connected, and perhaps encrypted. */
    RawClient(Socket connected) throws IOException {
        socket = connected;
        socket.setSoTimeout(TIMEOUT_MILLIS);
        in = new BufferedInputStream(socket.getInputStream());
    }

    void send(String bytes) throws IOException {
        socket.getOutputStream().write(bytes.getBytes(StandardCharsets.ISO_8859_1));
    }

    /** Sends and takes a reset in place of an error: the gateway may refuse before the end. */
    void sendTolerant(String bytes, int pieceLength) {
        try {
            for (int at = 0; at < bytes.length(); at += pieceLength) {
                send(bytes.substring(at, Math.min(bytes.length(), at + pieceLength)));
            }
        } catch (IOException refusedMeanwhile) {
            // Only the response counts.
        }
    }

    Answer get(String path) throws IOException {
        send("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
        return read();
    }

    /** A body of this length in one chunk; the gateway may refuse it before its end. */
    Answer postChunked(String path, int length) {
        sendTolerant("POST " + path + " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                + Integer.toHexString(length) + "\r\n" + "x".repeat(length) + "\r\n0\r\n\r\n", 65536);
        return read();
    }

    Answer read() {
        return read(false);
    }

    /** Reads a final response. */
    Answer read(boolean isHead) {
        try {
            Answer answer = readOne(isHead);
            while (answer.status() >= 100 && answer.status() < 200 && answer.status() != 101) {
                answer = readOne(isHead);
            }
            return answer;
        } catch (IOException ended) {
            return NONE;
        }
    }

    Answer readOne(boolean isHead) throws IOException {
        StringBuilder head = new StringBuilder();
        while (head.length() < 4 || !head.substring(head.length() - 4).equals("\r\n\r\n")) {
            int b = in.read();
            if (b < 0) {
                return NONE;
            }
            head.append((char) b);
        }
        int status = Integer.parseInt(head.substring(9, 12));
        Answer answer = new Answer(status, head.toString(), "", true);
        if (isHead || status < 200 || status == 204 || status == 304) {
            return answer;
        }
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        boolean isComplete = body(answer, body);
        return new Answer(status, head.toString(), body.toString(StandardCharsets.ISO_8859_1),
                isComplete);
    }

    private boolean body(Answer answer, ByteArrayOutputStream body) {
        try {
            if (answer.header("Transfer-Encoding") != null) {
                return chunked(body);
            }
            if (answer.header("Content-Length") == null) {
                in.transferTo(body);
                return true;
            }
            int length = Integer.parseInt(answer.header("Content-Length"));
            byte[] bytes = in.readNBytes(length);
            body.write(bytes);
            return bytes.length == length;
        } catch (IOException cut) {
            return false;
        }
    }

    private boolean chunked(ByteArrayOutputStream body) throws IOException {
        while (true) {
            String line = line();
            if (line == null) {
                return false;
            }
            int size = Integer.parseInt(line, 16);
            byte[] bytes = in.readNBytes(size);
            body.write(bytes);
            if (bytes.length < size || line() == null) {
                return false;
            }
            if (size == 0) {
                return true;
            }
        }
    }

    private String line() throws IOException {
        StringBuilder line = new StringBuilder();
        while (true) {
            int b = in.read();
            if (b < 0) {
                return null;
            }
            if (b == '\n') {
                return line.toString();
            }
            if (b != '\r') {
                line.append((char) b);
            }
        }
    }

    /** Until there is something to read. */
    void awaitByte() throws IOException {
        in.mark(1);
        in.read();
        in.reset();
    }

    int readByte() throws IOException {
        return in.read();
    }

    /** As many as there are before the connection ends. */
    byte[] readBytes(int count) throws IOException {
        return in.readNBytes(count);
    }

    String readText(int count) throws IOException {
        return new String(readBytes(count), StandardCharsets.ISO_8859_1);
    }

    /** Whether the gateway has closed the connection (a reset counts). */
    boolean isClosed() {
        try {
            return in.read() < 0;
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
