// What a request does to its origin and an origin's answer to the requests behind it.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Breaker;
import wirespeed.gateway.core.ShortHandshakes;

@Timeout(240)
abstract class OriginExchangeContract extends CarrierContract {
    /** Of an upload: not all are sent before its early response is seen. */
    private static final int PIECES = 4000;
    private static final String SMUGGLED = "GET /admin HTTP/1.1\r\nHost: a\r\n\r\n";

    @TempDir
    Path folder;

    private Carrier gateway(String more) {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n" + more);
    }

    static void await(CountDownLatch latch) throws IOException {
        try {
            assertTrue(latch.await(60, TimeUnit.SECONDS));
        } catch (InterruptedException e) {
            throw new IOException(e);
        }
    }

    /** A gateway whose filter sends another body than the client's, which it does not ask for. */
    private Carrier replacing() throws IOException {
        Files.writeString(folder.resolve("Replaces.java"), """
                import java.nio.ByteBuffer;
                import wirespeed.gateway.core.*;
                public class Replaces implements Filter {
                    public Phase phase() { return Phase.PRE; }
                    public int order() { return 5; }
                    public Step apply(Context context) {
                        if (!context.request().path().equals("/plain")) {
                            context.request().body(ByteBuffer.wrap("{}".getBytes()));
                        }
                        return Step.NEXT;
                    }
                }
                """);
        return gateway("[filters]\nfolder = \"" + folder + "\"\n");
    }

    @Test
    void a_body_that_a_filter_replaced_does_not_reach_the_origin_as_a_second_request()
            throws Exception {
        Carrier gateway = replacing();
        CountDownLatch isAsked = new CountDownLatch(1);
        CountDownLatch mayAnswer = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            if (seen.line().startsWith("POST /late")) {
                isAsked.countDown();
                await(mayAnswer);
            }
            return RecordingOrigin.ordinary(seen, out, socket);
        };
        // With its head, behind it, in pieces, and when the origin has the whole request.
        RawClient client = client(gateway);
        client.send("POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: " + SMUGGLED.length()
                + "\r\n\r\n" + SMUGGLED);
        assertEquals("POST /now HTTP/1.1|{}", client.read().body());
        client.send("POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: " + SMUGGLED.length()
                + "\r\n\r\n");
        await(isAsked);
        client.send(SMUGGLED.substring(0, 10));
        Thread.sleep(50);
        client.send(SMUGGLED.substring(10));
        Thread.sleep(50);
        mayAnswer.countDown();
        assertEquals("POST /late HTTP/1.1|{}", client.read().body());
        assertEquals("GET /plain HTTP/1.1|", client.get("/plain").body());
        client.send("POST /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                + Integer.toHexString(SMUGGLED.length()) + "\r\n" + SMUGGLED + "\r\n0\r\n\r\n");
        assertEquals("POST /chunked HTTP/1.1|{}", client.read().body());
        assertEquals("GET /plain HTTP/1.1|", client(gateway).get("/plain").body());
        assertEquals(List.of("POST /now HTTP/1.1", "POST /late HTTP/1.1", "GET /plain HTTP/1.1",
                "POST /chunked HTTP/1.1", "GET /plain HTTP/1.1"),
                origin.seen.stream().map(RecordingOrigin.Seen::line).toList());
    }

    @Test
    void a_long_body_that_a_filter_replaced_holds_up_no_other_request() throws Exception {
        Carrier gateway = replacing();
        for (String framing : List.of("Content-Length: 8000000", "Expect: 100-continue\r\n"
                + "Content-Length: 8000000")) {
            RawClient client = client(gateway);
            client.send("PUT /long HTTP/1.1\r\nHost: a\r\n" + framing + "\r\n\r\n");
            if (!framing.startsWith("Expect")) {
                Thread sending = new Thread(() -> client.sendTolerant("b".repeat(8_000_000), 65536));
                sending.setDaemon(true);
                sending.start();
            }
            assertEquals("PUT /long HTTP/1.1|{}", client.read().body());
        }
        assertEquals("GET /plain HTTP/1.1|", client(gateway).get("/plain").body());
    }

