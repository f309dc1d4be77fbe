// The decisions of an exchange's state machine, seen from outside: the same on both carriers.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Category;

abstract class ExchangeContract extends CarrierContract {
    private static final String NEVER =
            "return Step.later(new java.util.concurrent.CompletableFuture<Step>());";

    @TempDir
    Path folder;

    /** A filter of this phase; the last part of its class is what is given. */
    private void filter(String name, String phase, String rest) throws IOException {
        Files.writeString(folder.resolve(name + ".java"), "import java.nio.ByteBuffer;\n"
                + "import wirespeed.gateway.core.*;\npublic class " + name + " implements Filter {\n"
                + "public Phase phase() { return Phase." + phase + "; }\n"
                + "public int order() { return " + name.length() + "; }\n" + rest + "\n}\n");
    }

    private static String apply(String body) {
        return "public Step apply(Context context) { " + body + " }";
    }

    /** Asks the origin below /o; other paths have no route. */
    private Carrier gateway(String more) {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\nretries = 0\n"
                + "[[route]]\nprefix = \"/o\"\norigins = [\"o\"]\n" + more
                + "[filters]\nfolder = \"" + folder + "\"\n");
    }

    private static Address address(Carrier gateway) {
        return gateway.runtime.gateway().snapshot().origins().get("o").addresses().get(0);
    }

    private static long ended(Carrier gateway, Category category, int statusClass) {
        return gateway.runtime.gateway().meters().stream()
                .mapToLong(meters -> meters.get(category, statusClass)).sum();
    }

    /** Waits until the one exchange has ended so. */
    private static void awaitEnded(Carrier gateway, Category category, int statusClass) {
        long end = System.nanoTime() + 60_000_000_000L;
        while (ended(gateway, category, statusClass) == 0) {
            assertTrue(System.nanoTime() < end, () -> "the exchanges have ended as " + Stream.of(Category.values())
                    .filter(one -> IntStream.range(0, 6).anyMatch(at -> ended(gateway, one, at) > 0)).toList());
            LockSupport.parkNanos(5_000_000);
        }
        assertEquals(1, ended(gateway, category, statusClass));
    }

    @Test
    void a_response_that_may_not_go_on_speaks_against_its_address() throws Exception {
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "Connection: Content-Length\r\n", "");
            return false;
        };
        Carrier gateway = gateway("");
        for (int i = 0; i < 5; i++) {
            RawClient.Answer answer = client(gateway).get("/o");
            assertEquals(502, answer.status());
            // Only the log says why.
            assertEquals("502 Bad Gateway\n", answer.body());
        }
        assertTrue(address(gateway).breaker().isOpen());
    }

    @Test
    void a_request_that_is_shed_has_failed_for_its_filters() throws Exception {
        filter("Fails", "ERROR", apply("context.response().headers().set(\"X-Error\", \"seen\");"
                + "return Step.NEXT;"));
        filter("Post", "POST", apply("context.response().headers().set(\"X-Post\", \"seen\");"
                + "return Step.NEXT;"));
        CountDownLatch mayAnswer = new CountDownLatch(1);
        origin.handler = RecordingOrigin.after(mayAnswer);
        Carrier gateway = gateway("[limits]\nin-flight = 1\n");
        RawClient waiting = client(gateway);
        waiting.send("GET /o HTTP/1.1\r\nHost: a\r\n\r\n");
        while (origin.seen.isEmpty()) {
            Thread.sleep(5);
        }
        RawClient.Answer shed = client(gateway).get("/o");
        mayAnswer.countDown();
        assertEquals(503, shed.status());
        assertEquals("seen", shed.header("X-Error"));
        assertNull(shed.header("X-Post"));
        assertEquals("too many exchanges\n", shed.body());
        assertEquals("seen", waiting.read().header("X-Post"));
    }

    @Test
    void a_filter_that_is_late_behind_a_response_is_to_blame_and_not_the_origin() throws Exception {
        filter("Late", "POST", apply("System.setProperty(\"test.filter.waits\", context.request().path());"
                + NEVER));
        Carrier gateway = gateway("timeout = \"600ms\"\n");
        String asked = "";
        // On a busy machine the time may be over before the filter runs.
        for (int i = 0; !asked.equals(System.getProperty("test.filter.waits")); i++) {
            asked = "/o/" + i;
            assertEquals(504, client(gateway).get(asked).status());
        }
        awaitEnded(gateway, Category.FILTER_ERROR, 5);
    }

    @Test
    void a_filter_of_the_phase_error_that_is_late_changes_nothing() throws Exception {
        filter("Late", "ERROR", apply(NEVER));
        Carrier gateway = gateway("[timeouts]\nexchange = \"2s\"\nbody-idle = \"300ms\"\n");
        RawClient lost = client(gateway);
        lost.send("GET /elsewhere HTTP/1.1\r\nHost: a\r\n\r\n");
        RawClient slow = client(gateway);
        slow.send("POST /o HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
        assertEquals(404, lost.read().status());
        assertEquals(408, slow.read().status());
    }

    @Test
    void a_late_exchange_ends_though_filters_answer_it_and_others_never_decide() throws Exception {
        filter("Answers", "ERROR", apply("return Step.respond(Response.of(418, \"text/plain\", \"late\"));"));
        filter("Late", "POST", apply(NEVER));
        CountDownLatch mayAnswer = new CountDownLatch(1);
        origin.handler = RecordingOrigin.after(mayAnswer);
        Carrier gateway = gateway("[timeouts]\nexchange = \"2s\"\nbody-idle = \"300ms\"\n");
        RawClient unanswered = client(gateway);
        unanswered.send("GET /o HTTP/1.1\r\nHost: a\r\n\r\n");
        RawClient slow = client(gateway);
        slow.send("POST /o HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
        assertEquals(418, unanswered.read().status());
        assertEquals(418, slow.read().status());
        mayAnswer.countDown();
    }

    @Test
    void a_request_body_that_is_late_or_malformed_has_failed_for_its_filters() throws Exception {
        filter("Fails", "ERROR", apply("context.response().headers().set(\"X-Error\", \"seen\");"
                + "return Step.NEXT;"));
        Carrier gateway = gateway("[timeouts]\nbody-idle = \"300ms\"\n");
        RawClient client = client(gateway);
        client.send("POST /o HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
        RawClient.Answer late = client.read();
        assertEquals("seen", late.header("X-Error"), late.toString());
        assertEquals("408 Request Timeout: request body did not arrive in time\n", late.body());
        assertTrue(client.isClosed());
        client = client(gateway);
        client.send("POST /o HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
        RawClient.Answer malformed = client.read();
        assertEquals(400, malformed.status());
        assertEquals("seen", malformed.header("X-Error"), malformed.toString());
        assertTrue(client.isClosed());
    }

    /** Sends byte after byte until the gateway has had enough. */
    private static void trickle(RawClient client) {
        Thread trickle = new Thread(() -> {
            try {
                for (int i = 0; i < 3000; i++) {
                    client.send("x");
                    Thread.sleep(20);
                }
            } catch (IOException | InterruptedException refused) {
                // The other thread has read the answer.
            }
        });
        trickle.setDaemon(true);
        trickle.start();
    }

    @Test
    void an_address_that_does_not_answer_within_the_exchange_is_ejected() throws Exception {
        origin.handler = (seen, out, socket) -> socket.getInputStream().read() >= 0;
        Carrier gateway = gateway("timeout = \"300ms\"\n");
        // On a busy machine the time may be over before the request is sent.
        for (int i = 0; i < 5 || i < 50 && !address(gateway).breaker().isOpen(); i++) {
            assertEquals(504, client(gateway).get("/o").status());
        }
        assertTrue(address(gateway).breaker().isOpen());
    }

    @Test
    void an_upload_that_takes_longer_than_the_exchange_speaks_against_no_address() throws Exception {
        Carrier gateway = gateway("timeout = \"400ms\"\n[timeouts]\nbody-rate = \"0B\"\n");
        RawClient slow = client(gateway);
        slow.send("POST /o HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
        trickle(slow);
        assertEquals(504, slow.read().status());
        assertEquals(0, address(gateway).failures());
    }

    @Test
    void such_an_upload_speaks_against_no_second_address_either() throws Exception {
        // Taken, and without a listener.
        Socket closed = closedLater(new Socket());
        closed.bind(new InetSocketAddress("127.0.0.1", 0));
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + closed.getLocalPort()
                + "\", \"127.0.0.1:" + origin.port() + "\"]\n[timeouts]\nexchange = \"600ms\"\n"
                + "body-rate = \"0B\"\n");
        List<Address> addresses = gateway.runtime.gateway().snapshot().origins().get("o").addresses();
        // Until an upload is a second attempt: which address is asked first is random.
        for (int i = 0; i < 40 && addresses.get(0).failures() == 0; i++) {
            RawClient slow = client(gateway);
            slow.send("POST /o HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
            trickle(slow);
            assertEquals(504, slow.read().status());
        }
        assertTrue(addresses.get(0).failures() > 0);
        assertEquals(0, addresses.get(1).failures());
    }

    @Test
    void an_origin_that_takes_nothing_of_an_upload_is_blamed_for_the_end_of_the_exchange() throws Exception {
        CountDownLatch isOver = new CountDownLatch(1);
        closedLater(isOver::countDown);
        origin.readsBodies = false;
        origin.handler = RecordingOrigin.after(isOver);
        // It may take nothing for longer than the exchange has.
        Carrier gateway = gateway("timeout = \"1s\"\nresponse = \"1m\"\n");
        // On a busy machine half of the time may be over before it takes nothing more.
        for (int i = 0; i < 30 && address(gateway).failures() == 0; i++) {
            upload(gateway);
        }
        assertTrue(address(gateway).failures() > 0);
    }

    @Test
    void an_origin_that_takes_an_upload_slowly_is_not() throws Exception {
        origin.readsBodies = false;
        origin.handler = (seen, out, socket) -> {
            while (socket.getInputStream().readNBytes(1 << 20).length > 0) {
                LockSupport.parkNanos(40_000_000);
            }
            return false;
        };
        Carrier gateway = gateway("timeout = \"2s\"\nresponse = \"1m\"\n");
        long before = -1;
        // An origin that the machine holds up takes nothing, for as long as that lasts.
        for (int i = 0; i < 30 && before != address(gateway).failures(); i++) {
            before = address(gateway).failures();
            upload(gateway);
        }
        assertEquals(before, address(gateway).failures());
    }

    /** Of more than the way to an origin holds, for longer than the exchange may take. */
    private void upload(Carrier gateway) throws Exception {
        RawClient client = client(gateway);
        client.send("POST /o HTTP/1.1\r\nHost: a\r\nContent-Length: " + (1500L << 16) + "\r\n\r\n");
        String piece = "x".repeat(1 << 16);
        Thread sending = new Thread(() -> {
            for (int i = 0; i < 1500; i++) {
                client.sendTolerant(piece, piece.length());
            }
        });
        sending.setDaemon(true);
        sending.start();
        assertEquals(504, client.read().status());
    }

    @Test
    void an_address_that_is_asked_when_the_exchange_is_nearly_over_is_not_blamed() throws Exception {
        RecordingOrigin second = closedLater(new RecordingOrigin());
        CountDownLatch isOver = new CountDownLatch(1);
        closedLater(isOver::countDown);
        second.handler = RecordingOrigin.after(isOver);
        askLate(second.port());
    }

    @Test
    void neither_is_one_that_accepts_no_connection_until_its_end() throws Exception {
        ServerSocket full = closedLater(new ServerSocket(0, 1, origin.address()));
        for (int i = 0; i < 2; i++) {
            closedLater(new Socket(full.getInetAddress(), full.getLocalPort()));
        }
        askLate(full.getLocalPort());
    }

    private void askLate(int second) throws Exception {
        origin.handler = (seen, out, socket) -> {
            LockSupport.parkNanos(700_000_000);
            return false;
        };
        long blamed = 1;
        // A loop that the machine holds up counts as less time than that.
        for (int i = 0; i < 10 && blamed > 0; i++) {
            Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                    + "\", \"127.0.0.1:" + second + " backup\"]\n[timeouts]\nexchange = \"800ms\"\n");
            int status = client(gateway).get("/o").status();
            // Where it is held up, the exchange may be over before the first one closes.
            assertTrue(status == 504 || status == 502, "status " + status);
            blamed = gateway.runtime.gateway().snapshot().origins().get("o").addresses().get(1).failures();
        }
        assertEquals(0, blamed);
    }

    @Test
    void an_upload_that_takes_long_makes_no_address_slow() throws Exception {
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\neject-slower-than = \"300ms\"\n");
        long before = -1;
        // On a busy machine the origin itself may be slow once.
        for (int i = 0; i < 10 && before != address(gateway).failures(); i++) {
            before = address(gateway).failures();
            RawClient client = client(gateway);
            client.send("POST /o HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
            LockSupport.parkNanos(400_000_000);
            client.send("world");
            assertEquals(200, client.read().status());
        }
        assertEquals(before, address(gateway).failures());
    }

    @Test
    void an_upload_that_filters_wait_for_ends_with_the_exchange() throws Exception {
        filter("Reads", "PRE", "public int requestBodyBytesMax() { return 1 << 20; }\n"
                + apply("return Step.NEXT;"));
        Carrier gateway = gateway("[timeouts]\nexchange = \"800ms\"\nbody-rate = \"0B\"\n");
        RawClient slow = client(gateway);
        slow.send("POST /o HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
        trickle(slow);
        assertEquals(408, slow.read().status());
        awaitEnded(gateway, Category.CLIENT_BAD, 4);
    }

    @Test
    void a_response_leaves_after_its_exchange_is_counted_and_logged() throws Exception {
        String ends = "test.finish.ends." + factory().hashCode();
        String mayEnd = "test.finish.may." + factory().hashCode();
        String look = "public void finished(Context context, int status, long nanos) {"
                + "String path = context.request().path(); System.setProperty(\"" + ends + "\", path);"
                + "for (int i = 0; i < 60_000 && !path.equals(System.getProperty(\"" + mayEnd + "\")); i++) {"
                + "java.util.concurrent.locks.LockSupport.parkNanos(1_000_000); } }\n";
        filter("Ends", "PRE", look + apply("return Step.NEXT;"));
        Path source = folder.resolve("Ends.java");
        Files.writeString(source, Files.readString(source).replace("implements Filter", "implements FinishFilter"));
        Carrier gateway = gateway("");
        RawClient client = client(gateway);
        for (String path : List.of("/o/relayed", "/elsewhere", "/o/head")) {
            boolean isHead = path.endsWith("/head");
            client.send((isHead ? "HEAD " : "GET ") + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
            long end = System.nanoTime() + 60_000_000_000L;
            while (!path.equals(System.getProperty(ends))) {
                assertTrue(System.nanoTime() < end, "the exchange does not end");
                LockSupport.parkNanos(1_000_000);
            }
            int arrived = client.socket.getInputStream().available();
            System.setProperty(mayEnd, path);
            assertEquals(0, arrived, path + ": the response left before the exchange had ended");
            assertEquals(path.startsWith("/o") ? 200 : 404, client.read(isHead).status());
        }
    }

    @Test
    void a_response_that_filters_wait_for_ends_with_the_exchange() throws Exception {
        filter("Reads", "POST", "public int responseBodyBytesMax() { return 1 << 20; }\n"
                + apply("return Step.NEXT;"));
        origin.handler = (seen, out, socket) -> {
            out.write("HTTP/1.1 200 X\r\nContent-Length: 1000\r\n\r\n".getBytes());
            for (int i = 0; i < 1000; i++) {
                out.write('x');
                LockSupport.parkNanos(50_000_000);
            }
            return true;
        };
        Carrier gateway = gateway("timeout = \"800ms\"\n");
        assertEquals(504, client(gateway).get("/o").status());
        awaitEnded(gateway, Category.ORIGIN_TIMEOUT, 5);
    }

    @Test
    void a_failure_that_cannot_be_sent_as_filters_want_it_is_sent_plainly() throws Exception {
        filter("Breaks", "ERROR", apply("context.response().transform(new BodyTransform() {"
                + "public ByteBuffer chunk(ByteBuffer piece) { throw new IllegalStateException(\"no\"); }"
                + "public ByteBuffer end() { return ByteBuffer.allocate(0); } });"
                + "return Step.NEXT;"));
        RawClient client = client(gateway(""));
        assertEquals("500 Internal Server Error\n", client.get("/elsewhere").body());
    }

    @Test
    void a_transform_is_closed_when_another_response_is_sent() throws Exception {
        String closed = "test.transform.closed." + factory().hashCode();
        System.clearProperty(closed);
        filter("Hold", "POST", apply("context.response().transform(new BodyTransform() {"
                + "public ByteBuffer chunk(ByteBuffer piece) { return piece; }"
                + "public ByteBuffer end() { return ByteBuffer.allocate(0); }"
                + "public void close() { System.setProperty(\"" + closed + "\", \"yes\"); } });"
                + "return Step.NEXT;"));
        filter("Throws", "POST", apply("throw new IllegalStateException(\"behind it\");"));
        assertEquals(500, client(gateway("")).get("/o").status());
        assertEquals("yes", System.getProperty(closed));
    }

    @Test
    void the_limit_of_a_route_holds_for_a_body_that_filters_have_read() throws Exception {
        filter("Reads", "PRE", "public int requestBodyBytesMax() { return 1 << 20; }\n"
                + apply("return Step.NEXT;"));
        Carrier gateway = gateway("body = \"10B\"\n[[route]]\nprefix = \"/large\"\norigins = [\"o\"]\n"
                + "body = \"1MiB\"\n[limits]\nbody = \"1KiB\"\n");
        assertEquals(200, client(gateway).postChunked("/o", 10).status());
        assertEquals(413, client(gateway).postChunked("/o", 11).status());
        assertEquals(200, client(gateway).postChunked("/large", 5000).status());
    }

    @Test
    void a_client_of_grpc_reads_every_failure_in_fields_of_its_own() throws Exception {
        RawClient client = client(gateway(""));
        client.send("POST /elsewhere HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\n"
                + "Content-Length: 0\r\n\r\n");
        RawClient.Answer answer = client.read();
        assertEquals(200, answer.status());
        assertEquals("12", answer.header("grpc-status"));
    }
}
