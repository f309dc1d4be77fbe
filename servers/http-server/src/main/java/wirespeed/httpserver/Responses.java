/** Composes the bytes of responses; one instance per loop, which caches the date. */
package wirespeed.httpserver;

import io.netty.buffer.ByteBuf;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Locale;

/** Status line, fields, body: written into one buffer for each request. */
final class Responses {
    /** More than any composed head needs. */
    static final int HEAD_BYTES_MAX = 512;
    /** RFC 9110 §5.6.7: always GMT, always two digits. */
    static final DateTimeFormatter DATE = DateTimeFormatter
            .ofPattern("EEE, dd MMM yyyy HH:mm:ss 'GMT'", Locale.ENGLISH).withZone(ZoneOffset.UTC);
    private static final byte[] LENGTH = ascii("Content-Length: ");
    private static final byte[] SERVER_AND_DATE = ascii("Server: wirespeed\r\nDate: ");
    private static final byte[] TYPE = ascii("\r\nContent-Type: text/plain\r\n");
    private static final String ALLOW = "Allow: GET, HEAD\r\n";

    /** The fate of the connection, with the bytes that end the head. */
    enum Ending {
        KEEP("\r\n\r\n"),
        /** HTTP/1.0 clients need a field if the connection stays open (RFC 9112 §9.3). */
        KEEP_OLD("\r\nConnection: keep-alive\r\n\r\n"),
        CLOSE("\r\nConnection: close\r\n\r\n");

        private final byte[] bytes;

        Ending(String text) {
            bytes = ascii(text);
        }
    }

    private final byte[] head = new byte[HEAD_BYTES_MAX];
    private byte[] date;
    /** Length of the part of a 200 head that is constant for a second. */
    private int startBytes;

    /** Called at the start of each second of the wall clock. */
    void date(Instant now) {
        date = ascii(DATE.format(now));
        startBytes = 0;
        for (byte[] part : new byte[][] {Status.OK.line, SERVER_AND_DATE, date, TYPE, LENGTH}) {
            System.arraycopy(part, 0, head, startBytes, part.length);
            startBytes += part.length;
        }
    }

    /** Appends the head of a 200; the buffer has space for {@link #HEAD_BYTES_MAX}. */
    void ok(ByteBuf out, long length, Ending ending) {
        int at = decimal(head, startBytes, length);
        byte[] end = ending.bytes;
        for (int each = 0; each < end.length; each++) {
            head[at++] = end[each];
        }
        out.writeBytes(head, 0, at);
    }

    /** Appends a head with further fields, each with its line end. */
    void head(ByteBuf out, Status status, String fields, long length, Ending ending) {
        out.writeBytes(status.line).writeBytes(SERVER_AND_DATE).writeBytes(date).writeBytes(TYPE);
        out.writeBytes(ascii(fields));
        // RFC 9110 §8.6: a 304 has no body, and its length would be that of the 200.
        if (status != Status.NOT_MODIFIED) {
            byte[] digits = new byte[20];
            out.writeBytes(LENGTH).writeBytes(digits, 0, decimal(digits, 0, length));
        } else {
            out.writerIndex(out.writerIndex() - 2);
        }
        out.writeBytes(ending.bytes);
    }

    /** Appends a complete response that has only a status. */
    void status(ByteBuf out, Status status, boolean withBody, Ending ending) {
        String fields = status == Status.METHOD_NOT_ALLOWED ? ALLOW : "";
        head(out, status, fields, status.body.length, ending);
        if (withBody) {
            out.writeBytes(status.body);
        }
    }

    private static int decimal(byte[] out, int from, long value) {
        int digits = 1;
        for (long rest = value / 10; rest > 0; rest /= 10) {
            digits++;
        }
        long rest = value;
        for (int at = from + digits - 1; at >= from; at--) {
            out[at] = (byte) ('0' + rest % 10);
            rest /= 10;
        }
        return from + digits;
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }
}
