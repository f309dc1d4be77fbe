// Memory that the gateway keeps for its clients is bounded, and free again afterwards.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

abstract class BoundsContract extends CarrierContract {
    private static final int MIB = 1 << 20;
    @TempDir
    Path folder;

    private static long gauge(Carrier gateway, String name) {
        return gateway.runtime.gateway().gauges().get(name).getAsLong();
    }

    private static void await(BooleanSupplier isReached, String what) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!isReached.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, what);
            Thread.sleep(5);
        }
    }

    private static void await(CountDownLatch latch) throws IOException {
        try {
            assertTrue(latch.await(60, TimeUnit.SECONDS));
        } catch (InterruptedException e) {
            throw new IOException(e);
        }
    }

    /** A gateway whose filter reads the bodies of one direction whole. */
    private Carrier collecting(String direction, String more) throws IOException {
        Files.writeString(folder.resolve("Reads.java"), """
                import wirespeed.gateway.core.*;
                public class Reads implements Filter {
                    public Phase phase() { return Phase.PHASE; }
                    public int order() { return 5; }
                    public int DIRECTIONBodyBytesMax() { return 16 << 20; }
                    public Step apply(Context context) { return Step.NEXT; }
                }
                """.replace("PHASE", direction.equals("request") ? "PRE" : "POST")
                .replace("DIRECTION", direction));
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\nresponse = \"60s\"\n[filters]\nfolder = \"" + folder + "\"\n" + more);
    }

    @Test
    void a_part_of_a_body_is_not_held_while_filters_of_its_failure_wait() throws Exception {
        Files.writeString(folder.resolve("Waits.java"), """
                import java.util.concurrent.CompletableFuture;
                import java.util.concurrent.CountDownLatch;
                import wirespeed.gateway.core.*;
                public class Waits implements Filter {
                    public Phase phase() { return Phase.ERROR; }
                    public int order() { return 5; }
                    public Step apply(Context context) {
                        ((CountDownLatch) System.getProperties().get("FOLDER/waits")).countDown();
                        return Step.later((CompletableFuture<?>) System.getProperties()
                                .get("FOLDER/decides"), () -> Step.NEXT);
                    }
                }
                """.replace("FOLDER", folder.toString()));
        CountDownLatch waits = new CountDownLatch(1);
        CompletableFuture<Void> decides = new CompletableFuture<>();
        System.getProperties().put(folder + "/waits", waits);
        System.getProperties().put(folder + "/decides", decides);
        try {
            Carrier gateway = collecting("request", "");
            RawClient client = client(gateway);
            client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n"
                    + "b".repeat(1000) + "\r\n");
            await(() -> gauge(gateway, "held.bodies.bytes") > 0, "no part of the body has come");
            client.send("zz\r\n");
            await(waits);
            assertEquals(0, gauge(gateway, "held.bodies.bytes"));
            decides.complete(null);
            assertEquals(400, client.read().status());
        } finally {
            decides.complete(null);
            System.getProperties().remove(folder + "/waits");
            System.getProperties().remove(folder + "/decides");
        }
    }

    @Test
    void collected_request_bodies_count_until_their_exchange_ends() throws Exception {
        Carrier gateway = collecting("request", "[limits]\nheld-bodies = \"4MiB\"\n");
        CountDownLatch mayAnswer = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            await(mayAnswer);
            RecordingOrigin.respond(out, 200, "", "read");
            return true;
        };
        String post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + MIB / 2 + "\r\n\r\n"
                + "b".repeat(MIB / 2);
        List<RawClient> accepted = new ArrayList<>();
        int refused = 0;
        for (int i = 0; i < 20; i++) {
            RawClient client = client(gateway);
            client.send(post);
            int wanted = accepted.size() + 1;
            await(() -> origin.seen.size() >= wanted || isReadable(client), "neither of both");
            if (origin.seen.size() >= wanted) {
                accepted.add(client);
            } else {
                assertEquals(503, client.read().status());
                refused++;
            }
        }
        assertTrue(accepted.size() >= 6 && accepted.size() <= 9, accepted.size() + " accepted");
        assertTrue(refused >= 11, refused + " refused");
        assertTrue(gauge(gateway, "held.bodies.bytes") >= accepted.size() * (long) MIB / 2);
        mayAnswer.countDown();
        for (RawClient client : accepted) {
            assertEquals("read", client.read().body());
        }
        await(() -> gauge(gateway, "held.bodies.bytes") == 0, "the account is not empty");
        RawClient again = client(gateway);
        again.send(post);
        assertEquals("read", again.read().body());
    }

    private static boolean isReadable(RawClient client) {
        try {
            return client.socket.getInputStream().available() > 0;
        } catch (IOException gone) {
            return true;
        }
    }

    @Test
    void collected_response_bodies_count_until_their_client_has_taken_them() throws Exception {
        Carrier gateway = collecting("response", "[limits]\nheld-bodies = \"44MiB\"\n");
        String body = "b".repeat(12 * MIB);
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "", seen.line().contains("/big") ? body : "small");
            return true;
        };
        List<Socket> slow = new ArrayList<>();
        for (int i = 1; i <= 3; i++) {
            Socket socket = closedLater(new Socket());
            socket.setReceiveBufferSize(16 * 1024);
            socket.connect(gateway.address);
            socket.getOutputStream().write("GET /big HTTP/1.1\r\nHost: a\r\n\r\n".getBytes());
            // The head leaves when all of the body is there.
            socket.setSoTimeout(60_000);
            assertEquals('H', socket.getInputStream().read());
            slow.add(socket);
        }
        long held = gauge(gateway, "held.bodies.bytes");
        assertTrue(held >= 36L * MIB, held + " bytes are counted");
        assertEquals(503, client(gateway).get("/big").status());
        assertEquals("small", client(gateway).get("/small").body());
        for (Socket socket : slow) {
            socket.setSoLinger(true, 0);
            socket.close();
        }
        await(() -> gauge(gateway, "held.bodies.bytes") == 0, "the account is not empty");
        assertEquals(body.length(), client(gateway).get("/big").body().length());
        await(() -> gauge(gateway, "held.bodies.bytes") == 0, "the account is not empty");
    }

    @Test
    void responses_on_their_way_into_the_cache_are_bounded() throws Exception {
        int clients = 60;
        byte[] body = new byte[900 * 1024];
        CountDownLatch mayGoOn = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            out.write(("HTTP/1.1 200 X\r\nCache-Control: max-age=60\r\nContent-Length: "
                    + body.length + "\r\n\r\n").getBytes(StandardCharsets.US_ASCII));
            out.write(body, 0, body.length - 1000);
            out.flush();
            await(mayGoOn);
            out.write(body, 0, 1000);
            return true;
        };
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\nbody-idle = \"60s\"\n[cache]\nenabled = true\nsize = \"4MiB\"\n");
        long before = usedHeap();
        List<Socket> all = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            Socket socket = closedLater(new Socket());
            socket.connect(gateway.address);
            socket.setSoTimeout(60_000);
            ask(socket.getOutputStream(), "/" + i);
            all.add(socket);
        }
        for (Socket socket : all) {
            skip(socket, body.length - 1000);
        }
        long grown = usedHeap() - before;
        assertTrue(grown < 25L * MIB, grown + " bytes for a cache of 4 MiB");
        mayGoOn.countDown();
        for (Socket socket : all) {
            skip(socket, 1000);
        }
        await(() -> gauge(gateway, "cache.collecting.bytes") == 0, "the account is not empty");
        RawClient client = client(gateway);
        assertEquals(body.length, client.get("/again").body().length());
        assertEquals(body.length, client.get("/again").body().length());
        assertEquals(clients + 1, origin.seen.size());
    }

    private static void ask(OutputStream out, String path) throws IOException {
        out.write(("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n").getBytes());
    }

    private static void skip(Socket socket, int count) throws IOException {
        byte[] waste = new byte[65536];
        for (int left = count; left > 0;) {
            int read = socket.getInputStream().read(waste, 0, Math.min(left, waste.length));
            assertTrue(read > 0, "the answer was cut");
            left -= read;
        }
    }

    private static long usedHeap() throws InterruptedException {
        long least = Long.MAX_VALUE;
        for (int i = 0; i < 3; i++) {
            System.gc();
            Thread.sleep(20);
            least = Math.min(least, Runtime.getRuntime().totalMemory()
                    - Runtime.getRuntime().freeMemory());
        }
        return least;
    }
    private static long threads(String name) {
        return Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().equals(name)).count();
    }

    @Test
    void a_long_stream_keeps_its_own_configuration_and_no_later_one() throws Exception {
        CountDownLatch mayEnd = new CountDownLatch(1);
        origin.handler = (seen, out, socket) -> {
            if (seen.line().contains("/stream")) {
                out.write("HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n".getBytes());
                out.flush();
                await(mayEnd);
                out.write("0\r\n\r\n".getBytes());
                return true;
            }
            if (seen.line().contains("/ws")) {
                out.write(("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
                        + "\r\n").getBytes());
                return socket.getInputStream().read() == 'q';
            }
            return RecordingOrigin.ordinary(seen, out, socket);
        };
        Path log = folder.resolve("access.log");
        String toml = "[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\nbody-idle = \"60s\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[[filter]]\n"
                + "type = \"access-log\"\nfile = \"" + log + "\"\n";
        Carrier gateway = start(toml);
        RawClient socket = client(gateway);
        socket.send("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                + "Sec-WebSocket-Version: 13\r\n\r\n");
        assertEquals(101, socket.read().status());
        RawClient stream = client(gateway);
        stream.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
        assertEquals('H', stream.readByte());
        long before = threads("access-log");
        for (int i = 0; i < 20; i++) {
            admin(gateway, toml + "name = \"log-" + i + "\"\n");
            assertEquals(200, client(gateway).get("/" + i).status());
        }
        await(() -> threads("access-log") <= before + 2, "logs of configurations out of use"
                + " are still open");
        mayEnd.countDown();
        socket.send("q");
        stream.close();
        socket.close();
        await(() -> threads("access-log") <= before, "the first log is still open");
        await(() -> isLogged(log, "/stream") && isLogged(log, "/19"), "a line is missing");
    }

    private static boolean isLogged(Path log, String path) {
        try {
            return Files.readString(log).contains(path);
        } catch (IOException unreadable) {
            throw new java.io.UncheckedIOException(unreadable);
        }
    }

    private static void admin(Carrier gateway, String toml) throws IOException {
        InetSocketAddress port = gateway.runtime.adminAddress();
        try (RawClient client = new RawClient(port)) {
            client.send("GET /config HTTP/1.1\r\nHost: localhost\r\n\r\n");
            String tag = client.read().header("ETag");
            client.send("PUT /config HTTP/1.1\r\nHost: localhost\r\nIf-Match: " + tag
                    + "\r\nContent-Length: " + toml.length() + "\r\n\r\n" + toml);
            assertEquals(200, client.read().status());
        }
    }
}
