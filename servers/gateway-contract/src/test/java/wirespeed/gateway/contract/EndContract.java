// Clients and origins that end, half or whole, with a reset or without, in every part of an exchange.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Meters;

@Timeout(240)
abstract class EndContract extends CarrierContract {
    private static final String SWITCHED = "HTTP/1.1 101 X\r\nConnection: upgrade\r\n"
            + "Upgrade: websocket\r\n\r\n";
    /** What a peer sends at a word of a case. */
    private static final Map<String, String> SENT = Map.ofEntries(
            Map.entry("get", "GET /case HTTP/1.1\r\nHost: a\r\n\r\n"),
            Map.entry("put", "PUT /case HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123"),
            Map.entry("rest", "456789"),
            Map.entry("chunk", "PUT /case HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n0123\r\n"),
            Map.entry("old", "GET /case HTTP/1.0\r\n\r\n"),
            Map.entry("upgrade", WebSocketContract.ASK),
            Map.entry("part", "HTTP/1.1 200 X\r\nContent-Le"),
            Map.entry("six", "HTTP/1.1 200 X\r\nContent-Length: 6\r\n\r\nabc"),
            Map.entry("chunks", "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
            Map.entry("lasting", "HTTP/1.1 200 X\r\nConnection: close\r\n\r\nabc"),
            Map.entry("def", "def"),
            Map.entry("last", "3\r\ndef\r\n0\r\n\r\n"),
            Map.entry("early", "HTTP/1.1 403 X\r\nContent-Length: 3\r\n\r\nabc"),
            Map.entry("101", SWITCHED), Map.entry("hi", "hi"));

    @TempDir
    Path folder;
    private Certificate certificate;
    private TlsPeers peers;
    private RecordingOrigin encrypted;

    @BeforeEach
    void encrypt() throws Exception {
        certificate = new Certificate(folder);
        peers = new TlsPeers(certificate.context());
        encrypted = closedLater(new RecordingOrigin(peers.origin(origin.address())));
    }

    /** With TLS on both sides or on none; everything has minutes. */
    private Carrier gateway(boolean isTls, String ofOrigin) {
        return gateway(isTls, ofOrigin, options());
    }

    private Carrier gateway(boolean isTls, String ofOrigin, Map<String, Object> options) {
        return closedLater(new Carrier(factory(), options, "[timeouts]\nbody-idle = \"3m\"\n[tls]\norigin-ca = \""
                + certificate.certificate + "\"\n" + (isTls ? "certificate = \"" + certificate.certificate + "\"\nkey = \"" + certificate.key
                + "\"\n" : "") + "[origins.o]\n" + (isTls ? "tls = true\n" : "")
                + "addresses = [\"127.0.0.1:" + (isTls ? encrypted : origin).port() + "\"]\n"
                + "response = \"3m\"\nbody-idle = \"3m\"\n" + ofOrigin));
    }

    private RawClient client(Carrier gateway, boolean isTls) throws IOException {
        return isTls ? tls(gateway, false) : client(gateway);
    }

    private RawClient tls(Carrier gateway, boolean isInPieces) throws IOException {
        return closedLater(new RawClient(peers.client(gateway.address, isInPieces)));
    }

    /** A client whose handshake is over; on a busy machine one may take longer than a head has. */
    private RawClient shaken(Carrier gateway) throws Exception {
        RawClient[] shaken = new RawClient[1];
        inTime(0, () -> shaken[0] = tls(gateway, false));
        return shaken[0];
    }

    /** Both sides' actions, word by word, and their outcome without TLS and with it. */
    private record Case(String client, String origin, String plain, String tls) {
        Case(String client, String origin, String both) {
            this(client, origin, both, both);
        }
    }

    /** The client ends its half, and everything else goes on. */
    private static final List<Case> HALVES = List.of(
            new Case("get shut", "six def", "200 abcdef closed, OK"),
            new Case("get asked shut go", "wait six def", "200 abcdef closed, OK"),
            new Case("get begun shut go", "six wait def", "200 abcdef closed, OK"),
            new Case("get begun shut go", "chunks wait last", "200 abcdef closed, OK"),
            new Case("put rest asked shut go", "wait six def", "200 abcdef closed, OK"),
            new Case("get get shut", "six def", "200 abcdef 200 abcdef closed, OK"),
            new Case("get get begun shut go", "six wait def", "200 abcdef 200 abcdef closed, OK"),
            new Case("old shut", "lasting close", "200 abc closed, OK"));

    /** And the origin may go on in another protocol. */
    private static final List<Case> TUNNEL_HALVES = List.of(
            new Case("upgrade shut tunnel", "101 end hi close", "101 hi, OK"),
            new Case("upgrade begun shut tunnel", "101 end hi close", "101 hi, OK"));

    /** The same where that ends both: nothing that the origin still sends arrives. */
    private static final List<Case> TUNNEL_BOTH_HALVES = List.of(
            new Case("upgrade begun shut tunnel", "101 end hi close", "101 , OK"));

    private static final List<Case> CASES = List.of(
            // The client ends in the middle of its request, or without a word. A response that is on its way
            // may be written before a reset is seen: "*" is any category.
            new Case("put asked shut", "end", "none, CLIENT_GONE"),
            new Case("chunk asked shut", "end", "none, CLIENT_GONE"),
            new Case("put asked cut", "end", "none, CLIENT_GONE"),
            new Case("put asked reset", "end", "none, CLIENT_GONE"),
            new Case("get asked reset go", "wait six def", "none, *"),
            new Case("get begun reset go", "six wait def end", "none, *"),
            // The origin ends before its response.
            new Case("get", "close", "502 kept, ORIGIN_RESET"),
            new Case("get", "cut", "502 kept, ORIGIN_RESET"),
            new Case("get", "shut end", "502 kept, ORIGIN_RESET"),
            new Case("get", "reset", "502 kept, ORIGIN_RESET"),
            new Case("get", "part close", "502 kept, ORIGIN_RESET"),
            new Case("get", "part reset", "502 kept, ORIGIN_RESET"),
            // In the middle of its response.
            new Case("get", "six close", "200 cut, ORIGIN_RESET"),
            new Case("get", "six shut end", "200 cut, ORIGIN_RESET"),
            new Case("get", "six cut end", "200 cut, ORIGIN_RESET"),
            new Case("get begun go", "six wait reset", "200 cut, ORIGIN_RESET"),
            new Case("get", "chunks close", "200 cut, ORIGIN_RESET"),
            new Case("get", "chunks shut end", "200 cut, ORIGIN_RESET"),
            new Case("get begun go", "chunks wait reset", "200 cut, ORIGIN_RESET"),
            // With it: a body that lasts until the close is complete only with the alert (RFC 9112 §9.8).
            new Case("get", "lasting close", "200 abc kept, OK"),
            new Case("get", "lasting shut end", "200 abc kept, OK"),
            new Case("get", "lasting cut end", "200 abc kept, OK", "200 cut, ORIGIN_RESET"),
            new Case("get begun go", "lasting wait reset", "200 cut, ORIGIN_RESET"),
            // Behind it.
            new Case("get", "six def close", "200 abcdef kept, OK"),
            new Case("get", "six def shut end", "200 abcdef kept, OK"),
            // Before all of the request.
            new Case("put asked rest", "early shut end", "403 abc kept, OK"),
            // Another protocol: RFC 9110 §9.3.6 ends both sides of a tunnel once all of one is through.
            new Case("upgrade tunnel", "101 hi close", "101 hi, OK"),
            new Case("upgrade tunnel", "101 hi shut end", "101 hi, OK"));

    /** Whether a client's close_notify ends what it gets from a tunnel, too, and not only what it sends. */
    boolean endsTunnelsOfTls() {
        return false;
    }

    @Test
    void ends_of_clients_and_origins_have_one_outcome() throws Exception {
        outcomes(false);
    }

    @Test
    void ends_of_clients_and_origins_have_one_outcome_over_tls() throws Exception {
        outcomes(true);
    }

    private void outcomes(boolean isTls) throws Exception {
        // No case finds a connection that another one has left behind.
        Carrier gateway = gateway(isTls, "connection-requests = 1\n");
        List<String> wrong = new ArrayList<>();
        List<Case> cases = new ArrayList<>(HALVES);
        cases.addAll(isTls && endsTunnelsOfTls() ? TUNNEL_BOTH_HALVES : TUNNEL_HALVES);
        cases.addAll(CASES);
        for (Case one : cases) {
            String expected = isTls ? one.tls() : one.plain();
            String outcome = outcome(one, gateway, isTls);
            boolean isAny = expected.endsWith("*");
            if (isAny ? !outcome.startsWith(expected.substring(0, expected.length() - 1))
                    : !outcome.equals(expected)) {
                wrong.add("\n" + one.client() + " | " + one.origin() + ": " + outcome + " and not " + expected);
            }
        }
        assertEquals(List.of(), wrong);
    }

    private String outcome(Case one, Carrier gateway, boolean isTls) throws Exception {
        RecordingOrigin asked = isTls ? encrypted : origin;
        Semaphore isAsked = new Semaphore(0);
        CountDownLatch mayGoOn = new CountDownLatch(1);
        asked.dropConnections();
        asked.readsBodies = false;
        asked.handler = (seen, out, socket) -> {
            isAsked.release();
            return seen.line().startsWith("GET /again") ? RecordingOrigin.ordinary(seen, out, socket)
                    : play(one.origin(), out, socket, mayGoOn);
        };
        long[] before = ended(gateway);
        RawClient client = client(gateway, isTls);
        String seen = null;
        for (String word : one.client().split(" ")) {
            switch (word) {
                case "asked" -> assertTrue(isAsked.tryAcquire(60, TimeUnit.SECONDS), one.toString());
                case "begun" -> client.awaitByte();
                case "go" -> mayGoOn.countDown();
                case "shut" -> client.socket.shutdownOutput();
                case "cut" -> peers.cut(client.socket);
                case "reset" -> {
                    peers.reset(client.socket);
                    seen = "none";
                }
                case "tunnel" -> seen = client.read().status() + " " + client.readText(2)
                        + (client.isClosed() ? "" : " open");
                default -> client.send(SENT.get(word));
            }
        }
        seen = seen == null ? seen(client, one.client().startsWith("get get")) : seen;
        mayGoOn.countDown();
        String category = category(gateway, before);
        client.close();
        return seen + ", " + category;
    }

    private boolean play(String words, OutputStream out, Socket socket, CountDownLatch mayGoOn)
            throws IOException {
        for (String word : words.split(" ")) {
            switch (word) {
                case "wait" -> RecordingOrigin.awaitQuietly(mayGoOn);
                case "go" -> mayGoOn.countDown();
                case "shut" -> socket.shutdownOutput();
                case "cut" -> peers.cut(socket);
                case "reset" -> peers.reset(socket);
                case "close" -> socket.close();
                case "end" -> awaitEnd(socket);
                default -> {
                    out.write(SENT.get(word).getBytes(StandardCharsets.ISO_8859_1));
                    out.flush();
                }
            }
        }
        return !socket.isClosed();
    }

    /** Until the gateway sends nothing more. */
    private static void awaitEnd(Socket socket) {
        try {
            socket.getInputStream().transferTo(OutputStream.nullOutputStream());
        } catch (IOException ended) {
            // However it ended.
        }
    }

    /** A response, a second one where two requests were sent, and whether the connection takes another one. */
    private static String seen(RawClient client, boolean isAskedTwice) {
        RawClient.Answer answer = client.read();
        if (isAskedTwice && answer.isComplete()) {
            return answer.status() + " " + answer.body() + " " + seen(client, false);
        }
        if (answer.status() == 0) {
            return "none";
        }
        String body = answer.status() == 502 ? "" : " " + answer.body();
        if (!answer.isComplete()) {
            return answer.status() + " cut";
        }
        try {
            return answer.status() + body + (client.get("/again").status() == 200 ? " kept" : " closed");
        } catch (IOException closed) {
            return answer.status() + body + " closed";
        }
    }

    /** How many exchanges have ended, by category. */
    private static long[] ended(Carrier gateway) {
        long[] counts = new long[Category.values().length];
        for (Meters meters : gateway.runtime.gateway().meters()) {
            for (Category category : Category.values()) {
                for (int hundred = 0; hundred < 6; hundred++) {
                    counts[category.ordinal()] += meters.get(category, hundred);
                }
            }
        }
        return counts;
    }

    /** The one that has come since then; that of the case itself where others succeeded behind it. */
    private static String category(Carrier gateway, long[] before) throws Exception {
        await(() -> gateway.runtime.gateway().inFlight().get() == 0, "an exchange that does not end");
        long[] now = ended(gateway);
        String found = "";
        for (Category category : Category.values()) {
            boolean hasMore = now[category.ordinal()] > before[category.ordinal()];
            found = hasMore ? category.name() : found;
        }
        return found;
    }

    private static void await(BooleanSupplier isReached, String otherwise) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!isReached.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, otherwise);
            Thread.sleep(1);
        }
    }

    @Test
    void a_head_over_tls_that_stops_is_a_408() throws Exception {
        Carrier gateway = start("[timeouts]\nhead = \"300ms\"\n[tls]\ncertificate = \"" + certificate.certificate
                + "\"\nkey = \"" + certificate.key + "\"\n[origins.o]\naddresses = [\"127.0.0.1:"
                + origin.port() + "\"]\n");
        for (String begin : List.of("GET / HT", "GET / HTTP/1.1\r\nHost: a\r\nX: y")) {
            // A turn takes those 300 ms and little more; one that took longer was not given its time.
            inTime(600, () -> {
                RawClient client = shaken(gateway);
                client.send(begin);
                assertEquals(408, client.read().status(), begin);
                // An end that TLS says, and no reset.
                assertEquals(-1, client.socket.getInputStream().read());
            });
        }
        assertEquals(List.of(), origin.seen);
    }

    @Test
    void short_records_of_tls_pass_in_their_order() throws Exception {
        encrypted.handler = (seen, out, socket) -> {
            if (seen.header("Upgrade") == null) {
                return RecordingOrigin.ordinary(seen, out, socket);
            }
            out.write(SWITCHED.getBytes());
            socket.getInputStream().transferTo(out);
            return false;
        };
        Carrier gateway = gateway(true, "");
        for (boolean isInPieces : new boolean[] {false, true}) {
            RawClient client = tls(gateway, isInPieces);
            client.send("PUT /two HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
            client.send("ab");
            client.send("cd");
            client.send("e");
            assertEquals("PUT /two HTTP/1.1|abcde", client.read().body());
            client.send(WebSocketContract.ASK);
            assertEquals(101, client.read().status());
            client.send("12");
            assertEquals("12", client.readText(2));
            for (String piece : List.of("34", "567", "89", "0", "ab", "c".repeat(20_002), "de")) {
                client.send(piece);
            }
            assertEquals("34567890ab", client.readText(10));
            assertTrue(client.readText(20_002).equals("c".repeat(20_002)));
            assertEquals("de", client.readText(2));
            client.socket.shutdownOutput();
            assertTrue(client.isClosed());
        }
    }

    @Test
    void an_early_response_over_tls_is_seen_behind_the_next_piece() throws Exception {
        int pieces = 3000;
        Carrier gateway = gateway(true, "");
        for (String framing : List.of("Content-Length: " + pieces, "Transfer-Encoding: chunked")) {
            CountDownLatch isAnswered = new CountDownLatch(1);
            CountDownLatch isOver = new CountDownLatch(1);
            closedLater(isOver::countDown);
            encrypted.readsBodies = false;
            encrypted.handler = (seen, out, socket) -> {
                RecordingOrigin.respond(out, 403, "", seen.line());
                isAnswered.countDown();
                if (seen.line().startsWith("GET")) {
                    return true;
                }
                RecordingOrigin.awaitQuietly(isOver);
                return false;
            };
            boolean isChunked = framing.startsWith("T");
            String piece = isChunked ? "1\r\n0\r\n" : "0";
            RawClient client = client(gateway, true);
            client.send("POST /early HTTP/1.1\r\nHost: a\r\n" + framing + "\r\n\r\n" + piece);
            assertTrue(isAnswered.await(60, TimeUnit.SECONDS));
            CountDownLatch hasResponse = new CountDownLatch(1);
            int[] sent = {1};
            Thread sender = new Thread(() -> {
                while (hasResponse.getCount() > 0 && sent[0] < pieces - 1) {
                    client.sendTolerant(piece, piece.length());
                    sent[0]++;
                    RecordingOrigin.awaitQuietly(hasResponse, 5);
                }
            });
            sender.start();
            assertEquals("POST /early HTTP/1.1", first(client, hasResponse).body());
            sender.join();
            assertTrue(sent[0] < pieces - 1, "it came with the last piece");
            client.send(piece.repeat(pieces - sent[0]) + (isChunked ? "0\r\n\r\n" : ""));
            assertEquals("GET /next HTTP/1.1", client.get("/next").body());
        }
    }

    @Test
    void a_tls_client_fills_no_memory_before_its_response() throws Exception {
        byte[] record = new byte[5 + 16 * 1024];
        System.arraycopy(new byte[] {23, 3, 3, 0x40, 0}, 0, record, 0, 5);
        CountDownLatch isAsked = new CountDownLatch(1);
        CountDownLatch mayGoOn = new CountDownLatch(1);
        closedLater(mayGoOn::countDown);
        origin.handler = (seen, out, socket) -> {
            if (seen.line().startsWith("GET /slow")) {
                isAsked.countDown();
                RecordingOrigin.awaitQuietly(mayGoOn);
            }
            return RecordingOrigin.ordinary(seen, out, socket);
        };
        Carrier gateway = start("[tls]\ncertificate = \"" + certificate.certificate + "\"\nkey = \"" + certificate.key
                + "\"\n[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n");
        RawClient client = client(gateway, true);
        client.socket.setSendBufferSize(64 * 1024);
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        assertTrue(isAsked.await(60, TimeUnit.SECONDS));
        // Never decrypted: what their bytes are shows only behind the response.
        Thread sender = new Thread(() -> {
            try {
                for (int i = 0; i < 200; i++) {
                    peers.sendBelow(client.socket, record);
                }
            } catch (IOException closed) {
                // Behind the response.
            }
        });
        sender.start();
        giveTurns(gateway, true, 150, () -> !sender.isAlive());
        assertTrue(sender.isAlive(), "all of it was taken");
        mayGoOn.countDown();
        assertEquals("GET /slow HTTP/1.1|", client.read().body());
        sender.join();
    }

    /** Requests on every loop, so that each looks at its other connections so often. */
    private void giveTurns(Carrier gateway, boolean isTls, int count, BooleanSupplier isEnough) throws IOException {
        List<RawClient> others = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            others.add(client(gateway, isTls));
        }
        for (int i = 0; i < count && !isEnough.getAsBoolean(); i++) {
            for (RawClient other : others) {
                assertEquals(200, other.get("/turn").status());
            }
        }
    }

    @Test
    void answers_of_the_gateway_itself_come_before_the_end_that_came_with_the_request() throws Exception {
        for (boolean isTls : new boolean[] {false, true}) {
            Carrier gateway = gateway(isTls, "[[filter]]\ntype = \"redirect\"\nprefix = \"/old\"\nreplacement = \"/new\"\n"
                    + "[[filter]]\ntype = \"static-response\"\nprefix = \"/none\"\nstatus = 404\nbody = \"no\"\n");
            assertEquals(List.of(302), atOnce(gateway, isTls, "/old"));
            assertEquals(List.of(404), atOnce(gateway, isTls, "/none"));
            assertEquals(List.of(404, 302), atOnce(gateway, isTls, "/none", "/old"));
            // Those behind the first wait, and go on together.
            assertEquals(List.of(200, 302, 404), atOnce(gateway, isTls, "/case", "/old", "/none"));
        }
    }

    /** The statuses of all answers to these requests and an end, which are sent in one piece. */
    private List<Integer> atOnce(Carrier gateway, boolean isTls, String... paths) throws IOException {
        RawClient client = client(gateway, isTls);
        askAndShut(client, isTls, paths);
        List<Integer> statuses = new ArrayList<>();
        for (RawClient.Answer answer = client.read(); answer.status() != 0; answer = client.read()) {
            statuses.add(answer.isComplete() ? answer.status() : 0);
        }
        return statuses;
    }

    private void askAndShut(RawClient client, boolean isTls, String... paths) throws IOException {
        if (isTls) {
            peers.collect(client.socket);
            for (String path : paths) {
                client.send("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
            }
            client.socket.shutdownOutput();
            peers.sendCollected(client.socket);
            return;
        }
        StringBuilder all = new StringBuilder();
        for (String path : paths) {
            all.append("GET ").append(path).append(" HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        client.send(all.toString());
        client.socket.shutdownOutput();
    }

    @Test
    void requests_wait_for_a_slow_reader_that_has_ended_its_half() throws Exception {
        // More than sockets take.
        int length = 64 * 1024;
        String[] paths = new String[100];
        Arrays.fill(paths, "/long");
        paths[99] = "/last";
        for (boolean isTls : new boolean[] {false, true}) {
            Carrier gateway = gateway(isTls, "[[filter]]\ntype = \"static-response\"\nprefix = \"/long\"\nbody = \""
                    + "x".repeat(length) + "\"\n", options());
            RawClient slow = client(gateway, isTls);
            askAndShut(slow, isTls, paths);
            slow.awaitByte();
            // Meanwhile the gateway sees the end, too.
            giveTurns(gateway, isTls, 20, () -> false);
            for (int i = 0; i < 99; i++) {
                assertEquals(length, slow.read().body().length(), "response " + i + (isTls ? " over TLS" : ""));
            }
            assertEquals("GET /last HTTP/1.1|", slow.read().body());
            assertTrue(slow.isClosed());
        }
    }

    private static RawClient.Answer first(RawClient client, CountDownLatch hasResponse) throws IOException {
        try {
            client.awaitByte();
        } finally {
            hasResponse.countDown();
        }
        return client.read();
    }
}
