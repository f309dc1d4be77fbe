// The endpoints of a name after an answer that lacks a part.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
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

    /** Answers at once what a test wants. */
    private static EndpointResolver.Agents agents(Supplier<ConsulClient.Answer> answers) {
        return (address, token, readers) -> new ConsulClient(address, token, readers) {
            @Override
            CompletableFuture<Answer> ask(String service, long index) {
                return CompletableFuture.completedFuture(answers.get());
            }
        };
    }

    private static OptionValues consul() {
        OptionValues server = new OptionValues("server");
        server.put("consul", "http://127.0.0.1:1");
        return server;
    }

    private static final ConsulClient.Answer SHOP = new ConsulClient.Answer(
            List.of(new EndpointResolver.Target("10.0.0.1", 8080, 0, 1, 0)), 1);

    @Test
    void an_answer_of_consul_that_is_there_at_once_holds_up_no_reload() throws Exception {
        Address shop = Address.parse("consul:shop");
        List<Origin> origins = List.of(origin("", shop));
        AtomicReference<EndpointResolver> made = new AtomicReference<>();
        AtomicReference<Boolean> isReloaded = new AtomicReference<>();
        Runnable moved = () -> {
            Thread reload = new Thread(() -> made.get().update(origins), "reload");
            reload.setDaemon(true);
            reload.start();
            try {
                reload.join(10_000);
            } catch (InterruptedException over) {
                return;
            }
            isReloaded.set(!reload.isAlive());
        };
        try (EndpointResolver resolver = new EndpointResolver(consul(), moved, System::nanoTime, agents(() -> SHOP))) {
            made.set(resolver);
            resolver.update(origins);
            await("no endpoint", () -> isReloaded.get() != null);
            assertTrue(isReloaded.get(), "the reload waits for the resolver's lock");
        }
    }

    @Test
    void a_service_is_asked_for_again_after_whatever_has_failed() throws Exception {
        Seconds.nanos = Seconds.USUAL_NANOS / 20;
        AtomicInteger asked = new AtomicInteger();
        AtomicInteger calls = new AtomicInteger();
        Address shop = Address.parse("consul:shop");
        Runnable moved = () -> {
            if (calls.incrementAndGet() == 1) {
                throw new IllegalStateException("the first time");
            }
        };
        EndpointResolver.Agents agents = agents(() -> {
            if (asked.incrementAndGet() == 1) {
                throw new IllegalArgumentException("an invalid header value");
            }
            return asked.get() == 2 ? SHOP : new ConsulClient.Answer(
                    List.of(new EndpointResolver.Target("10.0.0.2", 8080, 0, 1, 0)), asked.get());
        });
        try (EndpointResolver resolver = new EndpointResolver(consul(), moved, System::nanoTime, agents)) {
            resolver.update(List.of(origin("", shop)));
            await("it is not asked again", () -> shop.endpoints().get(0).id().equals("10.0.0.2:8080"));
        } finally {
            Seconds.nanos = Seconds.USUAL_NANOS;
        }
    }

    @Test
    void a_name_is_asked_for_again_after_whatever_has_failed() throws Exception {
        Seconds.nanos = Seconds.USUAL_NANOS / 20;
        AtomicInteger calls = new AtomicInteger();
        Address shop = new Address("localhost", 80);
        Runnable moved = () -> {
            calls.incrementAndGet();
            throw new NoClassDefFoundError("at each time");
        };
        try (EndpointResolver resolver = new EndpointResolver(new OptionValues("server"), moved, System::nanoTime)) {
            resolver.update(List.of(origin("", shop)));
            await("the name leads nowhere", () -> calls.get() == 1);
            shop.lead(List.of("10.0.0.1"), 0);
            await("it is not asked again", () -> calls.get() == 2);
        } finally {
            Seconds.nanos = Seconds.USUAL_NANOS;
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
