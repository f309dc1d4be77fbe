// Hedging: a second address is asked before the first has failed; gateway-netty only.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.netty.Main;
import wirespeed.gateway.runtime.Launcher;

@Timeout(120)
class NettyHedgeTest extends CarrierContract {
    private static final int REQUESTS = 4;
    /** Requests whose second attempt is to win over a silent address. */
    private static final int HEDGED = 2;

    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("server.transport", "epoll", "server.threads", "1");
    }

    private Carrier gateway(int beside, String more) {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + beside + "\", \"127.0.0.1:"
                + origin.port() + "\"]\nbalance = \"round-robin\"\nresponse = \"60s\"\n"
                + "retry-budget = 100\nhedge-after = \"20ms\"\n" + more);
    }

    private static long count(Carrier gateway, Meters.Count count) {
        return gateway.runtime.gateway().meters().stream().mapToLong(m -> m.get(count)).sum();
    }

    /** Takes requests and answers none, until the gateway gives up the connection. */
    private RecordingOrigin silent(CountDownLatch cancelled) throws IOException {
        RecordingOrigin silent = closedLater(new RecordingOrigin());
        silent.handler = (seen, out, socket) -> {
            assertEquals(-1, socket.getInputStream().read());
            cancelled.countDown();
            return false;
        };
        return silent;
    }

    @Test
    void the_first_answer_counts_and_the_other_connection_is_closed() throws Exception {
        CountDownLatch cancelled = new CountDownLatch(HEDGED);
        RecordingOrigin silent = silent(cancelled);
        Carrier gateway = gateway(silent.port(), "");
        RawClient client = client(gateway);
        int asked = 0;
        // Chance and a busy machine decide how many of the requests begin at the silent address.
        for (; count(gateway, Meters.Count.HEDGES_WON) < HEDGED; asked++) {
            assertTrue(asked < 1000, "no request begins at the silent address");
            client.send("PUT /p HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
            assertEquals("PUT /p HTTP/1.1|hello", client.read().body());
        }
        assertTrue(cancelled.await(60, TimeUnit.SECONDS), "the slower address was not notified");
        long won = count(gateway, Meters.Count.HEDGES_WON);
        while (silent.seen.size() < won) {
            // Its threads may read requests after the gateway has abandoned them.
            Thread.sleep(1);
        }
        // Where the quick address was the slower one for once, the silent one was asked, too.
        long hedges = count(gateway, Meters.Count.HEDGES);
        assertTrue(silent.seen.size() <= hedges, silent.seen.size() + " requests, " + hedges + " hedges");
        assertTrue(silent.seen.stream().allMatch(seen -> seen.body().equals("hello")));
        assertEquals(asked, origin.seen.size());
    }

    @Test
    void a_quick_answer_is_not_hedged_and_a_post_never() throws Exception {
        CountDownLatch mayAnswer = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            if (seen.line().startsWith("POST")) {
                RecordingOrigin.awaitQuietly(mayAnswer);
            }
            return RecordingOrigin.ordinary(seen, out, socket);
        };
        RecordingOrigin other = closedLater(new RecordingOrigin());
        other.handler = origin.handler;
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + other.port()
                + "\", \"127.0.0.1:" + origin.port() + "\"]\nhedge-after = \"30s\"\n"
                + "[origins.p]\naddresses = [\"127.0.0.1:" + other.port() + "\", \"127.0.0.1:"
                + origin.port() + "\"]\nhedge-after = \"1ms\"\n[[route]]\nprefix = \"/post\"\n"
                + "origins = [\"p\"]\n[[route]]\norigins = [\"o\"]\n");
        assertEquals(200, client(gateway).get("/").status());
        RawClient client = client(gateway);
        client.send("POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        while (origin.seen.size() + other.seen.size() < 2) {
            Thread.sleep(1);
        }
        Thread.sleep(50);
        mayAnswer.countDown();
        assertEquals(200, client.read().status());
        assertEquals(2, origin.seen.size() + other.seen.size());
        assertEquals(0, count(gateway, Meters.Count.HEDGES));
    }

    @Test
    void when_either_attempt_fails_the_other_one_answers() throws Exception {
        AtomicInteger asked = new AtomicInteger();
        RecordingOrigin.Handler slow = (seen, out, socket) -> {
            // The first of two waits until the second was asked; one of them breaks off.
            boolean isFirst = asked.incrementAndGet() % 2 == 1;
            for (int i = 0; isFirst && asked.get() % 2 == 1 && i < 60_000; i++) {
                pause();
            }
            boolean breaksOff = seen.line().contains(isFirst ? "/first-breaks" : "/second-breaks");
            if (breaksOff) {
                return false;
            }
            pause();
            return RecordingOrigin.ordinary(seen, out, socket);
        };
        origin.handler = slow;
        RecordingOrigin other = closedLater(new RecordingOrigin());
        other.handler = slow;
        Carrier gateway = gateway(other.port(), "");
        RawClient client = client(gateway);
        for (String path : new String[] {"/first-breaks", "/second-breaks", "/first-breaks"}) {
            assertEquals("GET " + path + " HTTP/1.1|", client.get(path).body());
        }
        assertEquals(6, asked.get(), "one attempt more for each, and no retry");
        assertEquals(3, count(gateway, Meters.Count.HEDGES));
    }

    private static void pause() {
        try {
            Thread.sleep(1);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @Test
    void an_unwanted_status_waits_for_the_other_attempt() throws Exception {
        AtomicInteger asked = new AtomicInteger();
        RecordingOrigin.Handler both = (seen, out, socket) -> {
            boolean isFirst = asked.incrementAndGet() % 2 == 1;
            for (int i = 0; isFirst && asked.get() % 2 == 1 && i < 60_000; i++) {
                pause();
            }
            for (int i = 0; !isFirst && i < 50; i++) {
                pause();
            }
            RecordingOrigin.respond(out, isFirst ? 503 : 200, "", isFirst ? "busy" : "well");
            return true;
        };
        origin.handler = both;
        RecordingOrigin other = closedLater(new RecordingOrigin());
        other.handler = both;
        Carrier gateway = gateway(other.port(), "retry-status = [\"503\"]\n");
        RawClient client = client(gateway);
        for (int i = 0; i < REQUESTS; i++) {
            assertEquals("well", client.get("/").body());
        }
        assertEquals(2 * REQUESTS, asked.get());
    }

    @Test
    void hedging_stays_within_the_retry_budget() throws Exception {
        RecordingOrigin.Handler slow = (seen, out, socket) -> {
            for (int i = 0; i < 30; i++) {
                pause();
            }
            return RecordingOrigin.ordinary(seen, out, socket);
        };
        origin.handler = slow;
        RecordingOrigin other = closedLater(new RecordingOrigin());
        other.handler = slow;
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + other.port()
                + "\", \"127.0.0.1:" + origin.port() + "\"]\nretry-budget = 2\n"
                + "hedge-after = \"1ms\"\n");
        RawClient client = client(gateway);
        for (int i = 0; i < 20; i++) {
            assertEquals(200, client.get("/").status());
        }
        long hedges = count(gateway, Meters.Count.HEDGES);
        assertTrue(hedges >= 1 && hedges <= 3, hedges + " of 20 requests");
    }

    @Test
    void a_stream_of_http_2_that_lost_is_reset() throws Exception {
        CountDownLatch reset = new CountDownLatch(HEDGED);
        RawHttp2Origin silent = closedLater(new RawHttp2Origin(connection -> {
            connection.frame(RawHttp2Origin.SETTINGS, 0, 0);
            while (true) {
                if (connection.read().type() == RawHttp2Origin.RST_STREAM) {
                    reset.countDown();
                }
            }
        }));
        RawHttp2Origin quick = closedLater(new RawHttp2Origin(connection -> {
            connection.frame(RawHttp2Origin.SETTINGS, 0, 0);
            while (true) {
                connection.answer(connection.await(RawHttp2Origin.HEADERS).stream(), "quick");
            }
        }));
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + silent.port()
                + "\", \"127.0.0.1:" + quick.port() + "\"]\nbalance = \"round-robin\"\n"
                + "response = \"60s\"\nretry-budget = 100\nhedge-after = \"20ms\"\n"
                + "http2 = \"prior-knowledge\"\n");
        RawClient client = client(gateway);
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (reset.getCount() > 0) {
            // Which address is asked first is chance.
            assertTrue(System.nanoTime() < end, "the slower address was not notified");
            assertEquals("quick", client.get("/").body());
        }
        assertTrue(silent.resets.stream().allMatch(one -> one.code() == 8), "CANCEL");
        assertEquals(1, silent.connections.get(), "the connection stays");
    }

    @Test
    void hedging_without_retries_is_refused() {
        RuntimeException refused = assertThrows(RuntimeException.class,
                () -> gateway(1, "retries = 0\n"));
        assertTrue(refused.getMessage().contains("hedge-after needs retries"),
                refused.getMessage());
    }
}
