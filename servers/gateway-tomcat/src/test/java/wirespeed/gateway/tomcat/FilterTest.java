// Filters on request threads: asynchronous results, bodies, limits.
package wirespeed.gateway.tomcat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class FilterTest {
    private TestOrigin origin;
    @TempDir
    Path folder;

    @BeforeEach
    void open() throws IOException {
        origin = new TestOrigin();
    }

    @AfterEach
    void close() throws IOException {
        origin.close();
    }

    private TestGateway with(String body, String more) throws IOException {
        Files.writeString(folder.resolve("Own.java"), """
                import java.nio.ByteBuffer;
                import java.util.concurrent.*;
                import wirespeed.gateway.core.*;
                public class Own implements Filter {
                    public int order() { return 1; }
                    BODY
                }
                """.replace("BODY", body));
        return TestGateway.before(origin, "[filters]\nfolder = \"" + folder + "\"\n" + more);
    }

    @Test
    void a_later_result_is_awaited_on_the_request_thread() throws IOException {
        String filter = """
                public Phase phase() { return Phase.PRE; }
                public Step apply(Context context) {
                    Thread asked = Thread.currentThread();
                    return Step.later(CompletableFuture.supplyAsync(() -> {
                        context.request().headers().set("X-Later",
                            String.valueOf(asked != Thread.currentThread()));
                        return Step.NEXT;
                    }));
                }
                """;
        try (TestGateway gateway = with(filter, ""); TestClient client = gateway.client()) {
            for (int i = 0; i < 20; i++) {
                assertEquals(200, client.get("/" + i).status());
                assertEquals("true", origin.seen.get(i).header("X-Later"));
            }
        }
    }

    @Test
    void a_result_that_never_comes_is_a_504() throws IOException {
        String filter = """
                public Phase phase() { return Phase.PRE; }
                public Step apply(Context context) {
                    return Step.later(new CompletableFuture<>());
                }
                """;
        try (TestGateway gateway = with(filter, "[timeouts]\nexchange = \"300ms\"\n");
                TestClient client = gateway.client()) {
            assertEquals(504, client.get("/").status());
            assertTrue(origin.seen.isEmpty());
        }
    }

    @Test
    void a_filter_reads_and_replaces_bodies() throws IOException {
        String filter = """
                public Phase phase() { return Phase.PRE; }
                public int requestBodyBytesMax() { return 10; }
                public Step apply(Context context) {
                    if (context.request().body() != null) {
                        int length = context.request().body().remaining();
                        context.request().body(ByteBuffer.wrap(("len=" + length).getBytes()));
                    }
                    return Step.NEXT;
                }
                """;
        try (TestGateway gateway = with(filter, "")) {
            try (TestClient client = gateway.client()) {
                client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                        + "5\r\nhello\r\n0\r\n\r\n");
                assertEquals("POST / HTTP/1.1|len=5", client.read().body());
                assertEquals("5", origin.seen.get(0).header("Content-Length"));
                client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n"
                        + "hello world");
                assertEquals(413, client.read().status());
            }
        }
    }

    @Test
    void a_post_filter_replaces_a_response_body() throws IOException {
        String filter = """
                public Phase phase() { return Phase.POST; }
                public int responseBodyBytesMax() { return 1000; }
                public Step apply(Context context) {
                    int length = context.response().body().remaining();
                    context.response().body(ByteBuffer.wrap(("was " + length).getBytes()));
                    return Step.NEXT;
                }
                """;
        try (TestGateway gateway = with(filter, ""); TestClient client = gateway.client()) {
            assertEquals("was " + "GET / HTTP/1.1|".length(), client.get("/").body());
            origin.handler = (seen, socket, out) -> {
                TestOrigin.respond(out, 200, "", "x".repeat(2000));
                return true;
            };
            assertEquals(502, client.get("/").status());
        }
    }

    @Test
    void a_filter_that_throws_fails_its_request_only() throws IOException {
        String filter = """
                public Phase phase() { return Phase.PRE; }
                public Step apply(Context context) {
                    if (context.request().path().equals("/bad")) {
                        throw new IllegalStateException("oops");
                    }
                    return Step.NEXT;
                }
                """;
        try (TestGateway gateway = with(filter, "")) {
            try (TestClient client = gateway.client()) {
                TestClient.Answer bad = client.get("/bad");
                assertEquals(500, bad.status());
                assertTrue(!bad.body().contains("oops"), bad.body());
            }
            try (TestClient client = gateway.client()) {
                assertEquals(200, client.get("/good").status());
            }
        }
    }

    @Test
    void limits_have_their_statuses() throws IOException {
        try (TestGateway gateway = TestGateway.before(origin,
                "[limits]\nbody = \"1KiB\"\nline = \"512B\"\n")) {
            try (TestClient client = gateway.client()) {
                assertEquals(414, client.get("/" + "x".repeat(1000)).status());
                assertTrue(client.isClosed());
            }
            try (TestClient client = gateway.client()) {
                client.sendTolerant("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n"
                        + "x".repeat(2000));
                assertEquals(413, client.read().status());
            }
            try (TestClient client = gateway.client()) {
                client.sendTolerant("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
                        + "\r\n7d0\r\n" + "x".repeat(2000) + "\r\n0\r\n\r\n");
                assertEquals(413, client.read().status());
            }
            assertTrue(origin.seen.stream().noneMatch(TestOrigin.Seen::isComplete));
        }
    }
}
