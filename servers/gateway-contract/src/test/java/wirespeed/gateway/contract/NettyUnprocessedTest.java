// Requests that an origin of HTTP/2 says it has not processed; gateway-netty only.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import wirespeed.gateway.netty.Main;
import wirespeed.gateway.runtime.Launcher;

@Timeout(240)
class NettyUnprocessedTest extends CarrierContract {
    private static final byte[] REFUSED_STREAM = {0, 0, 0, 7};
    private static final byte[] CANCEL = {0, 0, 0, 8};

    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("server.transport", "epoll", "server.threads", "1");
    }

    private Carrier gateway(RawHttp2Origin... origins) {
        StringBuilder addresses = new StringBuilder();
        for (RawHttp2Origin one : origins) {
            addresses.append(addresses.length() == 0 ? "" : ", ").append("\"127.0.0.1:")
                    .append(one.port()).append('"');
        }
        return start("[origins.o]\naddresses = [" + addresses
                + "]\nhttp2 = \"prior-knowledge\"\n");
    }

    private RawHttp2Origin origin(RawHttp2Origin.Script script) throws Exception {
        return closedLater(new RawHttp2Origin(connection -> {
            connection.frame(RawHttp2Origin.SETTINGS, 0, 0);
            script.run(connection);
        }));
    }

    /** Answers each request with its body. */
    private static void echo(RawHttp2Origin.Connection connection) throws Exception {
        while (true) {
            RawHttp2Origin.Frame head = connection.await(RawHttp2Origin.HEADERS);
            StringBuilder body = new StringBuilder();
            boolean isEnd = (head.flags() & RawHttp2Origin.END_STREAM) != 0;
            while (!isEnd) {
                RawHttp2Origin.Frame data = connection.await(RawHttp2Origin.DATA);
                body.append(new String(data.payload(), StandardCharsets.ISO_8859_1));
                isEnd = (data.flags() & RawHttp2Origin.END_STREAM) != 0;
            }
            connection.answer(head.stream(), "got " + body);
        }
    }

    private static String post(String body) {
        return "POST /rpc HTTP/1.1\r\nHost: a\r\nContent-Length: " + body.length() + "\r\n\r\n"
                + body;
    }

    @Test
    void a_post_that_was_refused_is_sent_again() throws Exception {
        AtomicInteger refused = new AtomicInteger();
        RawHttp2Origin one = origin(connection -> {
            while (refused.getAndIncrement() == 0) {
                connection.frame(RawHttp2Origin.RST_STREAM, 0,
                        connection.await(RawHttp2Origin.HEADERS).stream(), REFUSED_STREAM);
            }
            echo(connection);
        });
        Carrier gateway = gateway(one);
        RawClient client = client(gateway);
        client.send(post("once"));
        assertEquals("got once", client.read().body());
        assertFalse(gateway.runtime.gateway().snapshot().origins().get("o").addresses().get(0)
                .breaker().isOpen());
    }

    @Test
    void a_post_behind_the_last_stream_of_a_goaway_is_sent_again() throws Exception {
        AtomicInteger connections = new AtomicInteger();
        RawHttp2Origin one = origin(connection -> {
            if (connections.getAndIncrement() == 0) {
                connection.await(RawHttp2Origin.HEADERS);
                // It has looked at none.
                connection.frame(RawHttp2Origin.GOAWAY, 0, 0, new byte[8]);
                while (true) {
                    connection.read();
                }
            }
            echo(connection);
        });
        RawClient client = client(gateway(one));
        client.send(post("twice"));
        assertEquals("got twice", client.read().body());
        assertEquals(2, connections.get());
    }

    @Test
    void a_post_that_is_refused_while_its_client_still_sends_goes_on_whole() throws Exception {
        CountDownLatch isRefused = new CountDownLatch(1);
        RawHttp2Origin one = origin(connection -> {
            if (isRefused.getCount() > 0) {
                int stream = connection.await(RawHttp2Origin.DATA).stream();
                connection.frame(RawHttp2Origin.RST_STREAM, 0, stream, REFUSED_STREAM);
                isRefused.countDown();
            }
            echo(connection);
        });
        RawClient client = client(gateway(one));
        client.send("POST /rpc HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nfirst");
        isRefused.await(60, TimeUnit.SECONDS);
        Thread.sleep(50);
        client.send("-next");
        assertEquals("got first-next", client.read().body());
    }

    @Test
    void an_origin_that_refuses_everything_is_asked_twice_and_not_without_end()
            throws Exception {
        AtomicInteger refused = new AtomicInteger();
        RawHttp2Origin full = origin(connection -> {
            while (true) {
                int stream = connection.await(RawHttp2Origin.HEADERS).stream();
                refused.incrementAndGet();
                connection.frame(RawHttp2Origin.RST_STREAM, 0, stream, REFUSED_STREAM);
            }
        });
        RawClient alone = client(gateway(full));
        alone.send(post("x"));
        assertEquals(502, alone.read().status());
        assertEquals(2, refused.get(), "once more, and not without end");
    }

    @Test
    void a_post_that_was_reset_otherwise_is_not_sent_again() throws Exception {
        AtomicInteger asked = new AtomicInteger();
        RawHttp2Origin one = origin(connection -> {
            while (true) {
                int stream = connection.await(RawHttp2Origin.HEADERS).stream();
                asked.incrementAndGet();
                connection.frame(RawHttp2Origin.RST_STREAM, 0, stream, CANCEL);
            }
        });
        RawClient client = client(gateway(one));
        client.send(post("x"));
        assertEquals(502, client.read().status());
        assertEquals(1, asked.get());
    }
}
