// Pages of errors: which ones are shown, what of the response stays, and where their files may lie.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.zip.GZIPInputStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.runtime.ConfigError;

abstract class ErrorPageContract extends CarrierContract {
    private static final int PAGE_BYTES_MAX = 64 * 1024;
    private static final String PAGE = "[[filter]]\ntype = \"error-page\"\n";
    @TempDir
    Path folder;

    private Carrier gateway(String more) {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n"
                + "[origins.none]\naddresses = [\"127.0.0.1:1\"]\n"
                + "[[route]]\nprefix = \"/o\"\norigins = [\"o\"]\n"
                + "[[route]]\nprefix = \"/down\"\norigins = [\"none\"]\n" + more);
    }

    private Path page(String name, String text) throws IOException {
        return Files.writeString(folder.resolve(name), text);
    }

    private static void assertPage(int status, String type, String body, RawClient.Answer answer) {
        assertEquals(status, answer.status(), answer.toString());
        assertEquals(type, answer.header("Content-Type"));
        assertEquals(body, answer.body());
        assertEquals(String.valueOf(body.length()), answer.header("Content-Length"));
    }

    @Test
    void errors_of_the_gateway_and_of_its_filters_have_their_pages() throws Exception {
        Path down = page("down.html", "<p>down</p>");
        // The name puts the page for the class first; the one for the status is shown all the same.
        RawClient client = client(gateway(PAGE + "name = \"a\"\nstatuses = [\"4xx\"]\nbody = \"refused\"\n"
                + PAGE + "name = \"b\"\nstatuses = [\"404\", \"410\"]\nbody = '{\"error\":\"none\"}'\n"
                + "content-type = \"application/json\"\n"
                + PAGE + "name = \"c\"\nstatuses = [\"5xx\"]\nfile = \"" + down + "\"\n"
                + PAGE + "name = \"d\"\nstatuses = [\"5xx\"]\nbody = \"second\"\n"
                + "[[filter]]\ntype = \"ip\"\nprefix = \"/closed\"\ndeny = [\"127.0.0.0/8\"]\n"
                + "[[filter]]\ntype = \"basic\"\nprefix = \"/staff\"\nusers-file = \""
                + page("users", "") + "\"\nrealm = \"shop\"\n"
                + "[[filter]]\ntype = \"static-response\"\nprefix = \"/own\"\nstatus = 404\nbody = \"own\"\n"));
        assertPage(404, "application/json", "{\"error\":\"none\"}", client.get("/nowhere"));
        assertPage(403, "text/plain; charset=utf-8", "refused", client.get("/closed"));
        RawClient.Answer staff = client.get("/staff");
        assertPage(401, "text/plain; charset=utf-8", "refused", staff);
        assertEquals("Basic realm=\"shop\", charset=\"UTF-8\"", staff.header("WWW-Authenticate"));
        assertPage(502, "text/html; charset=utf-8", "<p>down</p>", client.get("/down"));
        client.send("HEAD /nowhere HTTP/1.1\r\nHost: a\r\n\r\n");
        RawClient.Answer head = client.read(true);
        assertEquals(404, head.status());
        assertPage(404, "text/plain; charset=utf-8", "own", client.get("/own"));
        assertEquals("GET /o HTTP/1.1|", client.get("/o").body());
    }

    @Test
    void a_refused_client_still_learns_when_to_come_back() throws Exception {
        RawClient client = client(gateway(PAGE
                + "statuses = [\"429\", \"503\"]\nbody = \"later\"\n"
                + "[[filter]]\ntype = \"rate-limit\"\nrate = 1\nburst = 1\n"));
        client.send("GET /o HTTP/1.1\r\nHost: a\r\n\r\n".repeat(50));
        RawClient.Answer refused = client.read();
        for (int i = 1; i < 50; i++) {
            RawClient.Answer next = client.read();
            refused = refused.status() == 200 ? next : refused;
        }
        assertPage(429, "text/plain; charset=utf-8", "later", refused);
        assertEquals("1", refused.header("Retry-After"));
    }

    @Test
    void answers_of_origins_are_replaced_where_that_is_asked_for() throws Exception {
        String large = "x".repeat(300_000);
        origin.handler = (seen, out, socket) -> {
            String status = seen.line().replaceAll(".* /o/(\\d+) .*", "$1");
            RecordingOrigin.respond(out, Integer.parseInt(status), "X-Own: 1\r\nETag: \"1\"\r\n"
                    + "Content-Encoding: zstd\r\nContent-Type: text/html\r\n", large);
            return true;
        };
        String html = "content-type = \"text/html\"\n";
        RawClient kept = client(gateway(PAGE + "statuses = [\"5xx\"]\nbody = \"page\"\n"));
        assertEquals(large, kept.get("/o/502").body());
        RawClient client = client(gateway(PAGE + "statuses = [\"5xx\", \"404\"]\nbody = \"page\"\n" + html
                + "from-origins = true\n"));
        for (int i = 0; i < 3; i++) {
            for (int status : new int[] {502, 404}) {
                RawClient.Answer replaced = client.get("/o/" + status);
                assertPage(status, "text/html", "page", replaced);
                assertEquals("1", replaced.header("X-Own"));
                assertNull(replaced.header("ETag"));
                assertNull(replaced.header("Content-Encoding"));
            }
            RawClient.Answer other = client.get("/o/410");
            assertEquals(large, other.body());
            assertEquals("\"1\"", other.header("ETag"));
        }
    }

    @Test
    void a_page_is_compressed_if_that_comes_later_and_never_half() throws Exception {
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 500, "Content-Type: text/html\r\n", "x".repeat(5000));
            return true;
        };
        String text = "sorry ".repeat(300);
        for (String compress : new String[] {"a", "z"}) {
            RawClient client = client(gateway(PAGE + "name = \"m\"\nstatuses = [\"500\"]\nfile = \""
                    + page("sorry.html", text) + "\"\nfrom-origins = true\n"
                    + "[[filter]]\ntype = \"compress\"\nname = \"" + compress + "\"\n"));
            client.send("GET /o HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
            RawClient.Answer answer = client.read();
            assertEquals(500, answer.status());
            boolean isCompressed = "gzip".equals(answer.header("Content-Encoding"));
            assertEquals(compress.equals("z"), isCompressed, answer.head());
            assertEquals(text, isCompressed ? new String(new GZIPInputStream(new ByteArrayInputStream(
                    answer.body().getBytes(StandardCharsets.ISO_8859_1))).readAllBytes(),
                    StandardCharsets.US_ASCII) : answer.body());
        }
    }

    @Test
    void a_page_is_as_long_as_it_may_be_and_lies_where_it_may_lie() throws Exception {
        Path allowed = Files.createDirectory(folder.resolve("pages"));
        Path page = Files.writeString(allowed.resolve("a.html"), "before");
        String named = PAGE + "statuses = [\"404\"]\nfile = \"";
        Carrier gateway = gateway("[server]\npage-folder = \"" + allowed + "\"\n" + named + page + "\"\n");
        Files.writeString(page, "after");
        assertEquals("before", client(gateway).get("/nowhere").body());
        Path elsewhere = page("secret", "secret");
        ConfigError outside = assertThrows(ConfigError.class, () -> gateway("[server]\npage-folder = \""
                + allowed + "\"\n" + named + elsewhere + "\"\n"));
        assertTrue(outside.getMessage().contains("does not lie below server.page-folder"),
                outside.getMessage());
        Files.write(page, new byte[PAGE_BYTES_MAX + 1]);
        ConfigError large = assertThrows(ConfigError.class, () -> gateway(named + page + "\"\n"));
        assertTrue(large.getMessage().contains("is longer than 65536 bytes"), large.getMessage());
        Files.write(page, new byte[PAGE_BYTES_MAX]);
        RawClient client = client(gateway(named + page + "\"\n"));
        for (int i = 0; i < 3; i++) {
            RawClient.Answer whole = client.get("/nowhere");
            assertEquals(PAGE_BYTES_MAX, whole.body().length());
            assertFalse(whole.body().chars().anyMatch(b -> b != 0));
        }
    }

    @Test
    void a_client_that_is_shed_gets_no_page() throws Exception {
        CountDownLatch mayAnswer = new CountDownLatch(1);
        origin.handler = RecordingOrigin.after(mayAnswer);
        Carrier gateway = gateway("[limits]\nin-flight = 1\n" + PAGE + "statuses = [\"5xx\"]\nbody = \"page\"\n");
        RawClient waiting = client(gateway);
        waiting.send("GET /o HTTP/1.1\r\nHost: a\r\n\r\n");
        while (origin.seen.isEmpty()) {
            Thread.sleep(5);
        }
        RawClient.Answer shed = client(gateway).get("/o");
        assertEquals(503, shed.status());
        assertFalse(shed.body().contains("page"), shed.body());
        assertEquals("1", shed.header("Retry-After"));
        mayAnswer.countDown();
        assertEquals("GET /o HTTP/1.1|", waiting.read().body());
    }

    /** A stored answer is the origin's, although the gateway sends it. */
    @Test
    void stored_errors_of_origins_have_pages_as_fresh_ones_have() throws Exception {
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 404, "Cache-Control: max-age=600\r\n", "theirs");
            return true;
        };
        String toml = "[admin]\nlisten = \"127.0.0.1:0\"\n[cache]\nenabled = true\n[origins.o]\n"
                + "addresses = [\"127.0.0.1:" + origin.port() + "\"]\n";
        Carrier gateway = start(toml);
        RawClient client = client(gateway);
        assertEquals("theirs", client.get("/o").body());
        assertEquals("theirs", client.get("/o").body());
        String page = PAGE + "statuses = [\"404\"]\nbody = \"page\"\n";
        put(gateway, toml + page);
        assertEquals("theirs", client.get("/o").body());
        put(gateway, toml + page + "from-origins = true\n");
        for (int i = 0; i < 2; i++) {
            assertPage(404, "text/plain; charset=utf-8", "page", client.get("/o"));
        }
        put(gateway, toml);
        assertEquals("theirs", client.get("/o").body());
        assertEquals(1, origin.seen.size());
    }

    private static void put(Carrier gateway, String toml) throws IOException {
        try (RawClient client = new RawClient(gateway.runtime.adminAddress())) {
            client.send("GET /config HTTP/1.1\r\nHost: localhost\r\n\r\n");
            String tag = client.read().header("ETag");
            client.send("PUT /config HTTP/1.1\r\nHost: localhost\r\nIf-Match: " + tag
                    + "\r\nContent-Length: " + toml.length() + "\r\n\r\n" + toml);
            assertEquals(200, client.read().status());
        }
    }

    @Test
    void a_head_does_not_say_the_length_of_what_was_replaced() throws Exception {
        origin.handler = (seen, out, socket) -> {
            out.write("HTTP/1.1 404 X\r\nContent-Length: 300000\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
            return true;
        };
        RawClient client = client(gateway(PAGE + "statuses = [\"404\"]\nbody = \"page\"\nfrom-origins = true\n"));
        client.send("HEAD /o HTTP/1.1\r\nHost: a\r\n\r\n");
        RawClient.Answer head = client.read(true);
        assertEquals(404, head.status());
        assertEquals("4", head.header("Content-Length"));
    }

    @Test
    @Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
    void a_page_is_a_file_and_no_pipe_that_a_reload_would_wait_for() throws Exception {
        Path pipe = folder.resolve("pipe");
        assertEquals(0, new ProcessBuilder("mkfifo", pipe.toString()).start().waitFor());
        for (Path other : new Path[] {pipe, folder}) {
            ConfigError refused = assertThrows(ConfigError.class, () -> gateway(PAGE
                    + "statuses = [\"404\"]\nfile = \"" + other + "\"\n"));
            assertTrue(refused.getMessage().contains("file \"" + other + "\" is not a regular file"),
                    refused.getMessage());
        }
    }
}
