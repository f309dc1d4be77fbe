// The short heads and the bodies that the strict reader gives Tomcat to read.
package wirespeed.gateway.tomcat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import wirespeed.gateway.core.Limits;
import wirespeed.gateway.core.Refusal;

class StrictReaderTest {
    private static final String PLAIN = "GET /a HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\n";
    /** What Tomcat reads in its place. */
    private static final String PLAIN_READ = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    private static final String CHUNKED_READ = "POST / HTTP/1.1\r\nHost: a\r\n"
            + "Transfer-Encoding: chunked\r\n\r\n";
    private static final String CHUNKED = "POST /c HTTP/1.1\r\nHost: a\r\n"
            + "Transfer-Encoding: chunked\r\n\r\n";
    private static final long NEVER_LATE_MS = 600_000;

    private final Deque<byte[]> pieces = new ArrayDeque<>();

    private StrictReader reader(String bytes, int piece, long headMillis) {
        byte[] all = bytes.getBytes(StandardCharsets.ISO_8859_1);
        for (int at = 0; at < all.length; at += piece) {
            pieces.add(java.util.Arrays.copyOfRange(all, at, Math.min(all.length, at + piece)));
        }
        return new StrictReader(this::next, () -> Limits.DEFAULT, headMillis);
    }

    /** Never more than one piece, as from a socket that receives them one by one. */
    private int next(ByteBuffer into) {
        byte[] piece = pieces.poll();
        if (piece == null) {
            return 0;
        }
        int count = Math.min(piece.length, into.remaining());
        into.put(piece, 0, count);
        if (count < piece.length) {
            pieces.addFirst(java.util.Arrays.copyOfRange(piece, count, piece.length));
        }
        return count;
    }

    private static String read(StrictReader reader) throws IOException {
        ByteBuffer into = ByteBuffer.allocate(8192);
        reader.read(into, millis -> { });
        return new String(into.array(), 0, into.position(), StandardCharsets.ISO_8859_1);
    }

