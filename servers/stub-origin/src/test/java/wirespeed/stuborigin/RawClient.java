/** A client that sends bytes unchanged and parses responses strictly. */
package wirespeed.stuborigin;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Locale;

/** One connection to a server under test. */
final class RawClient implements AutoCloseable {
    private static final int TIMEOUT_MS = 60_000;
    private final Socket socket;
    private final InputStream in;

    /** A response: status, head in text, body. */
    record Response(int status, String head, byte[] body) {
        String field(String name) {
            for (String line : head.split("\r\n")) {
                if (line.toLowerCase(Locale.ROOT).startsWith(name.toLowerCase(Locale.ROOT) + ":")) {
                    return line.substring(name.length() + 1).strip();
                }
            }
            return null;
        }

        String text() {
            return new String(body, StandardCharsets.ISO_8859_1);
        }
    }

    RawClient(int port) throws IOException {
        socket = new Socket(InetAddress.getLoopbackAddress(), port);
        socket.setSoTimeout(TIMEOUT_MS);
        socket.setTcpNoDelay(true);
        in = socket.getInputStream();
    }

    RawClient send(String text) throws IOException {
        return send(text.getBytes(StandardCharsets.ISO_8859_1));
    }

    RawClient send(byte[] bytes) throws IOException {
        socket.getOutputStream().write(bytes);
        return this;
    }

    /** Ends the sending side; the server may still respond. */
    RawClient finish() throws IOException {
        socket.shutdownOutput();
        return this;
    }

    static String get(String target) {
        return "GET " + target + " HTTP/1.1\r\nHost: test\r\n\r\n";
    }

    /** The next response to a GET; null at the end of the connection. */
    Response read() throws IOException {
        return read(false);
    }

    Response readHead() throws IOException {
        return read(true);
    }

    /** The bytes that still arrive. */
    byte[] rest() throws IOException {
        return in.readAllBytes();
    }

    /** Waits at most this long, instead of the long default. */
    void timeout(int ms) throws IOException {
        socket.setSoTimeout(ms);
    }

    private Response read(boolean isHeadOnly) throws IOException {
        ByteArrayOutputStream head = new ByteArrayOutputStream();
        String text = "";
        while (!text.endsWith("\r\n\r\n")) {
            int next = in.read();
            if (next < 0) {
                if (head.size() > 0) {
                    throw new IOException("the connection ended within a head: " + text);
                }
                return null;
            }
            head.write(next);
            text = next == '\n' ? head.toString(StandardCharsets.ISO_8859_1) : text;
        }
        if (!text.startsWith("HTTP/1.1 ")) {
            throw new IOException("not a status line: " + text);
        }
        Response response = new Response(Integer.parseInt(text.substring(9, 12)), text, new byte[0]);
        if (isHeadOnly) {
            return response;
        }
        if (response.field("Transfer-Encoding") != null) {
            return new Response(response.status(), text, chunks());
        }
        int length = Integer.parseInt(response.field("Content-Length"));
        byte[] body = in.readNBytes(length);
        if (body.length < length) {
            throw new IOException("the body ended after " + body.length + " of " + length);
        }
        return new Response(response.status(), text, body);
    }

    private byte[] chunks() throws IOException {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        int size;
        do {
            size = Integer.parseInt(line(), 16);
            body.write(in.readNBytes(size));
            if (!line().isEmpty()) {
                throw new IOException("a chunk does not end after " + size);
            }
        } while (size > 0);
        return body.toByteArray();
    }

    private String line() throws IOException {
        StringBuilder line = new StringBuilder();
        for (int each = in.read(); each != '\n'; each = in.read()) {
            if (each < 0) {
                throw new IOException("the connection ended within a chunk");
            }
            line.append((char) each);
        }
        return line.substring(0, line.length() - 1);
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
