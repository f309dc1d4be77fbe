/** Converts the target of a request to a path below a folder, or an error. */
package wirespeed.httpserver;

import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.ByteBuffer;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;

/** Decodes once; rejects targets that another parser could read differently (RFC 3986 §6). */
final class TargetPath {
    private TargetPath() {
    }

    /** Where the path ends and the query starts. */
    static int endOfPath(byte[] bytes, int from, int to) {
        int at = from;
        while (at < to && bytes[at] != '?') {
            at++;
        }
        return at;
    }

    /** The path relative to the root; no segment of it is empty, {@code .} or {@code ..}. */
    static Path relative(byte[] bytes, int from, int to) throws Content.Refusal {
        String decoded = decode(bytes, from, to);
        for (String segment : decoded.substring(Math.min(1, decoded.length())).split("/", -1)) {
            if (segment.equals("..") || segment.equals(".")) {
                throw new Content.Refusal(Status.BAD_REQUEST);
            }
            if (segment.isEmpty()) {
                throw new Content.Refusal(Status.NOT_FOUND);
            }
        }
        try {
            return Path.of(decoded.substring(1));
        } catch (InvalidPathException unusable) {
            throw new Content.Refusal(Status.BAD_REQUEST);
        }
    }

    private static String decode(byte[] bytes, int from, int to) throws Content.Refusal {
        byte[] out = new byte[to - from];
        int length = 0;
        for (int at = from; at < to; at++) {
            byte each = bytes[at];
            if (each == '%') {
                int high = at + 2 < to ? Bytes.hex(bytes[at + 1]) : -1;
                int low = at + 2 < to ? Bytes.hex(bytes[at + 2]) : -1;
                each = (byte) (high * 16 + low);
                if (high < 0 || low < 0 || each == '/') {
                    throw new Content.Refusal(Status.BAD_REQUEST);
                }
                at += 2;
            }
            if (each == '\\' || each >= 0 && each < 0x20 || each == 0x7f) {
                throw new Content.Refusal(Status.BAD_REQUEST);
            }
            out[length++] = each;
        }
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(out, 0, length))
                    .toString();
        } catch (CharacterCodingException notUtf8) {
            throw new Content.Refusal(Status.BAD_REQUEST);
        }
    }
}
