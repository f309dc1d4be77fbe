/** Composes the bytes of responses; one instance per loop, with its own date and turn. */
package wirespeed.stuborigin;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Locale;
import java.util.SplittableRandom;

/** Head and body in one buffer per request. */
final class Responses {
    /** By how many bytes the two wrong lengths differ. */
    static final int LENGTH_ERROR_BYTES = 16;
    private static final int GARBAGE_BYTES = 64;
    private static final int HEAD_BYTES_MAX = 512;
    private static final DateTimeFormatter DATE = DateTimeFormatter
            .ofPattern("EEE, dd MMM yyyy HH:mm:ss 'GMT'", Locale.ENGLISH).withZone(ZoneOffset.UTC);
    private static final byte[] REQUEST_ID = ascii("\r\nX-Request-Id: ");
    private static final byte[] CLOSE = ascii("\r\nConnection: close");
    private static final byte[] KEEP_ALIVE = ascii("\r\nConnection: keep-alive");
    private static final byte[] END = ascii("\r\n\r\n");
    private static final byte[] LAST_CHUNK = ascii("0\r\n\r\n");

    private final Payloads payloads;
    private final SplittableRandom random;
    private final byte[] digits = new byte[20];
    private byte[] lengthStart;
    private byte[] chunkedStart;
    private String date;
    private long turn;
    /** Bytes of the last composed head. */
    int headBytes;

    Responses(Payloads payloads, SplittableRandom random) {
        this.payloads = payloads;
        this.random = random;
    }

    /** Called once per second. */
    void date(Instant now) {
        date = DATE.format(now);
        lengthStart = start("200 OK", "Content-Length: " + payloads.payloadBytes);
        chunkedStart = start("200 OK", "Transfer-Encoding: chunked");
    }

    /** The response to the last request, with the bytes of its fault. */
    ByteBuf compose(ByteBufAllocator allocator, RequestReader request, long connection,
                    Fault fault, boolean isKept) {
        if (fault == Fault.GARBAGE) {
            return garbage(allocator);
        }
        boolean isError = fault == Fault.STATUS_500 || fault == Fault.STATUS_503;
        boolean inChunks = payloads.isChunked && !request.isOld && !isError;
        ByteBuf body = payloads.body(turn++, inChunks);
        int bodyBytes = request.isHead || isError ? 0 : body.writerIndex();
        ByteBuf out = allocator.directBuffer(HEAD_BYTES_MAX + request.requestIdBytes + bodyBytes);
        out.writeBytes(isError ? error(fault) : inChunks ? chunkedStart
                : fault == Fault.LENGTH_LONG ? tooLong() : lengthStart);
        out.writeBytes(digits, 0, decimal(connection));
        if (request.requestIdBytes > 0) {
            out.writeBytes(REQUEST_ID).writeBytes(request.requestId, 0, request.requestIdBytes);
        }
        if (!isKept) {
            out.writeBytes(CLOSE);
        } else if (request.isOld) {
            out.writeBytes(KEEP_ALIVE);
        }
        out.writeBytes(END);
        headBytes = out.readableBytes();
        out.writeBytes(body, 0, bodyBytes);
        if (fault == Fault.LENGTH_SHORT) {
            out.writeBytes(noise(LENGTH_ERROR_BYTES));
        } else if (fault == Fault.LENGTH_LONG && inChunks && bodyBytes > 0) {
            out.writerIndex(out.writerIndex() - LAST_CHUNK.length);
        }
        return out;
    }

    /** The response to a malformed request. */
    ByteBuf malformed(ByteBufAllocator allocator) {
        return allocator.directBuffer().writeBytes(ascii(
                "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
    }

    private ByteBuf garbage(ByteBufAllocator allocator) {
        headBytes = GARBAGE_BYTES;
        return allocator.directBuffer(GARBAGE_BYTES).writeBytes(noise(GARBAGE_BYTES));
    }

    private byte[] noise(int bytes) {
        byte[] noise = new byte[bytes];
        random.nextBytes(noise);
        return noise;
    }

    private byte[] tooLong() {
        return start("200 OK", "Content-Length: " + (payloads.payloadBytes + LENGTH_ERROR_BYTES));
    }

    private byte[] error(Fault fault) {
        return fault == Fault.STATUS_500
                ? start("500 Internal Server Error", "Content-Length: 0")
                : start("503 Service Unavailable", "Content-Length: 0\r\nRetry-After: 1");
    }

    private byte[] start(String status, String framing) {
        return ascii("HTTP/1.1 " + status + "\r\nServer: stub-origin\r\nDate: " + date
                + "\r\nContent-Type: application/octet-stream\r\n" + framing + "\r\nX-Connection: ");
    }

    private int decimal(long value) {
        int length = 1;
        for (long rest = value / 10; rest > 0; rest /= 10) {
            length++;
        }
        long rest = value;
        for (int at = length - 1; at >= 0; at--) {
            digits[at] = (byte) ('0' + rest % 10);
            rest /= 10;
        }
        return length;
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }
}
