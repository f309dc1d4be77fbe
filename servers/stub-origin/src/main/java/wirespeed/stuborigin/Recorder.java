/** Keeps received bytes. */
package wirespeed.stuborigin;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/** One JSON line per read: connection and bytes, one character of the string per byte. */
final class Recorder {
    private final BufferedWriter out;

    Recorder(Path file) throws IOException {
        out = Files.newBufferedWriter(file, StandardCharsets.US_ASCII);
    }

    /** Written through, so that a test may read the file as soon as it has the response. */
    synchronized void received(long connection, byte[] bytes, int from, int to) throws IOException {
        StringBuilder line = new StringBuilder(to - from + 40);
        line.append("{\"connection\":").append(connection).append(",\"bytes\":\"");
        for (int at = from; at < to; at++) {
            int each = bytes[at] & 0xff;
            if (each < 0x20 || each >= 0x7f || each == '"' || each == '\\') {
                line.append(String.format("\\u%04x", each));
            } else {
                line.append((char) each);
            }
        }
        out.write(line.append("\"}\n").toString());
        out.flush();
    }
}
