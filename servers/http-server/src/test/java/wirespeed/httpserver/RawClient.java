/** A client that sends bytes unchanged and parses responses strictly. */
package wirespeed.httpserver;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
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

    /** All responses up to the end of the connection. */
    List<Response> readAll() throws IOException {
        List<Response> all = new ArrayList<>();
        for (Response each = read(); each != null; each = read()) {
            all.add(each);
        }
        return all;
    }

    /** Counts the bytes that still arrive. */
    int drain() throws IOException {
        return in.readAllBytes().length;
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
        if (isHeadOnly || response.status() == 304) {
            return response;
        }
        int length = Integer.parseInt(response.field("Content-Length"));
        byte[] body = in.readNBytes(length);
        if (body.length < length) {
            throw new IOException("the body ended after " + body.length + " of " + length);
        }
        return new Response(response.status(), text, body);
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
