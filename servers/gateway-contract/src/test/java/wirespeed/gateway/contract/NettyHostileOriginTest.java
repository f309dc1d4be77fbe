// Hostile origins of HTTP/2: they cost others nothing, and memory stays bounded.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.util.internal.PlatformDependent;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.Timeout;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.netty.Main;
import wirespeed.gateway.runtime.Launcher;

class NettyHostileOriginTest extends CarrierContract {
    private static final int CLIENTS = 8;
    private static final long MEMORY_BYTES_MAX = 48L << 20;
    private static final int FRAMES = 1000;

    /**
     * The behaviour of an origin.
     *
     * @param body of each request
     * @param isServed whether requests are answered all the same
     * @param connectionsMax that the gateway may open for its requests and their second attempts
     */
    private record Case(String name, String body, boolean isServed, int connectionsMax,
            RawHttp2Origin.Script script) {
    }

    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("server.transport", "epoll", "server.threads", "1");
    }

    private static Case refused(String name, RawHttp2Origin.Script script) {
        return new Case(name, "", false, 4 * CLIENTS, connection -> {
            connection.frame(RawHttp2Origin.SETTINGS, 0, 0);
            script.run(connection);
        });
    }

    private static List<Case> cases() {
        return List.of(
                refused("a storm of GOAWAY", c -> {
                    c.await(RawHttp2Origin.HEADERS);
                    flood(c, RawHttp2Origin.GOAWAY, 0, 0, 0, 0, 99, 0, 0, 0, 0);
                }),
                refused("GOAWAY before anything else, and nothing more", c -> {
                    c.frame(RawHttp2Origin.GOAWAY, 0, 0, new byte[8]);
                    readOn(c);
                }),
                refused("a flood of SETTINGS", c -> flood(c, RawHttp2Origin.SETTINGS, 0)),
                refused("a flood of PING", c -> flood(c, RawHttp2Origin.PING, 0, new byte[8])),
                refused("a flood of frames of no known type", c -> flood(c, 99, 0, new byte[50])),
                refused("RST_STREAM for each request", c -> {
                    while (true) {
                        int stream = c.await(RawHttp2Origin.HEADERS).stream();
                        c.frame(RawHttp2Origin.RST_STREAM, 0, stream, (byte) 0, (byte) 0,
                                (byte) 0, (byte) 2);
                    }
                }),
                refused("RST_STREAM without end, for one request", c -> {
                    int stream = c.await(RawHttp2Origin.HEADERS).stream();
                    flood(c, RawHttp2Origin.RST_STREAM, stream, 0, 0, 0, 2);
                }),
                refused("RST_STREAM for streams that were not opened", c -> {
                    c.await(RawHttp2Origin.HEADERS);
                    flood(c, RawHttp2Origin.RST_STREAM, 2001, 0, 0, 0, 2);
                }),
                refused("CONTINUATION without end", c -> {
                    int stream = c.await(RawHttp2Origin.HEADERS).stream();
                    c.frame(RawHttp2Origin.HEADERS, 0, stream, (byte) 0x88);
                    flood(c, RawHttp2Origin.CONTINUATION, stream, new byte[0]);
                }),
                refused("a head of some MiB", c -> {
                    int stream = c.await(RawHttp2Origin.HEADERS).stream();
                    byte[] field = new byte[16_000];
                    java.util.Arrays.fill(field, (byte) 'x');
                    // A literal: name "x", and a value of 15,994 bytes.
                    System.arraycopy(new byte[] {0, 1, 'x', 0x7f, (byte) 0xfb, 0x7b}, 0, field, 0, 6);
                    c.frame(RawHttp2Origin.HEADERS, 0, stream, (byte) 0x88);
                    flood(c, RawHttp2Origin.CONTINUATION, stream, field);
                }),
                refused("a small block that grows to a large head", c -> {
                    int stream = c.await(RawHttp2Origin.HEADERS).stream();
                    byte[] block = new byte[16_000];
                    // A field of 3,000 bytes enters the table, and is named again and again.
                    System.arraycopy(new byte[] {(byte) 0x88, 0x40, 1, 'x', 0x7f, (byte) 0xb9, 0x16},
                            0, block, 0, 7);
                    java.util.Arrays.fill(block, 7, 7 + 3000, (byte) 'y');
                    java.util.Arrays.fill(block, 7 + 3000, block.length, (byte) 0xbe);
                    c.frame(RawHttp2Origin.HEADERS, RawHttp2Origin.END_HEADERS, stream, block);
                    readOn(c);
                }),
                new Case("a window that never opens", "x".repeat(200_000), false, 4 * CLIENTS,
                        c -> {
                            // SETTINGS_INITIAL_WINDOW_SIZE = 0.
                            c.frame(RawHttp2Origin.SETTINGS, 0, 0, (byte) 0, (byte) 4, (byte) 0,
                                    (byte) 0, (byte) 0, (byte) 0);
                            readOn(c);
                        }),
                refused("a window that grows beyond its limit", c -> {
                    c.await(RawHttp2Origin.HEADERS);
                    flood(c, 8, 0, 0x7f, 0xff, 0xff, 0xff);
                }),
                refused("more DATA than the window allows", c -> {
                    int stream = c.await(RawHttp2Origin.HEADERS).stream();
                    c.frame(RawHttp2Origin.HEADERS, RawHttp2Origin.END_HEADERS, stream,
                            (byte) 0x88);
                    // Of a stream that its client does not read, and that is not ours.
                    flood(c, RawHttp2Origin.DATA, stream + 2, new byte[16_000]);
                }),
                refused("no stream allowed", c -> {
                    // SETTINGS_MAX_CONCURRENT_STREAMS = 0.
                    c.frame(RawHttp2Origin.SETTINGS, 0, 0, (byte) 0, (byte) 3, (byte) 0, (byte) 0,
                            (byte) 0, (byte) 0);
                    readOn(c);
                }),
                new Case("a good one, for comparison", "", true, CLIENTS, c -> {
                    c.frame(RawHttp2Origin.SETTINGS, 0, 0);
                    while (true) {
                        c.answer(c.await(RawHttp2Origin.HEADERS).stream(), "good");
                    }
                }));
    }

    private static void readOn(RawHttp2Origin.Connection connection) throws Exception {
        while (true) {
            connection.read();
        }
    }

    private static void flood(RawHttp2Origin.Connection connection, int type, int stream,
            int... payload) throws Exception {
        byte[] bytes = new byte[payload.length];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) payload[i];
        }
        flood(connection, type, stream, bytes);
    }

    /** Until the gateway closes; what it sends is not read, so its answers pile up. */
    private static void flood(RawHttp2Origin.Connection connection, int type, int stream,
            byte[] payload) throws Exception {
        while (true) {
            connection.frames(FRAMES, type, 0, stream, payload);
        }
    }

    @TestFactory
    @Timeout(240)
    Stream<DynamicTest> a_hostile_origin_harms_only_its_own_requests() {
        return cases().stream().map(one -> DynamicTest.dynamicTest(one.name(), () -> endure(one)));
    }

    /** The detector reports what was lost when the next buffer is made after a collection. */
    private void endure(Case one) throws Exception {
        // Buffers that earlier tests have lost do not count here.
        reportLost();
        try (LogEar log = new LogEar()) {
            endureAll(one);
            reportLost();
            assertEquals(List.of(), log.lost);
        }
    }

    private static void reportLost() throws InterruptedException {
        System.gc();
        Thread.sleep(50);
        io.netty.buffer.Unpooled.directBuffer(16).release();
        io.netty.buffer.ByteBufAllocator.DEFAULT.directBuffer(16).release();
    }

    private void endureAll(Case one) throws Exception {
        // Who is to be answered is waited for, however slow the machine is.
        String patience = one.isServed() ? "1m" : "1s";
        try (RawHttp2Origin hostile = new RawHttp2Origin(one.script());
                Carrier gateway = new Carrier(factory(), options(), "[origins.bad]\n"
                        + "addresses = [\"127.0.0.1:" + hostile.port() + "\"]\n"
                        + "http2 = \"prior-knowledge\"\nresponse = \"" + patience + "\"\nbody-idle = \""
                        + patience + "\"\n"
                        + "[origins.good]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n"
                        + "[[route]]\nprefix = \"/bad\"\norigins = [\"bad\"]\n"
                        + "[[route]]\norigins = [\"good\"]\n[timeouts]\npool-wait = \"" + patience
                        + "\"\n")) {
            long before = PlatformDependent.usedDirectMemory();
            List<RawClient> clients = new ArrayList<>();
            for (int i = 0; i < CLIENTS; i++) {
                clients.add(gateway.client());
                ask(clients.get(i), one.body());
            }
            for (int i = 0; i < CLIENTS; i++) {
                assertEquals("GET /" + i + " HTTP/1.1|", gateway.client().get("/" + i).body());
            }
            for (RawClient client : clients) {
                RawClient.Answer answer = client.read();
                boolean isRefused = answer.status() >= 502 && answer.status() <= 504;
                assertTrue(one.isServed() ? answer.status() == 200
                        : isRefused || !answer.isComplete(), "status " + answer.status());
                client.close();
            }
            assertEquals(200, gateway.client().get("/after").status());
            long grown = PlatformDependent.usedDirectMemory() - before;
            assertTrue(grown < MEMORY_BYTES_MAX, grown + " bytes more");
            assertTrue(hostile.connections.get() <= one.connectionsMax(),
                    hostile.connections + " connections");
        }
    }

    @Test
    @Timeout(240)
    void an_address_that_resets_every_stream_is_ejected() throws Exception {
        RawHttp2Origin bad = closedLater(new RawHttp2Origin(c -> {
            c.frame(RawHttp2Origin.SETTINGS, 0, 0);
            while (true) {
                // INTERNAL_ERROR, on a connection that stays.
                c.frame(RawHttp2Origin.RST_STREAM, 0, c.await(RawHttp2Origin.HEADERS).stream(),
                        (byte) 0, (byte) 0, (byte) 0, (byte) 2);
            }
        }));
        RawHttp2Origin good = closedLater(new RawHttp2Origin(c -> {
            c.frame(RawHttp2Origin.SETTINGS, 0, 0);
            while (true) {
                c.answer(c.await(RawHttp2Origin.HEADERS).stream(), "good");
            }
        }));
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + bad.port()
                + "\", \"127.0.0.1:" + good.port() + "\"]\nbalance = \"round-robin\"\n"
                + "http2 = \"prior-knowledge\"\n");
        int lost = 0;
        long begin = System.nanoTime();
        for (int i = 0; i < 40; i++) {
            RawClient client = client(gateway);
            // A method that is not repeated: each reset is seen.
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
            lost += client.read().status() == 200 ? 0 : 1;
        }
        // Five in a row eject an address; every ten seconds it gets one more request.
        long probes = (System.nanoTime() - begin) / 10_000_000_000L;
        assertTrue(lost >= 5 && lost <= 5 + probes, lost + " requests lost");
    }

    @Test
    @Timeout(240)
    void a_request_learns_at_once_that_its_origin_was_cut_for_a_flood() throws Exception {
        RawHttp2Origin hostile = closedLater(new RawHttp2Origin(c -> {
            c.frame(RawHttp2Origin.SETTINGS, 0, 0);
            c.await(RawHttp2Origin.HEADERS);
            flood(c, 99, 0, new byte[50]);
        }));
        // Nobody waits for an answer of ten minutes here.
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + hostile.port()
                + "\"]\nhttp2 = \"prior-knowledge\"\nresponse = \"10m\"\n[timeouts]\nexchange = \"10m\"\n");
        RawClient client = client(gateway);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assertEquals(502, client.read().status());
        awaitNone(gateway, Meters.Count.ORIGIN_CONNECTIONS_OPEN);
    }

    private static void awaitNone(Carrier gateway, Meters.Count count) throws Exception {
        long end = System.nanoTime() + 60_000_000_000L;
        while (gateway.runtime.gateway().meters().stream().mapToLong(one -> one.get(count)).sum() > 0) {
            assertTrue(System.nanoTime() < end, count + " never fell to none");
            Thread.sleep(5);
        }
    }

    private static void ask(RawClient client, String body) {
        client.sendTolerant("PUT /bad HTTP/1.1\r\nHost: a\r\nContent-Length: " + body.length()
                + "\r\n\r\n" + body, 65536);
    }
}
