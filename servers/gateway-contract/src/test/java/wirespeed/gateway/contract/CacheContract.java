// The corners of the cache: whose validators they are, what is stale, what changes meanwhile.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Category;

abstract class CacheContract extends CarrierContract {
    private static final String ONCE_STALE = "Cache-Control: max-age=0\r\nETag: \"1\"\r\n";
    private final AtomicInteger asked = new AtomicInteger();
    @TempDir
    Path folder;
    private Carrier gateway;

    @BeforeEach
    void startGateway() {
        gateway = cached("", "");
    }

    private Carrier cached(String originMore, String more) {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n"
                + originMore + "[cache]\nenabled = true\ncollapse = \"2m\"\n" + more);
    }

    private RawClient client() throws IOException {
        return client(gateway);
    }

    private static RawClient.Answer get(RawClient client, String fields) throws IOException {
        client.send("GET /c HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n");
        return client.read();
    }

    private void answers(String headers) {
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, headers, "body " + asked.incrementAndGet());
            return true;
        };
    }

    @Test
    void a_304_for_the_clients_own_copy_does_not_refresh_an_older_one() throws Exception {
        answers("Cache-Control: max-age=0\r\nLast-Modified: Mon, 05 Jan 2026 00:00:00 GMT\r\n");
        RawClient client = client();
        assertEquals("body 1", get(client, "").body());
        origin.handler = (seen, out, socket) -> {
            out.write("HTTP/1.1 304 X\r\nCache-Control: max-age=60\r\n\r\n".getBytes());
            return true;
        };
        assertEquals(304, get(client,
                "If-Modified-Since: Sun, 01 Feb 2026 00:00:00 GMT\r\n").status());
        answers("Cache-Control: max-age=60\r\n");
        assertEquals("body 2", get(client, "").body());
    }

    private void confirms(String validators) {
        origin.handler = (seen, out, socket) -> {
            asked.incrementAndGet();
            out.write(("HTTP/1.1 304 X\r\nCache-Control: max-age=60\r\n" + validators + "\r\n").getBytes());
            return true;
        };
    }

    @Test
    void a_304_for_a_copy_of_the_client_that_is_the_stored_one_refreshes_that() throws Exception {
        String modified = "Last-Modified: Mon, 05 Jan 2026 00:00:00 GMT\r\n";
        for (String validator : new String[] {"ETag: \"a\"\r\n", "ETag: W/\"a\"\r\n", modified}) {
            gateway = cached("", "");
            asked.set(0);
            answers("Cache-Control: max-age=0\r\n" + validator);
            assertEquals("body 1", get(client(), "").body());
            confirms(validator);
            String own = validator.equals(modified) ? modified.replace("Last-Modified", "If-Modified-Since")
                    : validator.replace("ETag", "If-None-Match");
            assertEquals(304, get(client(), own).status(), validator);
            RawClient.Answer hit = get(client(), "");
            assertEquals("body 1", hit.body(), validator);
            assertEquals(304, get(client(), own).status(), validator);
            assertEquals(2, asked.get(), validator);
            assertEquals("max-age=60", hit.header("Cache-Control"), validator);
        }
    }

    @Test
    void a_304_for_a_client_that_says_who_it_is_leaves_the_stored_response_to_the_others() throws Exception {
        answers("Cache-Control: max-age=600\r\nETag: \"a\"\r\n");
        assertEquals("body 1", get(client(), "").body());
        confirms("ETag: \"a\"\r\n");
        String reload = "Authorization: Basic YTpi\r\nCache-Control: no-cache\r\n";
        assertEquals(304, get(client(), reload + "If-None-Match: \"a\"\r\n").status());
        assertEquals("body 1", get(client(), "").body());
        assertEquals("body 1", get(client(), reload).body());
        assertEquals("body 1", get(client(), "").body());
        assertEquals(3, asked.get());
        // A 304 that forbids storing does so for all clients.
        origin.handler = (seen, out, socket) -> {
            out.write("HTTP/1.1 304 X\r\nCache-Control: private\r\nETag: \"a\"\r\n\r\n".getBytes());
            return true;
        };
        assertEquals("body 1", get(client(), reload).body());
        answers("Cache-Control: max-age=600\r\n");
        assertEquals("body 4", get(client(), "").body());
    }

    @Test
    void a_304_for_another_copy_of_the_client_refreshes_nothing() throws Exception {
        String modified = "Last-Modified: Mon, 05 Jan 2026 00:00:00 GMT\r\n";
        answers("Cache-Control: max-age=0\r\nETag: \"a\"\r\n" + modified);
        assertEquals("body 1", get(client(), "").body());
        for (String of304 : new String[] {"ETag: \"b\"\r\n" + modified, "", modified.replace("05 Jan", "06 Jan")}) {
            confirms(of304);
            assertEquals(304, get(client(), "If-None-Match: \"a\", \"b\"\r\n").status(), of304);
            asked.set(1);
            answers("Cache-Control: max-age=0\r\nETag: \"a\"\r\n" + modified);
            assertEquals("body 2", get(client(), "").body(), of304);
        }
    }

    @Test
    void a_stale_response_stands_in_for_an_error_of_the_origin() throws Exception {
        answers("Cache-Control: max-age=0, stale-if-error=60\r\nETag: \"1\"\r\n");
        RawClient client = client();
        assertEquals("body 1", get(client, "").body());
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 503, "", "down");
            return true;
        };
        assertEquals("body 1", get(client, "").body());
        answers("");
        assertEquals("body 2", get(client, "").body());
    }

    @Test
    void a_response_that_must_be_revalidated_is_a_504_without_an_origin() throws Exception {
        // No connection is left: one that ends as it is used again is another failure.
        answers("Connection: close\r\nCache-Control: max-age=0, must-revalidate, stale-if-error=60\r\n"
                + "ETag: \"1\"\r\n");
        assertEquals("body 1", get(client(), "").body());
        origin.close();
        RawClient.Answer answer = get(client(), "");
        assertEquals(504, answer.status());
        assertEquals("504 Gateway Timeout: the stored response must be revalidated\n", answer.body());
        assertEquals(502, client().get("/other").status());
    }

    @Test
    void a_client_says_how_stale_a_response_it_takes() throws Exception {
        answers("Cache-Control: max-age=10\r\nAge: 100\r\nETag: \"1\"\r\n");
        RawClient client = client();
        assertEquals("body 1", get(client, "").body());
        assertEquals("body 1", get(client, "Cache-Control: max-stale=600\r\n").body());
        assertEquals("body 1", get(client, "Cache-Control: max-stale\r\n").body());
        assertEquals("body 2", get(client, "Cache-Control: max-stale=60\r\n").body());
        assertEquals("body 3", get(client, "Cache-Control: max-stale=0\r\n").body());
        assertEquals("body 4", get(client, "Cache-Control: max-stale=soon\r\n").body());
    }

    @Test
    void a_cache_that_understands_a_status_stores_what_others_may_not() throws Exception {
        answers("Cache-Control: max-age=600, no-store, must-understand\r\n");
        stored("", "");
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 299, "Cache-Control: max-age=600, no-store, must-understand\r\n",
                    "body " + asked.incrementAndGet());
            return true;
        };
        gateway = cached("", "");
        assertNotEquals(get(client(), "").body(), get(client(), "").body());
    }

    @Test
    void nothing_stored_is_young_enough_for_a_client_that_takes_no_age() throws Exception {
        answers("Cache-Control: max-age=600\r\n");
        String stored = stored("", "");
        assertNotEquals(stored, get(client(), "Cache-Control: max-age=0\r\n").body());
        // What it got is stored for the others.
        stored("", "Cache-Control: max-age=300\r\n");
    }

    @Test
    void a_stale_response_serves_the_others_while_one_request_asks() throws Exception {
        answers("Cache-Control: max-age=0, stale-while-revalidate=60\r\nETag: \"1\"\r\n");
        RawClient first = client();
        assertEquals("body 1", get(first, "").body());
        CountDownLatch isAsked = new CountDownLatch(1);
        CountDownLatch mayAnswer = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            isAsked.countDown();
            await(mayAnswer);
            RecordingOrigin.respond(out, 200, "Cache-Control: max-age=60\r\n", "fresh");
            return true;
        };
        first.send("GET /c HTTP/1.1\r\nHost: a\r\n\r\n");
        await(isAsked);
        assertEquals("body 1", get(client(), "").body());
        mayAnswer.countDown();
        assertEquals("fresh", first.read().body());
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        String next = get(client(), "").body();
        while (next.equals("body 1") && System.nanoTime() < end) {
            // A client may have its answer just before that is stored.
            next = get(client(), "").body();
        }
        assertEquals("fresh", next);
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await(60, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @Test
    void a_response_asked_for_before_a_change_is_not_stored_after_it() throws Exception {
        CountDownLatch isAsked = new CountDownLatch(1);
        CountDownLatch mayAnswer = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            if (seen.line().startsWith("GET") && asked.incrementAndGet() == 1) {
                isAsked.countDown();
                await(mayAnswer);
            }
            RecordingOrigin.respond(out, 200, "Cache-Control: max-age=60\r\n", "body " + asked);
            return true;
        };
        RawClient old = client();
        old.send("GET /c HTTP/1.1\r\nHost: a\r\n\r\n");
        await(isAsked);
        RawClient changer = client();
        changer.send("PUT /c HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assertEquals(200, changer.read().status());
        mayAnswer.countDown();
        assertEquals("body 1", old.read().body());
        assertEquals("body 2", get(changer, "").body());
    }

    @Test
    void vary_is_about_what_the_client_sent() throws Exception {
        answers("Cache-Control: max-age=60\r\nVary: X-Forwarded-Proto, Accept\r\n");
        RawClient client = client();
        assertEquals("body 1", get(client, "Accept: x\r\n").body());
        assertEquals("body 1", get(client, "Accept: x\r\n").body());
        assertEquals("body 2", get(client, "Accept: y\r\n").body());
    }

    @Test
    void vary_of_everything_is_never_stored() throws Exception {
        answers("Cache-Control: max-age=60\r\nVary: Accept, *\r\n");
        RawClient client = client();
        assertEquals("body 1", get(client, "").body());
        assertEquals("body 2", get(client, "").body());
    }

    /** Answers a request for validation by a 304 with these fields, and others as given. */
    private void validates(String headers, String of304) {
        origin.handler = (seen, out, socket) -> {
            if (seen.header("If-None-Match") != null) {
                out.write(("HTTP/1.1 304 X\r\n" + of304 + "\r\n").getBytes());
            } else {
                RecordingOrigin.respond(out, 200, headers, "body " + asked.incrementAndGet());
            }
            return true;
        };
    }

    @Test
    void a_cookie_of_a_304_goes_only_to_the_client_that_asked() throws Exception {
        validates(ONCE_STALE, "Set-Cookie: SID=kim\r\nCache-Control: max-age=60\r\n");
        assertEquals("body 1", get(client(), "").body());
        RawClient.Answer revalidated = get(client(), "");
        assertEquals("body 1", revalidated.body());
        assertEquals("SID=kim", revalidated.header("Set-Cookie"));
        RawClient.Answer hit = answerOfAHit();
        assertEquals("body 1", hit.body());
        assertNull(hit.header("Set-Cookie"));
    }

    @Test
    void a_cookie_that_binds_to_an_address_is_not_stored_by_a_304() throws Exception {
        gateway = cached("persistence = \"cookie\"\n", "");
        validates(ONCE_STALE, "Cache-Control: max-age=60\r\n");
        RawClient bound = client();
        String cookie = get(bound, "").header("Set-Cookie");
        assertEquals("body 2", get(bound, "Cookie: " + cookie.substring(0, cookie.indexOf(';'))
                + "\r\n").body());
        assertNotNull(get(client(), "").header("Set-Cookie"));
        RawClient.Answer hit = answerOfAHit();
        assertEquals("body 2", hit.body());
        assertNull(hit.header("Set-Cookie"));
    }

    /** A client may have its answer just before that is stored: who asks then asks the origin too. */
    private RawClient.Answer answerOfAHit() throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        RawClient.Answer answer = get(client(), "");
        while (answer.header("Set-Cookie") != null && System.nanoTime() < end) {
            answer = get(client(), "");
        }
        return answer;
    }

    @Test
    void an_origin_that_confirms_what_is_stored_keeps_its_connection() throws Exception {
        validates(ONCE_STALE, "Cache-Control: max-age=0\r\n");
        RawClient client = client();
        for (int i = 0; i < 5; i++) {
            assertEquals("body 1", get(client, "").body());
        }
        assertEquals(5, origin.seen.size());
        assertEquals(1, origin.connections.get());
    }

    @Test
    void an_error_in_whose_place_something_stored_is_sent_costs_no_connection() throws Exception {
        answers("Cache-Control: max-age=0, stale-if-error=60\r\nETag: \"1\"\r\n");
        RawClient client = client();
        assertEquals("body 1", get(client, "").body());
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 503, "", "down");
            return true;
        };
        for (int i = 0; i < 4; i++) {
            assertEquals("body 1", get(client, "").body());
        }
        assertEquals(5, origin.seen.size());
        assertEquals(1, origin.connections.get());
    }

    @Test
    void an_error_whose_body_does_not_come_holds_no_connection() throws Exception {
        gateway = cached("connections = 1\n", "");
        answers("Cache-Control: max-age=0, stale-if-error=60\r\nETag: \"1\"\r\n");
        RawClient client = client();
        assertEquals("body 1", get(client, "").body());
        CountDownLatch isOver = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            out.write("HTTP/1.1 503 X\r\nContent-Length: 10\r\n\r\ndown".getBytes());
            await(isOver);
            return false;
        };
        assertEquals("body 1", get(client, "").body());
        answers("");
        assertEquals("body 2", get(client, "").body());
        isOver.countDown();
    }

    @Test
    void a_get_with_a_body_is_neither_stored_nor_answered_from_the_cache() throws Exception {
        answers("Cache-Control: max-age=60\r\n");
        RawClient client = client();
        for (int i = 1; i <= 2; i++) {
            client.send("GET /c HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nevil=1");
            assertEquals("body " + i, client.read().body());
        }
        String stored = stored("", "");
        client.send("GET /c HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nevil=1");
        assertNotEquals(stored, client.read().body());
        assertEquals(stored, get(client, "").body());
    }

    @Test
    void what_a_proxy_says_of_a_certificate_is_not_stored_for_others() throws Exception {
        gateway = cached("", "[server]\ntrusted-proxies = [\"127.0.0.1\"]\n");
        answers("Cache-Control: max-age=60\r\n");
        assertEquals("body 1", get(client(), "X-Forwarded-Client-Cert: Hash=1\r\n").body());
        assertEquals("body 2", get(client(), "X-Forwarded-Client-Cert: Hash=2\r\n").body());
        answers("Cache-Control: max-age=60, public\r\n");
        stored("X-Forwarded-Client-Cert: Hash=1\r\n", "X-Forwarded-Client-Cert: Hash=2\r\n");
    }

    /** The responses to two requests; a client may get one just before the cache stores it. */
    private String stored(String fields, String others) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (System.nanoTime() < end) {
            String body = get(client(), fields).body();
            if (body.equals(get(client(), others).body())) {
                return body;
            }
        }
        return fail("nothing is stored");
    }

    @Test
    void a_304_that_is_private_takes_the_response_out_of_the_cache() throws Exception {
        for (String control : new String[] {"private, max-age=600", "no-store"}) {
            asked.set(0);
            gateway = cached("", "");
            validates(ONCE_STALE, "Cache-Control: " + control + "\r\n");
            assertEquals("body 1", get(client(), "").body());
            assertEquals("body 1", get(client(), "").body(), control);
            assertEquals("body 2", get(client(), "").body(), control);
        }
    }

    private static final String HEADERS_FILTER = "[[filter]]\ntype = \"headers\"\n"
            + "response-set = { Strict-Transport-Security = \"max-age=1\" }\n"
            + "response-remove = [\"X-Internal\"]\n";

    private static void assertFiltered(RawClient.Answer answer) {
        assertEquals("body 1", answer.body());
        assertEquals("max-age=1", answer.header("Strict-Transport-Security"));
        assertNull(answer.header("X-Internal"));
    }

    @Test
    void filters_change_a_revalidated_response_too() throws Exception {
        gateway = cached("", HEADERS_FILTER);
        validates(ONCE_STALE + "X-Internal: 1\r\n", "X-Internal: 2\r\n");
        assertFiltered(get(client(), ""));
        assertFiltered(get(client(), ""));
        assertEquals(2, origin.seen.size());
    }

    @Test
    void filters_change_a_response_that_stands_in_too() throws Exception {
        gateway = cached("", HEADERS_FILTER);
        answers("Cache-Control: max-age=0, stale-if-error=60\r\nETag: \"1\"\r\nX-Internal: 1\r\n");
        assertFiltered(get(client(), ""));
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 503, "", "down");
            return true;
        };
        assertFiltered(get(client(), ""));
        origin.handler = (seen, out, socket) -> false;
        assertFiltered(get(client(), ""));
    }

    @Test
    void a_filter_that_fails_on_a_response_that_stands_in_fails_once() throws Exception {
        Files.writeString(folder.resolve("Fails.java"), """
                import wirespeed.gateway.core.*;
                public class Fails implements Filter {
                    public Phase phase() { return Phase.POST; }
                    public int order() { return 5; }
                    public Step apply(Context context) {
                        if (context.response().isLocal()) {
                            throw new IllegalStateException("not this one");
                        }
                        return Step.NEXT;
                    }
                }
                """);
        gateway = cached("", "[filters]\nfolder = \"" + folder + "\"\n");
        answers("Cache-Control: max-age=0, stale-if-error=60\r\nETag: \"1\"\r\n");
        assertEquals("body 1", get(client(), "").body());
        origin.handler = (seen, out, socket) -> false;
        assertEquals(500, get(client(), "").status());
        assertEquals(500, get(client(), "").status());
    }

    @Test
    void a_response_that_varies_by_a_field_of_the_gateway_is_not_stored() throws Exception {
        for (String field : new String[] {"X-Forwarded-For", "forwarded", "Accept, Via",
            "X-Forwarded-Client-Cert"}) {
            asked.set(0);
            gateway = cached("", "");
            answers("Cache-Control: max-age=60\r\nVary: " + field + "\r\n");
            assertEquals("body 1", get(client(), "").body());
            assertEquals("body 2", get(client(), "").body(), field);
        }
    }

    @Test
    void a_client_gets_no_page_that_was_made_for_the_address_of_another() throws Exception {
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "Cache-Control: max-age=60\r\n"
                    + "Vary: X-Forwarded-For\r\n", "for " + seen.header("X-Forwarded-For"));
            return true;
        };
        assertEquals("for 127.0.0.1", get(client(), "").body());
        RawClient other = closedLater(new RawClient(gateway.address, "127.0.0.2"));
        assertEquals("for 127.0.0.2", get(other, "").body());
    }

    /** Begins an answer and does not end it. */
    private void answersWithoutEnd(String headers, int bytes) {
        origin.handler = (seen, out, socket) -> {
            asked.incrementAndGet();
            out.write(("HTTP/1.1 200 X\r\n" + headers + "\r\n").getBytes());
            out.write(new byte[bytes]);
            out.flush();
            // Until the gateway or the test closes.
            return socket.getInputStream().read() >= 0;
        };
    }

    /** Two requests for one target reach the origin, long before waiting would be given up. */
    private void assertBothReachTheOrigin() throws Exception {
        client().send("GET /c HTTP/1.1\r\nHost: a\r\n\r\n");
        awaitAsked(1);
        client().send("GET /c HTTP/1.1\r\nHost: a\r\n\r\n");
        awaitAsked(2);
        // A gateway that stops would wait for exchanges that have no end.
        origin.dropConnections();
    }

    private void awaitAsked(int count) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (asked.get() < count) {
            assertTrue(System.nanoTime() < end, "the origin was not asked " + count + " times");
            Thread.onSpinWait();
        }
    }

    @Test
    void nobody_waits_for_a_stream_of_events() throws Exception {
        gateway = start(collapsing("1MiB"));
        answersWithoutEnd("Content-Type: text/event-stream\r\nCache-Control: no-store\r\n", 10);
        assertBothReachTheOrigin();
    }

    @Test
    void nobody_waits_for_a_response_that_is_too_long_to_store() throws Exception {
        gateway = start(collapsing("1KiB"));
        answersWithoutEnd("Cache-Control: max-age=60\r\n", 4096);
        assertBothReachTheOrigin();
    }

    @Test
    void nobody_waits_for_a_response_that_says_it_is_too_long_to_store() throws Exception {
        gateway = start(collapsing("1KiB"));
        answersWithoutEnd("Cache-Control: max-age=60\r\nContent-Length: 4096\r\n", 10);
        assertBothReachTheOrigin();
    }

    private String collapsing(String entry) {
        return "[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n[cache]\n"
                + "enabled = true\ncollapse = \"10m\"\nentry = \"" + entry + "\"\n"
                + "[timeouts]\nexchange = \"20m\"\n";
    }

    @Test
    void what_a_filter_reads_whole_is_stored_whole() throws Exception {
        Files.writeString(folder.resolve("Reads.java"), """
                import wirespeed.gateway.core.*;
                public class Reads implements Filter {
                    public Phase phase() { return Phase.POST; }
                    public int order() { return 5; }
                    public int responseBodyBytesMax() { return 1000; }
                    public Step apply(Context context) { return Step.NEXT; }
                }
                """);
        gateway = cached("", "[filters]\nfolder = \"" + folder + "\"\n");
        answers("Cache-Control: max-age=60\r\n");
        assertEquals("body 1", get(client(), "").body());
        assertEquals("body 1", get(client(), "").body());
    }

    @Test
    void a_response_without_a_body_is_stored() throws Exception {
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 301, "Location: /" + asked.incrementAndGet()
                    + "\r\nCache-Control: max-age=60\r\n", "");
            return true;
        };
        assertEquals("/1", get(client(), "").header("Location"));
        assertEquals("/1", get(client(), "").header("Location"));
    }

    @Test
    void a_client_that_waited_for_a_validation_gets_the_whole_response() throws Exception {
        answers(ONCE_STALE);
        assertEquals("body 1", get(client(), "").body());
        CountDownLatch mayAnswer = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            await(mayAnswer);
            out.write("HTTP/1.1 304 X\r\nCache-Control: max-age=60\r\n\r\n".getBytes());
            return true;
        };
        RawClient leader = client();
        RawClient follower = client();
        leader.send("GET /c HTTP/1.1\r\nHost: a\r\n\r\n");
        follower.send("GET /c HTTP/1.1\r\nHost: a\r\n\r\n");
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (gateway.runtime.gateway().inFlight().get() < 2 && System.nanoTime() < end) {
            Thread.onSpinWait();
        }
        mayAnswer.countDown();
        assertEquals("body 1", leader.read().body());
        assertEquals("body 1", follower.read().body());
    }

    /** RFC 9110 §13.1.2: the star is any response that there is, also one without a tag. */
    @Test
    void a_client_that_has_anything_gets_a_304_from_the_cache() throws Exception {
        answers("Cache-Control: max-age=60\r\n");
        assertEquals("body 1", get(client(), "").body());
        assertEquals(304, get(client(), "If-None-Match: *\r\n").status());
        assertEquals("body 1", get(client(), "If-None-Match: \"a\"\r\n").body());
        assertEquals(1, origin.seen.size());
    }

    @Test
    void a_304_with_the_tag_of_another_response_updates_nothing() throws Exception {
        validates(ONCE_STALE, "ETag: \"2\"\r\nCache-Control: max-age=60\r\n");
        assertEquals("body 1", get(client(), "").body());
        RawClient.Answer confirmed = get(client(), "");
        assertEquals("body 1", confirmed.body());
        assertEquals("\"1\"", confirmed.header("ETag"));
        assertEquals("body 2", get(client(), "").body());
    }

    @Test
    void a_304_may_say_the_tag_weakly_and_need_not_say_when() throws Exception {
        validates(ONCE_STALE + "Date: Mon, 05 Jan 2026 00:00:00 GMT\r\n",
                "ETag: W/\"1\"\r\nCache-Control: max-age=60\r\n");
        for (int i = 0; i < 3; i++) {
            assertEquals("body 1", get(client(), "").body());
        }
        assertEquals(2, origin.seen.size());
    }

    @Test
    void a_change_by_a_name_in_another_form_is_one_by_the_name() throws Exception {
        answers("Cache-Control: max-age=60\r\n");
        for (String changed : new String[] {"a.", "A.", "a:80", "a.:80", "A:"}) {
            String before = stored("", "");
            RawClient changer = client();
            changer.send("PUT /c HTTP/1.1\r\nHost: " + changed + "\r\nContent-Length: 0\r\n\r\n");
            assertEquals(200, changer.read().status());
            assertNotEquals(before, get(client(), "").body(), changed);
        }
    }

    @Test
    void a_change_is_one_by_a_name_whose_port_is_empty() throws Exception {
        answers("Cache-Control: max-age=60\r\n");
        for (String changed : new String[] {"a:", "a", "a:80"}) {
            String before = ofEmptyPort();
            assertEquals(before, ofEmptyPort());
            RawClient changer = client();
            changer.send("PUT /c HTTP/1.1\r\nHost: " + changed + "\r\nContent-Length: 0\r\n\r\n");
            assertEquals(200, changer.read().status());
            assertNotEquals(before, ofEmptyPort(), changed);
        }
    }

    private String ofEmptyPort() throws Exception {
        RawClient client = client();
        client.send("GET /c HTTP/1.1\r\nHost: a:\r\n\r\n");
        return client.read().body();
    }

    @Test
    void a_response_for_a_name_with_a_dot_is_for_that_name_alone() throws Exception {
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "Cache-Control: max-age=60\r\n",
                    "http://" + seen.header("Host"));
            return true;
        };
        for (String host : new String[] {"a.", "a"}) {
            RawClient client = client();
            client.send("GET /c HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
            assertEquals("http://" + host, client.read().body());
        }
    }

    @Test
    void uris_are_dropped_as_they_are_written_and_encoded() throws Exception {
        gateway = cached("", "[admin]\nlisten = \"127.0.0.1:0\"\n");
        answers("Cache-Control: max-age=60\r\n");
        for (String prefix : new String[] {"http://a/c%20d", "http%3A%2F%2Fa%2Fc%2520d",
            "http://A./c"}) {
            RawClient client = client();
            RawClient.Answer first = client.get("/c%20d");
            // A client may have its answer just before that is stored.
            RawClient.Answer last = client.get("/c%20d");
            while (!last.body().equals(first.body())) {
                first = last;
                last = client.get("/c%20d");
            }
            RawClient admin = closedLater(new RawClient(gateway.runtime.adminAddress()));
            admin.send("DELETE /cache?" + prefix + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assertEquals("1 responses dropped\n", admin.read().body(), prefix);
        }
    }

    @Test
    void a_head_that_shows_another_response_takes_the_stored_one_out_of_the_cache() throws Exception {
        answers("Cache-Control: max-age=600\r\nETag: \"1\"\r\n");
        String first = stored("", "");
        origin.handler = (seen, out, socket) -> {
            boolean isHead = seen.line().startsWith("HEAD");
            out.write(("HTTP/1.1 200 X\r\nCache-Control: max-age=600\r\nETag: \"2\"\r\nContent-Length: 3\r\n\r\n"
                    + (isHead ? "" : "new")).getBytes());
            return true;
        };
        assertEquals(first, get(client(), "").body());
        RawClient client = client();
        client.send("HEAD /c HTTP/1.1\r\nHost: a\r\nCache-Control: no-cache\r\n\r\n");
        assertEquals("\"2\"", client.read(true).header("ETag"));
        assertEquals("new", get(client, "").body());
    }

    @Test
    void an_answer_wanted_from_the_cache_only_blames_no_filter() throws Exception {
        RawClient client = client();
        client.send("GET /none HTTP/1.1\r\nHost: a\r\nCache-Control: only-if-cached\r\n\r\n");
        assertEquals(504, client.read().status());
        assertEquals(0, origin.seen.size());
        assertEquals(1, count(Category.LIMIT));
        assertEquals(0, count(Category.FILTER_ERROR));
    }

    private long count(Category category) {
        return gateway.runtime.gateway().meters().stream().mapToLong(one -> one.get(category, 5)).sum();
    }
}