    /** Answers each head at once, and reads no body; then the latch opens. */
    private void answersEarly(RecordingOrigin origin, CountDownLatch isAnswered, int status) {
        CountDownLatch isOver = new CountDownLatch(1);
        closedLater(isOver::countDown);
        origin.readsBodies = false;
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, status, "", seen.line());
            isAnswered.countDown();
            if (seen.line().startsWith("GET")) {
                return true;
            }
            // The body that it has not read would turn a close into a reset.
            RecordingOrigin.awaitQuietly(isOver);
            return false;
        };
    }

    @Test
    void a_response_before_the_request_body_leaves_its_connection_to_the_next_request()
            throws Exception {
        Carrier gateway = gateway("");
        for (List<String> upload : List.of(
                List.of("Content-Length: " + PIECES + "\r\n\r\n", "0", ""),
                List.of("Transfer-Encoding: chunked\r\n\r\n", "1\r\n0\r\n", "0\r\n\r\n"))) {
            CountDownLatch isAnswered = new CountDownLatch(1);
            answersEarly(origin, isAnswered, 200);
            RawClient client = client(gateway);
            String piece = upload.get(1);
            client.send("POST /early HTTP/1.1\r\nHost: a\r\n" + upload.get(0) + piece);
            await(isAnswered);
            int sent = 1 + sendUntilAnswered(client, piece);
            RawClient.Answer early = client.read();
            assertEquals("POST /early HTTP/1.1", early.body());
            assertNull(early.header("Connection"), early.head());
            client.send(piece.repeat(PIECES - sent) + upload.get(2));
            assertEquals("GET /next HTTP/1.1", client.get("/next").body());
        }
    }

    /** How many pieces it took: a carrier may look for a response only behind a piece. */
    private static int sendUntilAnswered(RawClient client, String piece) throws Exception {
        int sent = 0;
        while (sent < PIECES - 1 && (sent == 0 || client.socket.getInputStream().available() == 0)) {
            client.send(piece);
            sent++;
            Thread.sleep(5);
        }
        return sent;
    }

    @Test
    void a_client_that_waits_for_a_response_before_it_goes_on_gets_it() throws Exception {
        Certificate certificate = new Certificate(folder);
        RecordingOrigin encrypted = closedLater(new RecordingOrigin(certificate.context()
                .getServerSocketFactory().createServerSocket(0, 50, origin.address())));
        Carrier gateway = start("[tls]\norigin-ca = \"" + certificate.certificate
                + "\"\n[timeouts]\nbody-idle = \"1s\"\n" + twoOrigins(
                "addresses = [\"127.0.0.1:" + origin.port() + "\"]",
                "tls = true\nconnect = \"1m\"\naddresses = [\"127.0.0.1:" + encrypted.port() + "\"]"));
        for (RecordingOrigin each : List.of(origin, encrypted)) {
            String path = each == origin ? "/early" : "/b/early";
            int status = 408;
            // On a busy machine the origin may answer too late for that.
            for (int i = 0; i < 10 && status == 408; i++) {
                answersEarly(each, new CountDownLatch(1), 403);
                RawClient client = client(gateway);
                client.send("POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n0123");
                status = client.read().status();
            }
            assertEquals(403, status, path);
        }
    }

    @Test
    void an_interim_response_does_not_turn_a_body_that_stops_into_an_origin_failure() throws Exception {
        CountDownLatch isOver = new CountDownLatch(1);
        closedLater(isOver::countDown);
        origin.readsBodies = false;
        origin.handler = (seen, out, socket) -> {
            out.write("HTTP/1.1 103 X\r\nLink: </a.css>\r\n\r\n".getBytes());
            RecordingOrigin.awaitQuietly(isOver);
            return false;
        };
        Carrier gateway = gateway("response = \"3s\"\n[timeouts]\nbody-idle = \"300ms\"\n");
        Address address = gateway.runtime.gateway().snapshot().origins().get("o").addresses().get(0);
        RawClient client = client(gateway);
        client.send("POST /stops HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n0123");
        // Behind one of these pieces the interim response is there.
        for (String piece : "456789a".split("")) {
            Thread.sleep(20);
            client.sendTolerant(piece, 1);
        }
        assertEquals(408, client.read().status());
        assertEquals(0, address.failures());
    }

    @Test
    void an_answer_to_an_earlier_request_does_not_end_an_ejection() throws Exception {
        CountDownLatch isAsked = new CountDownLatch(1);
        CountDownLatch mayAnswer = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            if (seen.line().startsWith("GET /early")) {
                isAsked.countDown();
                await(mayAnswer);
            }
            return !seen.line().startsWith("POST") && RecordingOrigin.ordinary(seen, out, socket);
        };
        Carrier gateway = gateway("");
        Breaker breaker = gateway.runtime.gateway().snapshot().origins().get("o").addresses()
                .get(0).breaker();
        RawClient early = client(gateway);
        early.send("GET /early HTTP/1.1\r\nHost: a\r\n\r\n");
        await(isAsked);
        for (int i = 0; i < 5; i++) {
            RawClient client = client(gateway);
            client.send("POST /fails HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
            assertEquals(502, client.read().status());
        }
        assertTrue(breaker.isOpen());
        mayAnswer.countDown();
        assertEquals(200, early.read().status());
        assertTrue(breaker.isOpen(), "it was asked before the address had failed");
        long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(1);
        while (breaker.isOpen()) {
            assertTrue(System.nanoTime() < end, "what was asked since says that it is well");
            assertEquals(200, client(gateway).get("/").status());
        }
    }

    /** Two origins: what is asked under /b goes to the second one. */
    private static String twoOrigins(String a, String b) {
        return "[origins.a]\n" + a + "\n[origins.b]\n" + b + "\n[[route]]\nprefix = \"/b\"\n"
                + "origins = [\"b\"]\n[[route]]\norigins = [\"a\"]\n";
    }

    @Test
    void origins_that_name_the_same_addresses_have_each_its_own_reserve_and_weights()
            throws Exception {
        RecordingOrigin other = closedLater(new RecordingOrigin());
        String one = "127.0.0.1:" + origin.port();
        String two = "127.0.0.1:" + other.port();
        RawClient client = client(start(twoOrigins(
                "addresses = [\"" + one + "*50\", \"" + two + " backup\"]",
                "addresses = [\"" + two + "*100\", \"" + one + " backup\"]")));
        for (int i = 0; i < 10; i++) {
            assertEquals(200, client.get("/a").status());
            assertEquals(200, client.get("/b").status());
        }
        assertTrue(origin.seen.stream().allMatch(seen -> seen.line().startsWith("GET /a ")));
        assertTrue(other.seen.stream().allMatch(seen -> seen.line().startsWith("GET /b ")));
        assertEquals(List.of(10, 10), List.of(origin.seen.size(), other.seen.size()));
    }

    @Test
    void origins_that_name_the_same_address_have_each_its_own_patience() throws Exception {
        CountDownLatch isBegun = new CountDownLatch(1);
        CountDownLatch mayGoOn = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            if (!seen.line().startsWith("GET /b")) {
                return RecordingOrigin.ordinary(seen, out, socket);
            }
            out.write("HTTP/1.1 200 X\r\nContent-Length: 3\r\n\r\n1".getBytes());
            isBegun.countDown();
            await(mayGoOn);
            out.write('2');
            pause(1200);
            out.write('3');
            return true;
        };
        String address = "addresses = [\"127.0.0.1:" + origin.port() + "\"]\n";
        Carrier gateway = start(twoOrigins(address + "body-idle = \"500ms\"",
                address + "body-idle = \"1m\""));
        RawClient patient = client(gateway);
        patient.send("GET /b HTTP/1.1\r\nHost: a\r\n\r\n");
        await(isBegun);
        assertEquals(200, client(gateway).get("/a").status());
        mayGoOn.countDown();
        assertEquals("123", patient.read().body());
    }

    private static void pause(int millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @Test
    void origins_that_name_the_same_address_have_each_its_own_checks() throws Exception {
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, seen.line().startsWith("GET /ill") ? 500 : 200, "", "");
            return true;
        };
        String address = "addresses = [\"127.0.0.1:" + origin.port() + "\"]\n"
                + "check-interval = \"100ms\"\ncheck-timeout = \"1m\"\n";
        Carrier gateway = start(twoOrigins(address + "check-path = \"/well\"",
                address + "check-path = \"/ill\""));
        var origins = gateway.runtime.gateway().snapshot().origins();
        long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(1);
        while (origins.get("b").addresses().get(0).isChecked()) {
            assertTrue(System.nanoTime() < end, "a check that fails is not heard");
            Thread.sleep(10);
        }
        assertTrue(origins.get("a").addresses().get(0).isChecked());
        RawClient client = client(gateway);
        assertEquals(200, client.get("/a").status());
        assertEquals(503, client.get("/b").status());
        assertTrue(origin.seen.stream().anyMatch(seen -> seen.line().startsWith("GET /well")));
    }

    @Test
    void an_upload_to_an_origin_that_stops_reading_ends_in_time() throws Exception {
        ServerSocket deaf = closedLater(new ServerSocket());
        deaf.setReceiveBufferSize(8192);
        // Its connections are established, and no code reads from them.
        deaf.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 50);
        String addresses = "[origins.o]\naddresses = [\"127.0.0.1:" + deaf.getLocalPort() + "\"]\n";
        for (Carrier gateway : List.of(start(addresses + "response = \"1s\"\n"),
                start(addresses + "response = \"5m\"\n[timeouts]\nexchange = \"1s\"\n"))) {
            RawClient client = client(gateway);
            client.send("PUT /big HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n");
            Thread sending = new Thread(() -> client.sendTolerant("b".repeat(30_000_000), 65536));
            sending.setDaemon(true);
            sending.start();
            assertEquals(504, client.read().status());
        }
    }

    @Test
    void a_handshake_may_take_longer_than_connecting() throws Exception {
        Certificate certificate = new Certificate(folder);
        RecordingOrigin encrypted = closedLater(new RecordingOrigin(
                new TlsPeers(certificate.context()).origin(origin.address(), 1000)));
        Carrier gateway = start("[tls]\norigin-ca = \"" + certificate.certificate + "\"\n[origins.o]\n"
                + "addresses = [\"127.0.0.1:" + encrypted.port() + "\"]\ntls = true\nconnect = \"500ms\"\n");
        assertEquals(200, client(gateway).get("/").status());
    }

    @Test
    void a_handshake_that_is_not_answered_ends_in_time_and_speaks_against_its_address() throws Exception {
        ServerSocket deaf = closedLater(new ServerSocket(0, 50, InetAddress.getLoopbackAddress()));
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:"
                + deaf.getLocalPort() + "\"]\ntls = true\nconnect = \"100ms\"\n[timeouts]\nexchange = \"1s\"\n");
        Address address = gateway.runtime.gateway().snapshot().origins().get("o").addresses().get(0);
        // On a busy machine half of the time may be over before the handshake begins.
        for (int i = 0; i < 30 && address.failures() == 0; i++) {
            assertEquals(504, client(gateway).get("/").status());
        }
        assertTrue(address.failures() > 0);
    }

    @Test
    void a_handshake_ends_in_time_however_the_origin_draws_it_out() throws Exception {
        closedLater(new ShortHandshakes(400));
        for (boolean isDripping : new boolean[] {false, true}) {
            ServerSocket slow = closedLater(new ServerSocket(0, 50, InetAddress.getLoopbackAddress()));
            if (isDripping) {
                dripHandshakes(slow);
            }
            Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + slow.getLocalPort()
                    + "\"]\ntls = true\nconnect = \"100ms\"\n[timeouts]\nexchange = \"1h\"\n");
            Address address = gateway.runtime.gateway().snapshot().origins().get("o").addresses().get(0);
            assertEquals(502, client(gateway).get("/").status());
            assertEquals(1, address.failures());
        }
    }

    /** Begins a record of 16 KiB and a ServerHello in it, and sends a byte of it now and then. */
    private void dripHandshakes(ServerSocket listener) {
        Thread origin = new Thread(() -> {
            try {
                Socket socket = closedLater(listener.accept());
                OutputStream out = socket.getOutputStream();
                out.write(new byte[] {22, 3, 3, 64, 0, 2, 0, 63, -4});
                while (true) {
                    out.write(0);
                    pause(20);
                }
            } catch (IOException gone) {
                // The gateway has closed it, or the test is over.
            }
        });
        origin.setDaemon(true);
        origin.start();
    }

    @Test
    void the_end_of_an_exchange_ends_its_wait_for_a_connection() throws Exception {
        CountDownLatch mayAnswer = new CountDownLatch(1);
        closedLater(mayAnswer::countDown);
        origin.handler = RecordingOrigin.after(mayAnswer);
        Carrier gateway = gateway("connections = 1\nresponse = \"5m\"\n[timeouts]\npool-wait = \"5m\"\n"
                + "exchange = \"5m\"\n[[route]]\nprefix = \"/short\"\norigins = [\"o\"]\n"
                + "timeout = \"300ms\"\n[[route]]\norigins = [\"o\"]\n");
        Address address = gateway.runtime.gateway().snapshot().origins().get("o").addresses().get(0);
        RawClient served = client(gateway);
        served.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
        while (origin.seen.isEmpty()) {
            pause(5);
        }
        assertEquals(504, client(gateway).get("/short").status());
        assertEquals(0, address.failures());
        mayAnswer.countDown();
        assertEquals(200, served.read().status());
    }

    @Test
    void an_answer_of_an_origin_that_stops_reading_counts() throws Exception {
        ServerSocket listener = closedLater(new ServerSocket());
        listener.setReceiveBufferSize(8192);
        listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 50);
        Thread origin = new Thread(() -> {
            try {
                Socket socket = closedLater(listener.accept());
                socket.getInputStream().readNBytes(2000);
                pause(300);
                RecordingOrigin.respond(socket.getOutputStream(), 413, "", "too long");
            } catch (IOException gone) {
                // The test is over.
            }
        });
        origin.setDaemon(true);
        origin.start();
        RawClient client = client(start("[origins.o]\naddresses = [\"127.0.0.1:"
                + listener.getLocalPort() + "\"]\nresponse = \"30s\"\n"));
        client.send("PUT /big HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n");
        Thread sending = new Thread(() -> client.sendTolerant("b".repeat(30_000_000), 65536));
        sending.setDaemon(true);
        sending.start();
        assertEquals(413, client.read().status());
    }

    @Test
    void an_answer_of_an_origin_that_closes_at_once_counts() throws Exception {
        ServerSocket listener = closedLater(new ServerSocket());
        listener.setReceiveBufferSize(8192);
        listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 50);
        Thread origin = new Thread(() -> {
            while (!listener.isClosed()) {
                try (Socket socket = listener.accept()) {
                    socket.getInputStream().readNBytes(2000);
                    pause(20);
                    // What it has not read turns the close into a reset, behind the answer.
                    RecordingOrigin.respond(socket.getOutputStream(), 413, "", "too long");
                } catch (IOException gone) {
                    // The next one, or the test is over.
                }
            }
        });
        origin.setDaemon(true);
        origin.start();
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:"
                + listener.getLocalPort() + "\"]\n");
        String body = "b".repeat(8_000_000);
        for (int i = 0; i < 20; i++) {
            RawClient client = client(gateway);
            client.send("PUT /big HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n");
            Thread sending = new Thread(() -> client.sendTolerant(body, 65536));
            sending.setDaemon(true);
            sending.start();
            assertEquals(413, client.read().status(), "upload " + i);
            client.close();
        }
    }

    @Test
    void a_failure_is_reported_where_no_other_address_is_in_service() throws Exception {
        // Taken, so that no other process gets it, and without a listener.
        Socket nobody = closedLater(new Socket());
        nobody.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + nobody.getLocalPort()
                + "\", \"127.0.0.1:" + origin.port() + "\"]\n");
        Address other = gateway.runtime.gateway().snapshot().origins().get("o").addresses().get(1);
        other.administration(Address.Administration.DOWN);
        RawClient client = client(gateway);
        for (int i = 0; i < 3; i++) {
            assertEquals(502, client.get("/").status());
        }
        other.administration(Address.Administration.UP);
        assertEquals(200, client.get("/").status());
    }

    @Test
    void a_filter_that_fails_on_a_body_does_not_count_against_the_origin() throws Exception {
        Files.writeString(folder.resolve("Breaks.java"), """
                import java.nio.ByteBuffer;
                import wirespeed.gateway.core.*;
                public class Breaks implements Filter {
                    public Phase phase() { return Phase.POST; }
                    public int order() { return 5; }
                    public Step apply(Context context) {
                        boolean isEnd = context.request().path().equals("/end");
                        context.response().transform(new BodyTransform() {
                            public ByteBuffer chunk(ByteBuffer piece) {
                                if (!isEnd) {
                                    throw new IllegalStateException("at the first piece");
                                }
                                return piece;
                            }
                            public ByteBuffer end() {
                                throw new IllegalStateException("at the end");
                            }
                        });
                        return Step.NEXT;
                    }
                }
                """);
        Carrier gateway = gateway("[filters]\nfolder = \"" + folder + "\"\n");
        Address address = gateway.runtime.gateway().snapshot().origins().get("o").addresses().get(0);
        for (int i = 0; i < 12; i++) {
            RawClient.Answer answer = client(gateway).get(i % 2 == 0 ? "/begin" : "/end");
            assertTrue(answer.status() == 500 || !answer.isComplete(), answer.toString());
        }
        assertFalse(address.breaker().isOpen());
        assertEquals(12, origin.seen.size());
    }
}
