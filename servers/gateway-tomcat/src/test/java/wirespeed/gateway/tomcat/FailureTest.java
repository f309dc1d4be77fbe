// Failures on either side end as they should, and nothing leaks.
package wirespeed.gateway.tomcat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.core.Category;

class FailureTest {
    private TestOrigin origin;

    @BeforeEach
    void open() throws IOException {
        origin = new TestOrigin();
    }

    @AfterEach
    void close() throws IOException {
        origin.close();
    }

    private static void await(BooleanSupplier condition, String what) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, what);
            Thread.onSpinWait();
        }
    }

    @Test
    void an_origin_whose_only_address_is_down_is_a_502_and_is_asked_again() throws IOException {
        origin.close();
        try (TestGateway gateway = TestGateway.before(origin, "");
                TestClient client = gateway.client()) {
            // More often than an address among others would be asked before its ejection.
            for (int i = 0; i < 8; i++) {
                assertEquals(502, client.get("/").status());
            }
        }
    }

    @Test
    void an_address_without_connections_is_forgotten() throws Exception {
        try (TestGateway gateway = TestGateway.before(origin, "");
                TestClient client = gateway.client()) {
            OriginPool pool = (OriginPool) gateway.runtime.gateway().pools().get(0);
            assertEquals(200, client.get("/").status());
            pool.forget(System.nanoTime());
            assertTrue(pool.describe().contains("\"open\":1"), pool.describe());
            origin.handler = (seen, socket, out) -> {
                TestOrigin.respond(out, 200, "Connection: close\r\n", "");
                return false;
            };
            assertEquals(200, client.get("/").status());
            await(() -> {
                pool.forget(System.nanoTime());
                return pool.describe().equals("{}");
            }, "not forgotten");
        }
    }

    @Test
    void a_slow_origin_is_a_504() throws IOException {
        CountDownLatch end = new CountDownLatch(1);
        origin.handler = (seen, socket, out) -> !end.await(60, TimeUnit.SECONDS);
        try (TestGateway gateway = TestGateway.before(origin, "response = \"200ms\"\n");
                TestClient client = gateway.client()) {
            assertEquals(504, client.get("/").status());
        } finally {
            end.countDown();
        }
    }

    @Test
    void a_body_that_is_broken_off_never_looks_complete() throws IOException {
        origin.handler = (seen, socket, out) -> {
            TestOrigin.write(out, seen.line().contains("/chunked")
                    ? "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
                    : "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + "x".repeat(50_000));
            return false;
        };
        try (TestGateway gateway = TestGateway.before(origin, "")) {
            for (String path : new String[] {"/length", "/chunked"}) {
                try (TestClient client = gateway.client()) {
                    TestClient.Answer answer = client.get(path);
                    assertFalse(answer.status() == 200 && answer.isComplete(), answer.head());
                }
            }
        }
    }

    @Test
    void malformed_chunks_of_an_origin_are_not_passed_on() throws IOException {
        String[] bad = {"-5\r\nhello\r\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "0x5\r\nhello\r\n",
            "5\r\nhelloEXTRA\r\n0\r\n\r\n", " 5\r\nhello\r\n0\r\n\r\n"};
        try (TestGateway gateway = TestGateway.before(origin, "")) {
            for (String body : bad) {
                origin.handler = (seen, socket, out) -> {
                    TestOrigin.write(out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                            + body);
                    return true;
                };
                try (TestClient client = gateway.client()) {
                    TestClient.Answer answer = client.get("/");
                    assertFalse(answer.status() == 200 && answer.isComplete(), body);
                }
            }
        }
    }

    @Test
    void a_request_that_is_broken_off_never_looks_complete_to_the_origin() throws Exception {
        CountDownLatch ended = new CountDownLatch(1);
        origin.handler = (seen, socket, out) -> {
            ended.countDown();
            return false;
        };
        try (TestGateway gateway = TestGateway.before(origin, "")) {
            try (TestClient client = gateway.client()) {
                client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                        + "5\r\nhello\r\n5\r\nhe");
                client.socket.shutdownOutput();
                assertTrue(client.read().status() != 200);
            }
            await(() -> gateway.runtime.gateway().inFlight().get() == 0, "the exchange ends");
            assertTrue(ended.await(60, TimeUnit.SECONDS));
            assertFalse(origin.seen.get(0).isComplete());
        }
    }

    @Test
    void malformed_chunks_of_a_client_are_a_400() throws IOException {
        try (TestGateway gateway = TestGateway.before(origin, "");
                TestClient client = gateway.client()) {
            client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                    + "zz\r\nhello\r\n0\r\n\r\nGET /behind HTTP/1.1\r\nHost: a\r\n\r\n");
            assertEquals(400, client.read().status());
            assertTrue(client.isClosed());
            assertTrue(origin.seen.stream().noneMatch(TestOrigin.Seen::isComplete));
        }
    }

    @Test
    void a_client_that_goes_away_frees_its_thread_and_its_connection() throws IOException {
        origin.handler = (seen, socket, out) -> {
            TestOrigin.write(out, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
            byte[] piece = new byte[65_536];
            for (int i = 0; i < 15_000; i++) {
                out.write(piece);
            }
            return true;
        };
        try (TestGateway gateway = TestGateway.before(origin, "")) {
            try (TestClient client = gateway.client()) {
                client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                assertTrue(client.in.readNBytes(100_000).length > 0);
            }
            await(() -> gateway.runtime.gateway().inFlight().get() == 0, "the exchange ends");
            assertEquals(1, gateway.runtime.gateway().meters().get(0).get(
                    Category.CLIENT_GONE, 2));
            assertTrue(gateway.runtime.gateway().pools().get(0).describe().contains("\"open\":0"));
        }
    }

    @Test
    void an_answer_before_the_whole_request_is_delivered() throws IOException {
        origin.readsBodies = false;
        CountDownLatch answered = new CountDownLatch(1);
        origin.handler = (seen, socket, out) -> {
            TestOrigin.respond(out, 413, "", "too much");
            return !answered.await(60, TimeUnit.SECONDS);
        };
        try (TestGateway gateway = TestGateway.before(origin, "");
                TestClient client = gateway.client()) {
            Thread sender = new Thread(() -> client.sendTolerant("POST / HTTP/1.1\r\nHost: a\r\n"
                    + "Content-Length: 50000000\r\n\r\n" + "x".repeat(20_000_000)));
            sender.setDaemon(true);
            sender.start();
            TestClient.Answer answer = client.read();
            assertEquals(413, answer.status());
            assertEquals("too much", answer.body());
            assertEquals("close", answer.header("Connection"));
        } finally {
            answered.countDown();
        }
    }

    @Test
    void a_small_idempotent_body_is_sent_again_after_a_stale_connection() throws IOException {
        try (TestGateway gateway = TestGateway.before(origin, "");
                TestClient client = gateway.client()) {
            for (int i = 0; i < 10; i++) {
                client.send("PUT /" + i + " HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
                assertEquals("PUT /" + i + " HTTP/1.1|body", client.read().body());
                origin.dropConnections();
            }
        }
    }

    @Test
    void exchanges_end_before_the_process_does() throws Exception {
        CountDownLatch arrived = new CountDownLatch(1);
        CountDownLatch go = new CountDownLatch(1);
        origin.handler = (seen, socket, out) -> {
            arrived.countDown();
            go.await(60, TimeUnit.SECONDS);
            TestOrigin.respond(out, 200, "", "late");
            return true;
        };
        try (TestGateway gateway = TestGateway.before(origin, "");
                TestClient idle = gateway.client(); TestClient client = gateway.client()) {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assertTrue(arrived.await(60, TimeUnit.SECONDS));
            int[] cut = {-1};
            Thread stopper = new Thread(() -> cut[0] = gateway.stop(60_000));
            stopper.start();
            assertTrue(idle.isClosed());
            go.countDown();
            TestClient.Answer answer = client.read();
            assertEquals("late", answer.body());
            stopper.join();
            assertEquals(0, cut[0]);
        }
    }
}
