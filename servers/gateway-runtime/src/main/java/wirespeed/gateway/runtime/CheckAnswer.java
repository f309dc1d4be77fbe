// The answer to a health check, read as far as it takes to judge it.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.SSLException;
import wirespeed.gateway.core.HealthCheck;

/**
 * Interim responses are passed over (RFC 9110 §15.2). Without a text to look for, the status decides; else
 * the body does, at its end as its framing has it (RFC 9112 §6.3), or as soon as it holds the text.
 */
final class CheckAnswer {
    private static final int INTERIM_MAX = 8;
    private static final int HEADS_BYTES_MAX = 16 * 1024;
    private static final int BODY_BYTES_MAX = 4096;
    /** A chunk whose size has more is longer than what is read. */
    private static final int DIGITS_MAX = 7;
    private static final String HEAD_END = "\r\n\r\n";
    private static final Pattern STATUS = Pattern.compile("HTTP/1\\.[01] (\\d{3})");
    private static final Pattern LENGTH = Pattern.compile("(?imd)^Content-Length:[ \t]*(\\d{1,18})[ \t]*\r$");
    private static final Pattern CHUNKED = Pattern.compile("(?imd)^Transfer-Encoding:.*chunked[ \t]*\r$");
    private static final Pattern CHUNK = Pattern.compile("(?=[0-9a-fA-F])0*+([0-9a-fA-F]*+)[^\n]*\r\n");

    private final Socket socket;
    private final HealthCheck check;
    private final long endNanos;
    private final byte[] bytes = new byte[HEADS_BYTES_MAX + BODY_BYTES_MAX];
    private int length;
    private boolean isOver;

    /** To be read from now on, within the time of the check. */
    CheckAnswer(Socket socket, HealthCheck check) {
        this.socket = socket;
        this.check = check;
        this.endNanos = System.nanoTime() + check.timeoutMillis() * 1_000_000L;
    }

    boolean isGood() throws IOException {
        int from = 0;
        for (int interims = 0; interims <= INTERIM_MAX; interims++) {
            int status = status(from);
            boolean isInterim = status >= 100 && status < 200 && status != 101;
            if (!isInterim) {
                return status >= check.statusMin() && status <= check.statusMax()
                        && (check.bodyContains().isEmpty() || isFound(headEnd(from), from));
            }
            from = headEnd(from);
            if (from < 0) {
                return false;
            }
        }
        return false;
    }

    /** Of the head that begins there; -1 for none. */
    private int status(int from) throws IOException {
        while (length < from + 12 && read()) {
            // A status line has at least so many bytes.
        }
        Matcher line = STATUS.matcher(text(from));
        return line.lookingAt() ? Integer.parseInt(line.group(1)) : -1;
    }

    /** Behind the head that begins there; -1 if it does not end. */
    private int headEnd(int from) throws IOException {
        int end = text(from).indexOf(HEAD_END);
        while (end < 0 && length < HEADS_BYTES_MAX && read()) {
            end = text(from).indexOf(HEAD_END);
        }
        return end < 0 ? -1 : from + end + HEAD_END.length();
    }

    private boolean isFound(int body, int head) throws IOException {
        if (body < 0) {
            return false;
        }
        String fields = text(head).substring(0, body - head);
        boolean isChunked = CHUNKED.matcher(fields).find();
        Matcher declared = LENGTH.matcher(fields);
        long end = !isChunked && declared.find()
                ? Math.min(BODY_BYTES_MAX, Long.parseLong(declared.group(1))) : BODY_BYTES_MAX;
        while (true) {
            String raw = text(body);
            StringBuilder plain = new StringBuilder();
            boolean isLast;
            if (isChunked) {
                isLast = unchunk(raw, plain);
            } else {
                plain.append(raw, 0, (int) Math.min(raw.length(), end));
                isLast = raw.length() >= end;
            }
            if (plain.indexOf(check.bodyContains()) >= 0) {
                return true;
            }
            if (isLast || plain.length() >= BODY_BYTES_MAX || !read()) {
                return false;
            }
        }
    }

    /** As much as has come; whether the last chunk is among it, the one of size 0. */
    private static boolean unchunk(String raw, StringBuilder plain) {
        Matcher size = CHUNK.matcher(raw);
        int at = 0;
        while (size.region(at, raw.length()).lookingAt()) {
            int begin = size.end();
            String digits = size.group(1);
            if (digits.isEmpty()) {
                return true;
            }
            int end = begin + (digits.length() > DIGITS_MAX ? raw.length() : Integer.parseInt(digits, 16));
            plain.append(raw, begin, Math.min(raw.length(), end));
            at = Math.min(raw.length(), end + 2);
        }
        return false;
    }

    private String text(int from) {
        return new String(bytes, Math.min(from, length), Math.max(0, length - from), StandardCharsets.ISO_8859_1);
    }

    /** Whether more has come. */
    private boolean read() throws IOException {
        long millis = (endNanos - System.nanoTime()) / 1_000_000;
        if (isOver || millis <= 0 || length == bytes.length) {
            return false;
        }
        socket.setSoTimeout((int) millis);
        int count = -1;
        try {
            count = socket.getInputStream().read(bytes, length, bytes.length - length);
        } catch (SocketTimeoutException late) {
            // The bytes that have come decide.
        } catch (SSLException notToldToEnd) {
            // Without the alert of TLS before the end, what came counts all the same.
        }
        isOver = count < 0;
        length += Math.max(0, count);
        return count > 0;
    }
}
