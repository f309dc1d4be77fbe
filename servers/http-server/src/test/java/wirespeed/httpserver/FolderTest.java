/** Files: the memory cache, when a change is visible, conditional and range requests. */
package wirespeed.httpserver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.time.Instant;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

@Timeout(120)
class FolderTest {
    @TempDir
    Path root;

    @Test
    void a_change_is_visible_after_thirty_seconds_and_not_before() throws Exception {
        Files.writeString(root.resolve("a"), "old");
        try (Folder folder = new Folder(root, 1)) {
            assertEquals("old", text(find(folder, "/a", 0)));
            Files.writeString(root.resolve("a"), "new one");
            assertEquals("old", text(find(folder, "/a", 29)));
            assertEquals("new one", text(find(folder, "/a", 30)));
            Files.delete(root.resolve("a"));
            assertEquals("new one", text(find(folder, "/a", 59)));
            assertThrows(Content.Refusal.class, () -> find(folder, "/a", 60));
        }
    }

    @Test
    void an_unchanged_file_is_not_read_again() throws Exception {
        Files.writeString(root.resolve("a"), "same");
        try (Folder folder = new Folder(root, 1)) {
            assertSame(find(folder, "/a", 0), find(folder, "/a", 100));
        }
    }

    @Test
    void an_evicted_file_frees_its_memory() throws Exception {
        Files.writeString(root.resolve("first"), "first");
        try (Folder folder = new Folder(root, 1)) {
            Resource first = find(folder, "/first", 0);
            for (int each = 0; each < 1100; each++) {
                Files.writeString(root.resolve("f" + each), "x");
                find(folder, "/f" + each, 0);
            }
            assertEquals(0, first.body().refCnt());
            assertEquals("first", text(find(folder, "/first", 0)));
        }
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', value = {
        "Range: bytes=0-3      | 206 | 0123",
        "Range: bytes=7-       | 206 | 789",
        "Range: bytes=-2       | 206 | 89",
        "Range: bytes=5-100    | 206 | 56789",
        "Range: bytes=-100     | 206 | 0123456789",
        "Range: bytes=10-      | 416 | ''",
        "Range: bytes=-0       | 416 | ''",
        "Range: bytes=3-2      | 200 | 0123456789",
        "Range: bytes=0-1,4-5  | 200 | 0123456789",
        "Range: lines=0-1      | 200 | 0123456789",
        "Range: bytes=-        | 200 | 0123456789",
        "Range: bytes=a-b      | 200 | 0123456789",
        "If-None-Match: *      | 304 | ''",
        "If-None-Match: \"x\"  | 200 | 0123456789",
        "If-Match: \"x\"       | 412 | ''",
        "If-Match: *           | 200 | 0123456789",
        "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT | 304 | ''",
        "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT | 200 | 0123456789",
        "If-Modified-Since: yesterday                     | 200 | 0123456789",
        "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT | 412 | ''"})
    void conditional_and_range_requests_are_served(String field, int status, String body)
            throws Exception {
        Files.writeString(root.resolve("digits"), "0123456789");
        try (Running server = Running.root(Transport.NIO, root, true);
                RawClient client = server.connect()) {
            RawClient.Response response = client.send("GET /digits HTTP/1.1\r\nHost: x\r\n" + field
                    + "\r\n\r\n").read();
            assertEquals(status, response.status());
            assertEquals(body, response.text());
            assertEquals(200, client.send(RawClient.get("/digits")).read().status());
        }
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', value = {
        "If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT   | 304",
        "If-Modified-Since: Sunday, 06-Nov-94 08:49:36 GMT   | 200",
        "If-Modified-Since: Sun Nov  6 08:49:37 1994         | 304",
        "If-Modified-Since: Sun Nov  6 08:49:36 1994         | 200",
        "If-Modified-Since: Wednesday, 16-Nov-94 08:49:37 GM | 200",
        "If-Unmodified-Since: Sunday, 06-Nov-94 08:49:36 GMT | 412",
        "If-Unmodified-Since: Sunday, 06-Nov-94 08:49:37 GMT | 200",
        "If-Unmodified-Since: Sun Nov  6 08:49:36 1994       | 412",
        "If-Unmodified-Since: Sun Nov  6 08:49:37 1994       | 200"})
    void dates_are_read_in_all_three_forms(String field, int status) throws Exception {
        Path file = Files.writeString(root.resolve("old"), "0123456789");
        Files.setLastModifiedTime(file, FileTime.from(Instant.parse("1994-11-06T08:49:37Z")));
        try (Running server = Running.root(Transport.NIO, root, true);
                RawClient client = server.connect()) {
            assertEquals(status, client.send("GET /old HTTP/1.1\r\nHost: x\r\n" + field
                    + "\r\n\r\n").read().status());
            assertEquals(206, client.send("GET /old HTTP/1.1\r\nHost: x\r\nRange: bytes=0-1\r\n"
                    + "If-Range: Sun Nov  6 08:49:37 1994\r\n\r\n").read().status());
        }
    }

    @Test
    void tags_on_several_lines_are_one_list() throws Exception {
        Files.writeString(root.resolve("a"), "abc");
        try (Running server = Running.root(Transport.NIO, root, true);
                RawClient client = server.connect()) {
            String tag = client.send(RawClient.get("/a")).read().field("ETag");
            String start = "GET /a HTTP/1.1\r\nHost: x\r\n";
            for (String[] each : new String[][] {{"If-Match", "200", "412"},
                {"If-None-Match", "304", "200"}}) {
                assertEquals(each[1], "" + client.send(start + each[0] + ": \"x\"\r\n" + each[0] + ": "
                        + tag + "\r\n\r\n").read().status());
                assertEquals(each[2], "" + client.send(start + each[0] + ": \"x\"\r\n" + each[0]
                        + ": \"y\"\r\n\r\n").read().status());
            }
        }
    }

    @Test
    void a_tag_from_a_response_is_recognised() throws Exception {
        Files.write(root.resolve("large"), PayloadMaker.payload(200_000));
        try (Running server = Running.root(Transport.NIO, root, true);
                RawClient client = server.connect()) {
            RawClient.Response first = client.send(RawClient.get("/large")).read();
            String tag = first.field("ETag");
            assertEquals("bytes", first.field("Accept-Ranges"));
            String start = "GET /large HTTP/1.1\r\nHost: x\r\n";
            assertEquals(304, client.send(start + "If-None-Match: \"a\", W/" + tag + "\r\n\r\n").read()
                    .status());
            RawClient.Response part = client.send(start + "If-Range: " + tag
                    + "\r\nRange: bytes=100000-100009\r\n\r\n").read();
            assertEquals("bytes 100000-100009/200000", part.field("Content-Range"));
            assertEquals(first.text().substring(100_000, 100_010), part.text());
            assertEquals(200, client.send(start + "If-Range: \"other\"\r\nRange: bytes=0-1\r\n\r\n")
                    .read().status());
        }
    }

    @Test
    void without_validators_they_are_neither_sent_nor_used() throws Exception {
        Files.writeString(root.resolve("a"), "abc");
        try (Running server = Running.root(Transport.NIO, root, false);
                RawClient client = server.connect()) {
            RawClient.Response response = client.send("GET /a HTTP/1.1\r\nHost: x\r\n"
                    + "Range: bytes=0-0\r\nIf-None-Match: *\r\n\r\n").read();
            assertEquals(200, response.status());
            assertNull(response.field("ETag"));
            assertTrue(response.head().length() < 150, response.head());
        }
    }

    private static Resource find(Folder folder, String target, long nowS) throws Exception {
        byte[] bytes = target.getBytes(StandardCharsets.US_ASCII);
        return folder.find(bytes, 0, bytes.length, nowS);
    }

    private static String text(Resource resource) {
        return resource.body().toString(StandardCharsets.US_ASCII);
    }
}
