// A name is the addresses that it leads to, on every carrier.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import javax.net.ssl.SSLServerSocket;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Origin;
import wirespeed.gateway.runtime.ShortSeconds;

abstract class EndpointContract extends CarrierContract {
    @BeforeEach
    void hurry() {
        closedLater(new ShortSeconds(20));
    }

    private RecordingOrigin at(int last) throws IOException {
        return closedLater(new RecordingOrigin(new ServerSocket(origin.port(), 50,
                InetAddress.getByName("127.0.0." + last))));
    }

    private Carrier gateway(NameServer names, String more) {
        return start("[server]\ndns = [\"127.0.0.1:" + names.port() + "\"]\n[origins.o]\n"
                + "addresses = [\"shop.test:" + origin.port() + "\"]\n" + more);
    }

    private static List<String> endpoints(Carrier gateway) {
        Origin shop = gateway.runtime.gateway().snapshot().origins().get("o");
        return shop.endpoints().stream().map(one -> one.host()).toList();
    }

    private static void awaitEndpoints(Carrier gateway, String... wanted) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!endpoints(gateway).equals(List.of(wanted))) {
            assertTrue(System.nanoTime() < end, () -> endpoints(gateway).toString());
            Thread.sleep(10);
        }
    }

    /** Each on a connection of its own: Tomcat closes one after a 500. */
    private int failures(Carrier gateway, int requests) throws IOException {
        int failed = 0;
        for (int i = 0; i < requests; i++) {
            try (RawClient client = gateway.client()) {
                failed += client.get("/" + i).status() == 200 ? 0 : 1;
            }
        }
        return failed;
    }

    /** The same of requests that wait for their answers at one time. */
    private int failuresAtOnce(Carrier gateway, int requests) throws IOException {
        List<RawClient> clients = new ArrayList<>();
        for (int i = 0; i < requests; i++) {
            RawClient client = client(gateway);
            client.send("GET /" + i + " HTTP/1.1\r\nHost: a\r\n\r\n");
            clients.add(client);
        }
        int failed = 0;
        for (RawClient client : clients) {
            failed += client.read().status() == 200 ? 0 : 1;
        }
        return failed;
    }

    @Test
    void a_bad_endpoint_of_a_name_is_left_out_and_the_others_serve() throws Exception {
        RecordingOrigin second = at(2);
        RecordingOrigin failing = at(3);
        RecordingOrigin silent = at(4);
        failing.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 500, "", "");
            return true;
        };
        silent.handler = (seen, out, socket) -> true;
        NameServer names = closedLater(new NameServer(1));
        names.more = 2;
        names.others = new int[] {3, 4};
        Carrier gateway = gateway(names, "eject-on-5xx = true\nresponse = \"5s\"\n"
                + "balance = \"round-robin\"\n[admin]\nlisten = \"127.0.0.1:0\"\n");
        awaitEndpoints(gateway, "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4");
        // Five in a row take one out; a silent one's requests, which wait together, are asked elsewhere.
        long begin = System.nanoTime();
        int failed = failuresAtOnce(gateway, 20);
        assertTrue(failed <= 5 + probes(begin), failed + " failures");
        failed = failures(gateway, 60);
        assertTrue(failed <= probes(begin), failed + " failures after both were ejected");
        assertTrue(origin.seen.size() > 20 && second.seen.size() > 20);
        RawClient admin = closedLater(new RawClient(gateway.runtime.adminAddress()));
        admin.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        String page = admin.read().body();
        String labels = "{origin=\"o\",address=\"shop.test:" + origin.port()
                + "\",endpoint=\"127.0.0.3:" + origin.port() + "\"}";
        assertTrue(page.contains("wirespeed_gateway_endpoint_up" + labels + " 0"), page);
        assertTrue(page.contains("wirespeed_gateway_endpoint_failures_total" + labels), page);
    }

    /** An ejected endpoint gets a request every ten seconds; a busy machine needs longer than that. */
    private static long probes(long sinceNanos) {
        return TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - sinceNanos) / 10;
    }

    @Test
    void endpoints_come_and_go_with_the_name() throws Exception {
        RecordingOrigin second = at(2);
        NameServer names = closedLater(new NameServer(1));
        Carrier gateway = gateway(names, "slow-start = \"0ms\"\n");
        awaitEndpoints(gateway, "127.0.0.1");
        assertEquals(0, failures(gateway, 10));
        assertEquals(10, origin.seen.size());
        names.more = 2;
        awaitEndpoints(gateway, "127.0.0.1", "127.0.0.2");
        assertEquals(0, failures(gateway, 40));
        assertTrue(!second.seen.isEmpty());
        names.last = 2;
        names.more = 0;
        awaitEndpoints(gateway, "127.0.0.2");
        int before = origin.seen.size();
        assertEquals(0, failures(gateway, 10));
        assertEquals(before, origin.seen.size());
        assertEquals("shop.test:" + origin.port(), head(gateway, second));
    }

    @Test
    void an_answer_to_another_question_leads_nowhere() throws Exception {
        NameServer names = closedLater(new NameServer(1));
        names.isForged = true;
        Carrier gateway = gateway(names, "");
        awaitEndpoints(gateway, "127.0.0.1");
        assertEquals(0, failures(gateway, 5));
    }

    @Test
    void the_servers_of_a_service_have_ports_weights_and_reserves() throws Exception {
        RecordingOrigin light = closedLater(new RecordingOrigin());
        RecordingOrigin reserve = closedLater(new RecordingOrigin());
        NameServer names = closedLater(new NameServer(1));
        names.targets = new int[][] {{10, 90, origin.port()}, {10, 10, light.port()},
            {20, 0, reserve.port()}};
        Carrier gateway = start("[server]\ndns = [\"127.0.0.1:" + names.port() + "\"]\n[origins.o]\n"
                + "addresses = [\"_http._tcp.shop.test\"]\nbalance = \"round-robin\"\n"
                + "preserve-host = false\nslow-start = \"0ms\"\n");
        awaitEndpoints(gateway, "127.0.0.1", "127.0.0.1", "127.0.0.1");
        assertEquals(0, failures(gateway, 111));
        assertEquals(0, reserve.seen.size());
        assertEquals(11, light.seen.size());
        assertEquals("shop.test", origin.seen.get(0).header("Host"));
        names.targets = new int[][] {{20, 0, reserve.port()}};
        awaitEndpoints(gateway, "127.0.0.1");
        assertEquals(0, failures(gateway, 5));
        assertEquals(5, reserve.seen.size());
        names.targets = new int[][] {};
        awaitEndpoints(gateway, "_http._tcp.shop.test");
        assertEquals(5, failures(gateway, 5));
    }

    @Test
    void a_server_of_a_service_is_looked_up_again_when_its_address_has_expired() throws Exception {
        NameServer names = closedLater(new NameServer(1));
        names.seconds = 60;
        names.targets = new int[][] {{10, 1, origin.port()}};
        Carrier gateway = start("[server]\ndns = [\"127.0.0.1:" + names.port() + "\"]\n[origins.o]\n"
                + "addresses = [\"_http._tcp.shop.test\"]\n");
        awaitEndpoints(gateway, "127.0.0.1");
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(120);
        while (names.services.get() < 4) {
            assertTrue(System.nanoTime() < end, "the service is not asked for again");
            Thread.sleep(10);
        }
        // It was asked for each second, its server once for at most 30 of them.
        assertTrue(2 * names.addresses.get() <= names.services.get(), names.addresses + " times");
        assertEquals(0, failures(gateway, 5));
    }

    @Test
    void a_question_that_the_network_loses_is_asked_again() throws Exception {
        NameServer names = closedLater(new NameServer(1));
        names.isFirstLost = true;
        Carrier gateway = gateway(names, "");
        awaitEndpoints(gateway, "127.0.0.1");
        assertEquals(0, failures(gateway, 5));
    }

    @Test
    void a_server_of_a_service_stays_while_its_name_is_not_answered() throws Exception {
        RecordingOrigin other = closedLater(new RecordingOrigin());
        NameServer names = closedLater(new NameServer(1));
        // Otherwise the resolver knows its address, and does not ask.
        names.seconds = 0;
        names.targets = new int[][] {{10, 1, origin.port()}, {10, 1, other.port()}};
        Carrier gateway = start("[server]\ndns = [\"127.0.0.1:" + names.port() + "\"]\n[origins.o]\n"
                + "addresses = [\"_http._tcp.shop.test\"]\nbalance = \"round-robin\"\n"
                + "slow-start = \"0ms\"\n");
        awaitEndpoints(gateway, "127.0.0.1", "127.0.0.1");
        names.silentAbout = 'b';
        // The next question but one follows an answer without the addresses of this server.
        int asked = names.services.get();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(120);
        while (names.services.get() < asked + 2) {
            assertTrue(System.nanoTime() < end, "the service is not asked for again");
            Thread.sleep(10);
        }
        assertEquals(0, failures(gateway, 10));
        assertEquals(5, other.seen.size());
        names.targets = new int[][] {{10, 1, origin.port()}};
        awaitEndpoints(gateway, "127.0.0.1");
    }

    /** Answers questions about a service as an agent of Consul does: late where nothing has changed. */
    private final class Agent implements RecordingOrigin.Handler {
        final RecordingOrigin asked;
        private String instances;
        private int index = 1;

        Agent(String first) throws IOException {
            instances = first;
            asked = closedLater(new RecordingOrigin());
            asked.handler = this;
        }

        synchronized void become(String changed) {
            instances = changed;
            index++;
            notifyAll();
        }

        @Override
        public boolean answer(RecordingOrigin.Seen seen, OutputStream out, Socket socket) throws IOException {
            String known = seen.line().replaceAll(".*index=(\\d+).*", "$1");
            String body;
            String head;
            synchronized (this) {
                while (known.equals(String.valueOf(index)) && !socket.isClosed()) {
                    try {
                        wait(100);
                    } catch (InterruptedException over) {
                        return false;
                    }
                }
                body = instances;
                head = "X-Consul-Index: " + index + "\r\n";
            }
            RecordingOrigin.respond(out, body == null ? 500 : 200, head, body == null ? "No cluster leader" : body);
            return true;
        }
    }

    /** As Consul 1.19 answers, without members that say nothing here. */
    private static String instance(String node, String own, int port, int weight) {
        return "{\"Node\":{\"ID\":\"a\",\"Node\":\"n\",\"Address\":\"" + node + "\",\"Meta\":null},"
                + "\"Service\":{\"ID\":\"shop-1\",\"Service\":\"shop\",\"Tags\":[],\"Address\":\"" + own
                + "\",\"Port\":" + port + ",\"Weights\":{\"Passing\":" + weight + ",\"Warning\":1}},"
                + "\"Checks\":[{\"Status\":\"passing\",\"Output\":\"\"}]}";
    }

    @Test
    void the_instances_that_consul_knows_are_endpoints() throws Exception {
        RecordingOrigin light = closedLater(new RecordingOrigin());
        Agent agent = new Agent("[" + instance("127.0.0.1", "", origin.port(), 9) + ","
                + instance("10.0.0.1", "127.0.0.1", light.port(), 1) + "]");
        Carrier gateway = start("[server]\nconsul = \"http://127.0.0.1:" + agent.asked.port()
                + "\"\nconsul-token = \"secret\"\n[origins.o]\naddresses = [\"consul:shop\"]\n"
                + "balance = \"round-robin\"\nslow-start = \"0ms\"\npreserve-host = false\n");
        awaitEndpoints(gateway, "127.0.0.1", "127.0.0.1");
        // A whole turn: the weights 9 and 1 are 100 and 11 of 111.
        assertEquals(0, failures(gateway, 111));
        assertEquals(11, light.seen.size());
        assertEquals("shop", origin.seen.get(0).header("Host"));
        assertEquals("GET /v1/health/service/shop?passing=1&wait=30s&index=0 HTTP/1.1", agent.asked.seen.get(0).line());
        assertEquals("secret", agent.asked.seen.get(0).header("X-Consul-Token"));
        // A fault of the agent says nothing about the instances.
        agent.become(null);
        awaitAsked(agent.asked, agent.asked.seen.size() + 2);
        assertEquals(0, failures(gateway, 10));
        agent.become("[" + instance("127.0.0.1", "", light.port(), 1) + "]");
        awaitEndpoints(gateway, "127.0.0.1");
        int before = origin.seen.size();
        assertEquals(0, failures(gateway, 10));
        assertEquals(before, origin.seen.size());
        agent.become("[]");
        awaitEndpoints(gateway, "consul:shop");
        assertEquals(2, failures(gateway, 2));
    }

    private static String registered(int port, String status) {
        return "{\"hostName\":\"h\",\"ipAddr\":\"127.0.0.1\",\"status\":\"" + status + "\",\"port\":{\"$\":"
                + port + ",\"@enabled\":\"true\"},\"securePort\":{\"$\":443,\"@enabled\":\"false\"}}";
    }

    @Test
    void the_instances_that_eureka_knows_are_endpoints() throws Exception {
        RecordingOrigin other = closedLater(new RecordingOrigin());
        RecordingOrigin registry = closedLater(new RecordingOrigin());
        AtomicReference<String> known = new AtomicReference<>(registered(origin.port(), "UP") + ","
                + registered(other.port(), "DOWN"));
        registry.handler = (seen, out, socket) -> {
            String instances = known.get();
            RecordingOrigin.respond(out, instances == null ? 403 : instances.isEmpty() ? 404 : 200, "",
                    "{\"application\":{\"name\":\"SHOP\",\"instance\":[" + instances + "]}}");
            return true;
        };
        Carrier gateway = start("[server]\neureka = \"http://127.0.0.1:" + registry.port()
                + "/eureka\"\n[origins.o]\naddresses = [\"eureka:SHOP\"]\npreserve-host = false\n");
        awaitEndpoints(gateway, "127.0.0.1");
        assertEquals(0, failures(gateway, 5));
        assertEquals("SHOP", origin.seen.get(0).header("Host"));
        assertEquals("GET /eureka/apps/SHOP HTTP/1.1", registry.seen.get(0).line());
        assertEquals("application/json", registry.seen.get(0).header("Accept"));
        // A server that has just started refuses to answer: the last instances stay.
        known.set(null);
        int asked = registry.seen.size();
        awaitAsked(registry, asked + 2);
        assertEquals(0, failures(gateway, 5));
        known.set(registered(other.port(), "UP"));
        awaitAsked(registry, registry.seen.size() + 2);
        int before = origin.seen.size();
        assertEquals(0, failures(gateway, 5));
        assertEquals(before, origin.seen.size());
        // One that was restarted knows no service at first.
        known.set("");
        awaitAsked(registry, registry.seen.size() + 3);
        assertEquals(0, failures(gateway, 5));
        known.set(registered(other.port(), "DOWN"));
        awaitEndpoints(gateway, "eureka:SHOP");
    }

    private static void write(Path file, String text) throws IOException {
        Path whole = Files.writeString(file.resolveSibling("whole"), text);
        Files.move(whole, file, StandardCopyOption.REPLACE_EXISTING);
    }

    @Test
    void the_lines_of_a_file_are_endpoints(@TempDir Path folder) throws Exception {
        RecordingOrigin reserve = closedLater(new RecordingOrigin());
        RecordingOrigin light = closedLater(new RecordingOrigin());
        Path file = folder.resolve("endpoints");
        String first = "shop 127.0.0.1:" + origin.port() + "*9\n";
        String more = "# what a deployment writes\nshop  127.0.0.1:" + light.port() + "\t# light\n\nshop 127.0.0.1:"
                + reserve.port() + " backup\ncart 127.0.0.1:1\nshop nowhere\nshop 127.0.0.1:0\nshop 127.0.0.1:70000\n"
                + "shop\n";
        write(file, first + more);
        try (LogEar ear = new LogEar()) {
            Carrier gateway = start("[server]\nendpoints = \"" + file + "\"\n[origins.o]\n"
                    + "addresses = [\"file:shop\"]\nbalance = \"round-robin\"\nslow-start = \"0ms\"\npreserve-host = false\n");
            awaitEndpoints(gateway, "127.0.0.1", "127.0.0.1", "127.0.0.1");
            // A whole turn: the weights 9 and 1 are 100 and 11 of 111.
            assertEquals(0, failures(gateway, 111));
            assertEquals(11, light.seen.size());
            assertEquals(0, reserve.seen.size());
            assertEquals("shop", origin.seen.get(0).header("Host"));
            awaitSaid(ear, file + ":7: the line is left out: \"nowhere\" is not host:port");
            // Neither an end of all its well-formed lines nor that of the file says where the service is now.
            write(file, "shop nowhere\n");
            awaitSaid(ear, "malformed lines only of shop");
            assertEquals(0, failures(gateway, 5));
            Files.delete(file);
            awaitSaid(ear, file + " does not exist");
            assertEquals(0, failures(gateway, 5));
            write(file, "shop 127.0.0.1:" + reserve.port() + " backup\n");
            awaitEndpoints(gateway, "127.0.0.1");
            assertEquals(0, failures(gateway, 5));
            assertEquals(5, reserve.seen.size());
            write(file, "cart 127.0.0.1:1\n");
            awaitEndpoints(gateway, "file:shop");
            assertEquals(2, failures(gateway, 2));
        }
    }

    private static void awaitSaid(LogEar ear, String words) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (ear.said.stream().noneMatch(line -> line.contains(words))) {
            assertTrue(System.nanoTime() < end, () -> words + " is not in " + ear.said);
            Thread.sleep(10);
        }
    }

    private static void awaitAsked(RecordingOrigin asked, int times) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (asked.seen.size() < times) {
            assertTrue(System.nanoTime() < end, "the registry is not asked again");
            Thread.sleep(10);
        }
    }

    /** The Host that the origin gets where the client's is not kept. */
    private String head(Carrier gateway, RecordingOrigin at) throws Exception {
        Carrier own = start("[origins.o]\naddresses = [\"shop.test:" + at.port()
                + "\"]\npreserve-host = false\n[server]\ndns = ["
                + "\"" + gateway.runtime.gateway().options("server").texts("dns").get(0) + "\"]\n");
        awaitEndpoints(own, "127.0.0.2");
        assertEquals(200, client(own).get("/host").status());
        return at.seen.get(at.seen.size() - 1).header("Host");
    }

    @Test
    void a_check_asks_for_what_the_origin_knows() throws Exception {
        NameServer names = closedLater(new NameServer(1));
        RecordingOrigin checked = closedLater(new RecordingOrigin());
        checked.handler = (seen, out, socket) -> {
            boolean isKnown = "admin.test".equals(seen.header("Host"))
                    && "yes".equals(seen.header("X-Check"));
            RecordingOrigin.respond(out, isKnown ? 200 : 404, "", "");
            return false;
        };
        Carrier gateway = gateway(names, "check-path = \"/up\"\ncheck-interval = \"50ms\"\n"
                + "check-timeout = \"1m\"\ncheck-fall = 1\ncheck-host = \"admin.test\"\ncheck-port = " + checked.port()
                + "\ncheck-fields = { X-Check = \"yes\" }\n");
        awaitEndpoints(gateway, "127.0.0.1");
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        int before = checked.seen.size();
        while (checked.seen.size() < before + 5) {
            assertTrue(System.nanoTime() < end, "the endpoint is not checked");
            Thread.sleep(10);
        }
        assertEquals(200, client(gateway).get("/").status());
        checked.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 503, "", "");
            return false;
        };
        while (client(gateway).get("/").status() == 200) {
            assertTrue(System.nanoTime() < end, "the check has no effect");
            Thread.sleep(10);
        }
    }

    @Test
    void a_certificate_is_verified_for_the_name_that_is_configured(@TempDir Path folder)
            throws Exception {
        Certificate certificate = new Certificate(folder, "shop.test", "SAN=dns:shop.test");
        SSLServerSocket listener = (SSLServerSocket) certificate.context().getServerSocketFactory()
                .createServerSocket(0, 10, InetAddress.getLoopbackAddress());
        RecordingOrigin encrypted = closedLater(new RecordingOrigin(listener));
        String tls = "\ntls = true\nconnect = \"1m\"\n";
        String more = "[tls]\norigin-ca = \"" + certificate.certificate + "\"\n";
        String literal = "[origins.o]\naddresses = [\"127.0.0.1:" + encrypted.port() + "\"]" + tls;
        assertEquals(502, client(start(literal + more)).get("/").status());
        Carrier named = start(literal + "tls-name = \"shop.test\"\ncheck-path = \"/up\"\n"
                + "check-interval = \"50ms\"\ncheck-timeout = \"1m\"\ncheck-fall = 1\n" + more);
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(180);
        while (encrypted.seen.size() < 3) {
            assertTrue(System.nanoTime() < end, "the check is not answered");
            Thread.sleep(10);
        }
        assertEquals(200, client(named).get("/").status());
        NameServer names = closedLater(new NameServer(1));
        Carrier resolved = start("[server]\ndns = [\"127.0.0.1:" + names.port()
                + "\"]\n[origins.o]\naddresses = [\"shop.test:" + encrypted.port() + "\"]" + tls
                + more);
        awaitEndpoints(resolved, "127.0.0.1");
        assertEquals(200, client(resolved).get("/").status());
    }
}