    private static String readAll(StrictReader reader) throws IOException {
        StringBuilder all = new StringBuilder();
        for (String one = read(reader); !one.isEmpty(); one = read(reader)) {
            all.append(one);
        }
        return all.toString();
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 3, 64, 100_000})
    void bodies_pass_behind_heads_that_say_how_long_they_are(int piece) throws IOException {
        String body = "POST /b HTTP/1.1\r\nHost: a_b\r\nX: 1\r\nContent-Length: 5\r\n\r\nhello";
        String chunks = CHUNKED + "05;x=\"y\"\r\nhe\r\nl\r\n1\r\nx\r\n00\r\nT: v\r\nU: w\r\n\r\n";
        assertEquals(PLAIN_READ + "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello" + CHUNKED_READ
                + "5\r\nhe\r\nl\r\n1\r\nx\r\n0\r\n\r\n" + CHUNKED_READ + "0\r\n\r\n" + PLAIN_READ,
                readAll(reader(PLAIN + body + chunks + CHUNKED + "0\r\n\r\n" + PLAIN, piece, NEVER_LATE_MS)));
    }

    @ParameterizedTest
    @ValueSource(strings = {
        "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\nExpect: 100-continue\r\n\r\n"})
    void tomcat_learns_what_it_decides_by_and_nothing_else(String head) throws IOException {
        assertEquals(head, read(reader(head.replace("/ H", "/p?q H").replace("\r\n\r\n", "\r\nX: 1\r\n\r\n"),
                100_000, NEVER_LATE_MS)));
    }

    @Test
    void a_chunk_that_is_too_long_for_tomcat_comes_in_parts() throws IOException {
        StrictReader reader = reader(CHUNKED + "80000000\r\n", 100_000, NEVER_LATE_MS);
        assertEquals(CHUNKED_READ + "40000000\r\n", readAll(reader));
        ByteBuffer into = ByteBuffer.allocate(1 << 20);
        for (int i = 0; i < 1 << 10; i++) {
            pieces.add(new byte[1 << 20]);
            assertEquals(1 << 20, reader.read(into.clear(), millis -> { }));
        }
        pieces.add("more".getBytes(StandardCharsets.ISO_8859_1));
        assertEquals("\r\n40000000\r\nmore", readAll(reader));
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 3, 100_000})
    void empty_lines_before_a_head_are_skipped(int piece) throws IOException {
        String all = "\r\n" + PLAIN + "\r\n\r\n" + PLAIN + "\r\n";
        assertEquals(PLAIN_READ + PLAIN_READ, readAll(reader(all, piece, NEVER_LATE_MS)));
    }

    @Test
    void a_head_is_passed_whole_and_the_next_one_waits_for_its_turn() throws IOException {
        StrictReader reader = reader(PLAIN + PLAIN.replace("/a", "/next"), 100_000, NEVER_LATE_MS);
        assertEquals(PLAIN_READ, read(reader));
        assertEquals("/a", reader.request().target());
        assertEquals(PLAIN_READ, read(reader));
        assertEquals("/next", reader.request().target());
    }

    @Test
    void nothing_is_delivered_of_a_head_that_is_not_complete() throws IOException {
        StrictReader reader = reader(PLAIN.substring(0, 30), 7, NEVER_LATE_MS);
        assertEquals("", readAll(reader));
        assertFalse(reader.hasRest());
    }

    @ParameterizedTest
    @ValueSource(strings = {
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0"})
    void a_refused_head_is_replaced_and_nothing_follows_it(String head) throws IOException {
        StrictReader reader = reader(head + PLAIN, 5, NEVER_LATE_MS);
        assertEquals("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", read(reader));
        assertEquals(400, assertThrows(Refusal.class, reader::request).status());
        assertEquals("", read(reader));
        assertTrue(reader.hasRest());
    }

    @Test
    void a_refusal_ends_with_the_connection() throws IOException {
        StrictReader reader = reader("GET / HTTP/1.1\n", 100, NEVER_LATE_MS);
        read(reader);
        reader.reset();
        pieces.clear();
        pieces.add(PLAIN.getBytes(StandardCharsets.ISO_8859_1));
        assertEquals(PLAIN_READ, read(reader));
        assertEquals("/a", reader.request().target());
    }

    @ParameterizedTest
    @ValueSource(strings = {"5\r\nhelloX\r\n0\r\n\r\n", "5\nhello\r\n", " 5\r\nhello\r\n", "-1\r\n",
        "0\r\n x: folded\r\n\r\n", "100000000000000005\r\nhello\r\n"})
    void a_wrong_chunk_never_becomes_part_of_the_body(String body) throws IOException {
        StrictReader reader = reader(CHUNKED + body, 100_000, NEVER_LATE_MS);
        assertEquals(CHUNKED_READ, read(reader));
        assertEquals(400, assertThrows(Refused.class, () -> readAll(reader)).status());
    }

    @ParameterizedTest
    @ValueSource(strings = {"OPTIONS *", "GET http://b/x?y"})
    void a_target_that_tomcat_would_take_for_its_own_is_kept_from_it(String line)
            throws IOException {
        String rest = " HTTP/1.1\r\nHost: a\r\n\r\n";
        StrictReader reader = reader(line + rest, 100_000, NEVER_LATE_MS);
        String method = line.substring(0, line.indexOf(' '));
        assertEquals(method + " /" + rest, read(reader));
        assertEquals(line.substring(method.length() + 1), reader.request().target());
    }

    @Test
    void a_head_that_drips_is_late_in_the_end() throws Exception {
        // Long enough for a first read that loads classes, or that the machine interrupts.
        StrictReader reader = reader("GET / HTTP/1.1\r\n", 100, 1000);
        assertEquals("", read(reader));
        long end = System.nanoTime() + 60_000_000_000L;
        while (!reader.isLate()) {
            assertTrue(System.nanoTime() < end, "never late");
            Thread.sleep(5);
        }
        pieces.add(new byte[] {'X'});
        read(reader);
        assertEquals(408, assertThrows(Refusal.class, reader::request).status());
    }

    @Test
    void after_a_switch_bytes_pass_unread_early_ones_first() throws IOException {
        StrictReader reader = reader(PLAIN + "\u0001raw", 100_000, NEVER_LATE_MS);
        assertEquals(PLAIN_READ, read(reader));
        reader.raw();
        pieces.add("\n\n".getBytes(StandardCharsets.ISO_8859_1));
        assertEquals("\u0001raw\n\n", readAll(reader));
    }
}
