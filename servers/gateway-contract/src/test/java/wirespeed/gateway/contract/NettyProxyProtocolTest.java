// PROXY headers of load balancers: valid, invalid, and from untrusted peers.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Map;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.netty.Main;
import wirespeed.gateway.runtime.Launcher;

class NettyProxyProtocolTest extends CarrierContract {
    private static final String GET = "GET /p HTTP/1.1\r\nHost: a\r\n\r\n";
    private static final String SIGNATURE = "\r\n\r\n\0\r\nQUIT\n";

    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("server.threads", "1");
    }

    private Carrier from(String networks, String head) {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n"
                + "[server]\nproxy-protocol = [" + networks + "]\n[timeouts]\nhead = \"" + head
                + "\"\n");
    }

    private String clientOf(Carrier gateway, String header) throws IOException {
        RawClient client = client(gateway);
        client.send(header + GET);
        assertEquals(200, client.read().status());
        client.send(GET);
        assertEquals(200, client.read().status());
        return origin.seen.get(origin.seen.size() - 1).header("X-Forwarded-For");
    }

    @Test
    void the_header_names_the_client() throws IOException {
        Carrier gateway = from("\"127.0.0.0/8\"", "1m");
        assertEquals("192.0.2.7", clientOf(gateway,
                "PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n"));
        assertEquals("2001:db8:0:0:0:0:0:7", clientOf(gateway,
                "PROXY TCP6 2001:db8::7 2001:db8::1 4711 80\r\n"));
        assertEquals("192.0.2.8", clientOf(gateway, SIGNATURE + "\u0021\u0011\0\u000c"
                + "\u00c0\0\u0002\u0008\u00c6\u0033\u0064\u0001\u0012\u0067\0P"));
        assertEquals("127.0.0.1", clientOf(gateway, "PROXY UNKNOWN\r\n"));
        assertEquals("127.0.0.1", clientOf(gateway, SIGNATURE + "\u0020\0\0\0"));
    }

    /** The spelling of connections: one client has one address in limits and logs. */
    @Test
    void a_client_has_one_address_however_the_header_writes_it() throws IOException {
        Carrier gateway = from("\"127.0.0.0/8\"", "1m");
        for (String mapped : new String[] {"::ffff:10.0.0.7", "::FFFF:a00:7", "0:0:0:0:0:ffff:10.0.0.7"}) {
            assertEquals("10.0.0.7", clientOf(gateway,
                    "PROXY TCP6 " + mapped + " ::ffff:10.0.0.1 4000 80\r\n"), mapped);
        }
        assertEquals("10.0.0.7", clientOf(gateway, SIGNATURE + "\u0021\u0021\0\u0024"
                + "\0".repeat(10) + "\u00ff\u00ff\n\0\0\7" + "\0".repeat(10) + "\u00ff\u00ff\n\0\0\1"
                + "\u0012\u0067\0P"));
        assertEquals("2001:db8:0:0:0:0:0:7", clientOf(gateway,
                "PROXY TCP6 2001:DB8:0::7 2001:db8::1 4711 80\r\n"));
    }

    @Test
    void an_invalid_header_does_not_pass_as_a_request() throws IOException {
        Carrier gateway = from("\"127.0.0.1\"", "2s");
        for (String bad : new String[] {GET, "PROXY TCP4 somehost 198.51.100.1 1 80\r\n" + GET,
            "PROXY TCP4 192.0.2.7 198.51.100.1 4711 800000\r\n" + GET, "PROXY "}) {
            RawClient client = client(gateway);
            client.send(bad);
            assertTrue(client.isClosed(), bad);
        }
        assertEquals(0, origin.seen.size());
    }

    @Test
    void each_listener_has_its_own_balancers() throws IOException {
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n"
                + "[timeouts]\nhead = \"1m\"\n[[listener]]\nlisten = \"127.0.0.1:0\"\n"
                + "proxy-protocol = [\"127.0.0.0/8\"]\n");
        String header = "PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n";
        RawClient direct = client(gateway);
        direct.send(header + GET);
        assertEquals(400, direct.read().status());
        assertEquals("127.0.0.1", clientOf(gateway, ""));
        RawClient behind = closedLater(new RawClient(gateway.addresses.get(1)));
        behind.send(header + GET);
        assertEquals(200, behind.read().status());
        assertEquals("192.0.2.7", origin.seen.get(2).header("X-Forwarded-For"));
    }

    @Test
    void unknown_peers_cannot_name_a_client() throws IOException {
        Carrier gateway = from("\"192.0.2.0/24\"", "1m");
        RawClient client = client(gateway);
        client.send("PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n" + GET);
        assertEquals(400, client.read().status());
        assertEquals(0, origin.seen.size());
    }
}
