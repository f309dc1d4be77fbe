// Who is to blame for an exchange that fails, and who learns of it.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLServerSocket;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Address;

abstract class BlameContract extends CarrierContract {
    @TempDir
    Path folder;

    private Carrier gateway(String originOptions, String more) {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n"
                + originOptions + "\n" + more);
    }

    private Carrier filtering(String source) throws IOException {
        Files.writeString(folder.resolve("Own.java"), "import wirespeed.gateway.core.*;\n"
                + "import java.util.concurrent.CompletableFuture;\n"
                + "public class Own implements Filter {\n"
                + "public String name() { return \"own\"; }\n"
                + "public int order() { return 5; }\n" + source + "}\n");
        return gateway("", "[filters]\nfolder = \"" + folder + "\"\n");
    }

    private static Address address(Carrier gateway) {
        return gateway.runtime.gateway().snapshot().origins().get("o").addresses().get(0);
    }

    private static void pause(int millis) throws IOException {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            throw new IOException(e);
        }
    }

    private static void await(CountDownLatch latch) throws IOException {
        try {
            assertTrue(latch.await(60, TimeUnit.SECONDS));
        } catch (InterruptedException e) {
            throw new IOException(e);
        }
    }

    @Test
    void a_connection_that_ends_after_long_work_is_a_failure_though_it_was_used_before()
            throws Exception {
        int clients = 6;
        CountDownLatch areWarm = new CountDownLatch(clients);
        origin.handler = (seen, out, socket) -> {
            if (seen.line().contains("/warm")) {
                // All at one time, so that each has a connection of its own.
                areWarm.countDown();
                await(areWarm);
                return RecordingOrigin.ordinary(seen, out, socket);
            }
            pause(600);
            return false;
        };
        Carrier gateway = gateway("retries = 0\nretry-budget = 0", "");
        List<RawClient> all = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            all.add(client(gateway));
            all.get(i).send("GET /warm HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        for (RawClient client : all) {
            assertEquals(200, client.read().status());
        }
        for (RawClient client : all) {
            client.send("GET /dies HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        for (RawClient client : all) {
            assertEquals(502, client.read().status());
        }
        assertTrue(address(gateway).breaker().isOpen());
        assertEquals(2 * clients, origin.seen.size());
    }

    @Test
    void an_origin_that_ends_each_used_connection_is_noticed() throws Exception {
        Set<Integer> used = ConcurrentHashMap.newKeySet();
        origin.handler = (seen, out, socket) -> used.add(seen.connection())
                && RecordingOrigin.ordinary(seen, out, socket);
        Carrier gateway = gateway("retries = 0\nretry-budget = 0", "");
        RawClient client = client(gateway);
        int failed = 0;
        for (int i = 0; i < 120; i++) {
            failed += client.get("/").status() == 502 ? 1 : 0;
        }
        assertTrue(failed >= 20, failed + " deaths were noticed");
    }

    @Test
    void a_filter_that_cannot_decide_fails_its_own_request_only() throws Exception {
        for (String direction : List.of("request", "response")) {
            Carrier gateway = filtering("public Phase phase() { return Phase."
                    + (direction.equals("request") ? "PRE" : "POST") + "; }\n"
                    + "public int " + direction + "BodyBytesMax() { return 1000; }\n"
                    + "public boolean shouldFilter(Context context) {\n"
                    + "return context.request().headers().get(\"X-Kind\").equals(\"a\"); }\n"
                    + "public Step apply(Context context) { return Step.NEXT; }\n");
            for (int i = 0; i < 6; i++) {
                RawClient client = client(gateway);
                client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
                assertEquals(500, client.read().status(), direction);
            }
            assertFalse(address(gateway).breaker().isOpen());
            RawClient client = client(gateway);
            client.send("POST /b HTTP/1.1\r\nHost: a\r\nX-Kind: a\r\nContent-Length: 3\r\n\r\nabc");
            assertEquals("POST /b HTTP/1.1|abc", client.read().body());
        }
    }

    @Test
    void an_error_of_a_filter_is_answered_in_every_place() throws Exception {
        Carrier gateway = filtering("""
                public Phase phase() { return Phase.PRE; }
                public boolean shouldFilter(Context context) {
                    assertNot(context, "/should");
                    return true;
                }
                private static void assertNot(Context context, String path) {
                    if (context.request().path().equals(path)) {
                        throw new AssertionError("in " + path);
                    }
                }
                public Step apply(Context context) {
                    assertNot(context, "/apply");
                    if (context.request().path().equals("/null")) {
                        return Step.later(null);
                    }
                    if (context.request().path().equals("/stage")) {
                        CompletableFuture<Step> failed = new CompletableFuture<>();
                        failed.completeExceptionally(new AssertionError("in /stage"));
                        return Step.later(failed);
                    }
                    if (context.request().path().equals("/later")) {
                        CompletableFuture<Step> soon = new CompletableFuture<>();
                        soon.completeOnTimeout(Step.NEXT, 20, java.util.concurrent.TimeUnit.MILLISECONDS);
                        return Step.later(soon);
                    }
                    return Step.NEXT;
                }
                """);
        Files.writeString(folder.resolve("Next.java"), """
                import wirespeed.gateway.core.*;
                public class Next implements Filter {
                    public Phase phase() { return Phase.PRE; }
                    public int order() { return 6; }
                    public Step apply(Context context) {
                        if (context.request().path().equals("/later")) {
                            throw new AssertionError("behind a later step");
                        }
                        return Step.NEXT;
                    }
                }
                """);
        gateway.close();
        gateway = gateway("", "[filters]\nfolder = \"" + folder + "\"\n");
        for (String path : List.of("/should", "/apply", "/null", "/stage", "/later")) {
            RawClient client = client(gateway);
            assertEquals(500, client.get(path).status(), path);
        }
        assertEquals(200, client(gateway).get("/fine").status());
    }

    @Test
    void an_error_of_a_body_transform_does_not_eject_the_origin() throws Exception {
        Carrier gateway = filtering("""
                public Phase phase() { return Phase.POST; }
                public Step apply(Context context) {
                    boolean isEnd = context.request().path().equals("/end");
                    context.response().transform(new BodyTransform() {
                        public java.nio.ByteBuffer chunk(java.nio.ByteBuffer piece) {
                            if (!isEnd) {
                                throw new AssertionError("at the first piece");
                            }
                            return piece;
                        }
                        public java.nio.ByteBuffer end() {
                            throw new AssertionError("at the end");
                        }
                    });
                    return Step.NEXT;
                }
                """);
        for (int i = 0; i < 12; i++) {
            RawClient.Answer answer = client(gateway).get(i % 2 == 0 ? "/begin" : "/end");
            assertTrue(answer.status() == 500 || !answer.isComplete(), answer.toString());
        }
        assertFalse(address(gateway).breaker().isOpen());
        assertEquals(12, origin.seen.size());
    }

    @Test
    void an_error_of_a_body_tap_does_not_eject_the_origin() throws Exception {
        Carrier gateway = filtering("""
                public Phase phase() { return Phase.POST; }
                public Step apply(Context context) {
                    context.tap(new BodyTap() {
                        public void chunk(java.nio.ByteBuffer piece) {
                            throw new AssertionError("at the first piece");
                        }
                        public void end(boolean isComplete) {
                        }
                    });
                    if (context.request().path().equals("/now")) {
                        return Step.NEXT;
                    }
                    CompletableFuture<Step> soon = new CompletableFuture<>();
                    soon.completeOnTimeout(Step.NEXT, 20, java.util.concurrent.TimeUnit.MILLISECONDS);
                    return Step.later(soon);
                }
                """);
        for (int i = 0; i < 12; i++) {
            RawClient client = client(gateway);
            RawClient.Answer answer = client.get(i % 2 == 0 ? "/now" : "/later");
            assertTrue(answer.status() == 500 || !answer.isComplete() && client.isClosed(), answer.toString());
        }
        assertEquals(0, address(gateway).failures());
        assertEquals(12, origin.seen.size());
    }

    @Test
    void what_a_filter_throws_is_in_the_log() throws Exception {
        Carrier gateway = filtering("""
                public Phase phase() { return Phase.PRE; }
                public Step apply(Context context) {
                    if (context.request().path().equals("/fails")) {
                        return Step.fail(503, new IllegalStateException("the table is locked"));
                    }
                    throw new IllegalStateException("the table is missing");
                }
                """);
        // A line a second for each filter: an earlier one may have been the last one's.
        try (LogEar log = new LogEar()) {
            awaitLine(log, () -> assertEquals(500, client(gateway).get("/throws").status()),
                    "own", "the table is missing");
            awaitLine(log, () -> assertEquals(503, client(gateway).get("/fails").status()),
                    "filter", "the table is locked");
        }
    }

    private static void awaitLine(LogEar log, Turn again, String... parts) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (log.said.stream().noneMatch(line -> List.of(parts).stream()
                .allMatch(part -> line.toLowerCase().contains(part)))) {
            assertTrue(System.nanoTime() < end, () -> log.said.toString());
            again.run();
        }
    }

    @Test
    void why_no_connection_to_an_origin_could_be_encrypted_is_in_the_log() throws Exception {
        Certificate certificate = new Certificate(folder);
        SSLServerSocket listener = closedLater((SSLServerSocket) certificate.context()
                .getServerSocketFactory().createServerSocket(0, 10,
                        InetAddress.getLoopbackAddress()));
        RecordingOrigin encrypted = closedLater(new RecordingOrigin(listener));
        Carrier gateway = start("[origins.shop]\naddresses = [\"127.0.0.1:" + encrypted.port()
                + "\"]\ntls = true\n");
        try (LogEar log = new LogEar()) {
            awaitLine(log, () -> assertEquals(502, client(gateway).get("/").status()),
                    "127.0.0.1:" + encrypted.port(), "certif");
        }
    }
}
