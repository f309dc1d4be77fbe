// The endpoints of a name after an answer that lacks a part.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Balancer;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Origin;

class EndpointResolverTest {
    private static List<String> hosts(Address address) {
        return address.endpoints().stream().map(Address::host).toList();
    }

    @Test
    void endpoints_of_ipv6_stay_while_the_question_for_them_is_not_answered() {
        Address shop = new Address("shop.test", 80);
        shop.lead(List.of("10.0.0.1", "2001:db8:0:0:0:0:0:1"), 0);
        EndpointResolver.Found partial = new EndpointResolver.Found(List.of("10.0.0.2"), 1, false);
        assertEquals(List.of("10.0.0.2", "2001:db8:0:0:0:0:0:1"),
                EndpointResolver.literals(partial, hosts(shop)));
        EndpointResolver.Found whole = new EndpointResolver.Found(List.of("10.0.0.2"), 1, true);
        assertEquals(List.of("10.0.0.2"), EndpointResolver.literals(whole, hosts(shop)));
        assertEquals(List.of("10.0.0.1", "2001:db8:0:0:0:0:0:1"), hosts(shop));
    }

    private static Origin origin(String tls, Address address) {
        Config config = ConfigReader.read("[server]\neureka = \"http://h\"\n[origins.o]\n"
                + "addresses = [\"eureka:SHOP\"]\n" + tls, "x.toml", Map.of(), Map.of());
        Origin made = new SnapshotBuilder().build(config, List.of()).origins().get("o");
        return new Origin("o", List.of(address), Balancer.Method.RANDOM_TWO, made.settings());
    }

    private static void await(String what, BooleanSupplier state) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!state.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, what);
            Thread.sleep(5);
        }
    }

    @Test
    void a_service_that_eureka_does_not_know_any_more_stays_until_its_instances_must_have_registered()
            throws Exception {
        AtomicBoolean isKnown = new AtomicBoolean(true);
        AtomicInteger asked = new AtomicInteger();
        HttpServer eureka = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        eureka.createContext("/", exchange -> {
            byte[] answer = ("{\"application\":{\"instance\":{\"status\":\"UP\",\"ipAddr\":\"10.0.0.1\","
                    + "\"port\":{\"$\":8080,\"@enabled\":\"true\"},"
                    + "\"securePort\":{\"$\":8443,\"@enabled\":\"true\"}}}}").getBytes();
            exchange.sendResponseHeaders(isKnown.get() ? 200 : 404, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
            asked.incrementAndGet();
        });
        eureka.start();
        Seconds.nanos = Seconds.USUAL_NANOS / 20;
        AtomicLong clock = new AtomicLong();
        OptionValues server = new OptionValues("server");
        server.put("eureka", "http://127.0.0.1:" + eureka.getAddress().getPort() + "/eureka");
        Address shop = Address.parse("eureka:SHOP");
        try (EndpointResolver resolver = new EndpointResolver(server, () -> { }, clock::get)) {
            resolver.update(List.of(origin("", shop)));
            await("no endpoint", () -> shop.endpoints().get(0).id().equals("10.0.0.1:8080"));
            // The same service over TLS, from now on.
            resolver.update(List.of(origin("tls = true\n", shop)));
            await("the port stays", () -> shop.endpoints().get(0).id().equals("10.0.0.1:8443"));
            isKnown.set(false);
            clock.addAndGet(TimeUnit.SECONDS.toNanos(EurekaClient.ABSENT_SECONDS));
            int before = asked.get();
            await("it is not asked again", () -> asked.get() >= before + 3);
            assertEquals("10.0.0.1:8443", shop.endpoints().get(0).id());
            await("it stays", () -> {
                // Again and again: after a question that was not answered in time the wait begins again.
                clock.addAndGet(TimeUnit.SECONDS.toNanos(EurekaClient.ABSENT_SECONDS));
                return shop.endpoints().get(0).id().equals("eureka:SHOP");
            });
        } finally {
            Seconds.nanos = Seconds.USUAL_NANOS;
            eureka.stop(0);
        }
    }
}
