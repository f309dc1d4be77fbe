// Speaks to the gateway in bytes.
package wirespeed.gateway.tomcat;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

/** Nothing is repaired or hidden, in neither direction. */
final class TestClient implements AutoCloseable {
    /** A response as it arrived; status 0 when the connection ended before one. */
    record Answer(int status, String head, String body, boolean isComplete) {
        String header(String name) {
            return TestClient.header(head, name);
        }
    }

    private static final int TIMEOUT_MILLIS = 60_000;
    final Socket socket = new Socket();
    final InputStream in;

    TestClient(InetSocketAddress gateway) throws IOException {
        socket.setTcpNoDelay(true);
        socket.setSoTimeout(TIMEOUT_MILLIS);
        socket.connect(gateway, TIMEOUT_MILLIS);
        in = new BufferedInputStream(socket.getInputStream());
    }

    static String header(String head, String name) {
        for (String line : head.split("\r\n")) {
            if (line.regionMatches(true, 0, name + ":", 0, name.length() + 1)) {
                return line.substring(name.length() + 1).trim();
            }
        }
        return null;
    }

    void send(String bytes) throws IOException {
        socket.getOutputStream().write(bytes.getBytes(StandardCharsets.ISO_8859_1));
    }

    /** Sends, and takes a reset for granted: the gateway may refuse before the end. */
    void sendTolerant(String bytes) {
        try {
            send(bytes);
        } catch (IOException refusedMeanwhile) {
            // Only the response counts.
        }
    }

    Answer get(String path) throws IOException {
        send("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
        return read();
    }

    Answer read() throws IOException {
        return read(false);
    }

    Answer read(boolean isHead) throws IOException {
        String head = readHead();
        if (head.isEmpty()) {
            return new Answer(0, "", "", false);
        }
        int status = Integer.parseInt(head.substring(9, 12));
        boolean isEmpty = isHead || status < 200 || status == 204 || status == 304;
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        boolean isComplete = isEmpty || body(in, head, body, true);
        return new Answer(status, head, body.toString(StandardCharsets.ISO_8859_1), isComplete);
    }

    String readHead() throws IOException {
        StringBuilder head = new StringBuilder();
        while (head.indexOf("\r\n\r\n") < 0) {
            int b = readByte();
            if (b < 0) {
                return "";
            }
            head.append((char) b);
        }
        return head.toString();
    }

    private int readByte() {
        try {
            return in.read();
        } catch (java.net.SocketTimeoutException late) {
            throw new AssertionError("no answer within " + TIMEOUT_MILLIS + " ms", late);
        } catch (IOException reset) {
            return -1;
        }
    }

    /** Reads a body by its framing; false when it was broken off. */
    static boolean body(InputStream in, String head, ByteArrayOutputStream body,
            boolean isUntilClose) throws IOException {
        try {
            if (header(head, "Transfer-Encoding") != null) {
                return chunked(in, body);
            }
            String length = header(head, "Content-Length");
            if (length == null) {
                if (isUntilClose) {
                    in.transferTo(body);
                }
                return true;
            }
            byte[] bytes = in.readNBytes(Integer.parseInt(length));
            body.write(bytes);
            return bytes.length == Integer.parseInt(length);
        } catch (java.net.SocketTimeoutException late) {
            throw late;
        } catch (IOException reset) {
            return false;
        }
    }

    private static boolean chunked(InputStream in, ByteArrayOutputStream body)
            throws IOException {
        while (true) {
            String line = line(in);
            if (line == null) {
                return false;
            }
            int size = Integer.parseInt(line, 16);
            byte[] bytes = in.readNBytes(size);
            body.write(bytes);
            if (bytes.length < size || line(in) == null) {
                return false;
            }
            if (size == 0) {
                return true;
            }
        }
    }

    private static String line(InputStream in) throws IOException {
        StringBuilder line = new StringBuilder();
        for (int b = in.read(); b != '\n'; b = in.read()) {
            if (b < 0) {
                return null;
            }
            if (b != '\r') {
                line.append((char) b);
            }
        }
        return line.toString();
    }

    boolean isClosed() throws IOException {
        return readByte() < 0;
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
