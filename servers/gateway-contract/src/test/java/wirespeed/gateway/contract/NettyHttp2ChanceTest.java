// Heads of HTTP/2 made by chance: each is answered or refused, and an origin sees one meaning.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import wirespeed.gateway.netty.Main;
import wirespeed.gateway.runtime.Launcher;

@Timeout(240)
class NettyHttp2ChanceTest extends CarrierContract {
    private static final int HEADERS = 1;
    private static final int END = 5;
    private static final int TRIES = 600;
    /** The same each time: a failure can be looked at again. */
    private static final long SEED = 20261122;
    private static final String[] NAMES = {":method", ":path", ":scheme", ":authority", ":status",
        ":protocol", "host", "Host", "content-length", "transfer-encoding", "connection", "te",
        "x", "", "x y", "x\r\nGET /smuggled", "x:", "cookie", "expect", "upgrade", "x-forwarded-for"};
    private static final String[] VALUES = {"GET", "PUT", "/", "/a?b", "http", "a", "b:80", "", "0", "5",
        "chunked", "trailers", "100-continue", "x\r\ny: z", "x\ny", "x\0y", "//a/../..", "/a b",
        "/%2e%2e/", "*", "http://b/", "a, b", "h2c", "\u00e4", " a ", "websocket"};
    private static final String[] GET = {":method", "GET", ":scheme", "http", ":authority", "a",
        ":path", "/p"};

    private final Random random = new Random(SEED);
    private RawHttp2 client;
    private int stream;

    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("server.transport", "epoll", "server.threads", "1", "server.h2c", "true");
    }

    private void connect(Carrier gateway) throws IOException {
        if (client != null) {
            client.close();
        }
        client = closedLater(new RawHttp2(new Socket(gateway.address.getAddress(),
                gateway.address.getPort())));
        stream = 1;
    }

    /** A good head with some fields changed, added, left out or doubled. */
    private String[] fields() {
        List<String> fields = new ArrayList<>(List.of(GET));
        for (int i = random.nextInt(3); i > 0; i--) {
            int at = random.nextInt(fields.size() / 2 + 1) * 2;
            boolean isKept = at == fields.size() || random.nextBoolean();
            if (!isKept) {
                fields.subList(at, at + 2).clear();
            }
            if (isKept || random.nextBoolean()) {
                fields.add(at, VALUES[random.nextInt(VALUES.length)]);
                fields.add(at, NAMES[random.nextInt(NAMES.length)]);
            }
        }
        return fields.toArray(String[]::new);
    }

    private byte[] noise() {
        byte[] block = new byte[random.nextInt(40)];
        random.nextBytes(block);
        return block;
    }

    @Test
    void heads_made_by_chance_are_answered_or_refused_and_never_mean_two_things()
            throws Exception {
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\n");
        connect(gateway);
        int answered = 0;
        for (int i = 0; i < TRIES; i++) {
            int passed = origin.seen.size();
            RawHttp2.Answer answer = ask(i % 4 == 0);
            boolean isAnswered = answer.status() == 200;
            assertTrue(isAnswered || origin.seen.size() == passed || answer.status() >= 400,
                    "try " + i + ": status " + answer.status());
            answered += isAnswered ? 1 : 0;
            stream += 2;
            if (client.lastStream >= 0 || answer.heads().isEmpty()) {
                connect(gateway);
            }
        }
        assertTrue(answered > TRIES / 10, answered + " were answered");
        origin.seen.forEach(NettyHttp2ChanceTest::hasOneMeaning);
        connect(gateway);
        client.headers(1, true, GET);
        assertEquals(200, client.read(1).status());
    }

    private RawHttp2.Answer ask(boolean isNoise) throws Exception {
        try {
            if (isNoise) {
                client.frame(HEADERS, END, stream, noise());
            } else {
                client.headers(stream, true, fields());
            }
            return client.read(stream);
        } catch (java.net.SocketException reset) {
            return new RawHttp2.Answer(List.of(), "", -1);
        }
    }

    private static void hasOneMeaning(RecordingOrigin.Seen seen) {
        String head = seen.head();
        assertTrue(head.matches("(?s)[!-~]+ /[!-~]* HTTP/1\\.1\r\n([!-9;-~]+: [^\r\n\0]*\r\n)+\r\n"), head);
        long hosts = head.lines().filter(line -> line.toLowerCase().startsWith("host:")).count();
        assertEquals(1, hosts, head);
        assertTrue(seen.header("Transfer-Encoding") == null, head);
    }
}
