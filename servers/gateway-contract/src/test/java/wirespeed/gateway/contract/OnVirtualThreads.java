// The suite on gateway-tomcat with virtual threads: a program, because they need a newer Java.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.junit.platform.launcher.listeners.SummaryGeneratingListener;
import wirespeed.gateway.runtime.Launcher;
import wirespeed.gateway.tomcat.Main;

/**
 * Ends with 0 when every test passed; each one that did not is a line on standard output. With the
 * argument {@code whole} slow clients, features and corpus are run, too, which takes minutes on a busy machine.
 */
final class OnVirtualThreads {
    private static final Map<String, Object> OPTIONS = Map.of("tomcat.threads", "virtual",
            "tomcat.max-keep-alive-requests", "-1");

    private OnVirtualThreads() {
    }

    public static void main(String[] arguments) {
        Stream<Class<?>> suites = List.of(arguments).contains("whole")
                ? Stream.of(Exchanges.class, WebSockets.class, Waiting.class, Slow.class,
                        Features.class, Corpus.class)
                : Stream.of(Exchanges.class, WebSockets.class, Waiting.class);
        SummaryGeneratingListener heard = new SummaryGeneratingListener();
        LauncherFactory.create().execute(LauncherDiscoveryRequestBuilder.request().selectors(
                suites.map(suite -> selectClass(suite)).toList()).build(), heard);
        heard.getSummary().getFailures().forEach(failure -> System.out.println(
                failure.getTestIdentifier().getDisplayName() + ": " + failure.getException()));
        long passed = heard.getSummary().getTestsSucceededCount();
        System.out.println(passed + " passed");
        System.exit(heard.getSummary().getTotalFailureCount() == 0 && passed > 0 ? 0 : 1);
    }

    interface VirtualThreads extends CarrierChoice {
        @Override
        default Launcher.Factory factory() {
            return Main::carrier;
        }

        @Override
        default Map<String, Object> options() {
            return OPTIONS;
        }
    }

    static final class Exchanges extends GatewayContract implements VirtualThreads {
    }

    /** A thousand clients of an origin that is late, and ten requests that may run. */
    static final class Waiting extends CarrierContract implements VirtualThreads {
        private static final int CLIENTS = 1000;
        private static final int RUNNING = 10;

        @Override
        public Map<String, Object> options() {
            Map<String, Object> options = new HashMap<>(OPTIONS);
            options.put("tomcat.max-threads", String.valueOf(RUNNING));
            options.put("timeouts.pool-wait", "1s");
            return options;
        }

        @Test
        void clients_that_find_no_turn_are_refused_in_time_and_leave_nothing() throws Exception {
            CountDownLatch mayAnswer = new CountDownLatch(1);
            origin.handler = (seen, out, socket) -> {
                RecordingOrigin.awaitQuietly(mayAnswer);
                return RecordingOrigin.ordinary(seen, out, socket);
            };
            Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                    + "\"]\nresponse = \"2m\"\n");
            int before = Thread.getAllStackTraces().size();
            List<RawClient> clients = new ArrayList<>();
            for (int i = 0; i < CLIENTS; i++) {
                RawClient client = client(gateway);
                client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                clients.add(client);
            }
            await(() -> answered(clients) == CLIENTS - RUNNING && origin.seen.size() == RUNNING,
                    "clients without a turn wait for ever");
            mayAnswer.countDown();
            int served = 0;
            for (RawClient client : clients) {
                int status = client.read().status();
                assertTrue(status == 200 || status == 503, "status " + status);
                served += status == 200 ? 1 : 0;
                client.close();
            }
            assertEquals(RUNNING, served);
            assertEquals(200, client(gateway).get("/after").status());
            await(() -> gateway.runtime.gateway().inFlight().get() == 0
                    && Thread.getAllStackTraces().size() < before + 2 * RUNNING + 20,
                    "exchanges or platform threads stay behind");
        }

        /** Its thread is free as soon as it is refused, though its body never comes. */
        @Test
        void a_request_that_finds_no_turn_is_not_read_to_its_end() throws Exception {
            CountDownLatch mayAnswer = new CountDownLatch(1);
            closedLater(mayAnswer::countDown);
            origin.handler = RecordingOrigin.after(mayAnswer);
            Carrier gateway = start("[timeouts]\nbody-idle = \"5m\"\n[origins.o]\naddresses = [\"127.0.0.1:"
                    + origin.port() + "\"]\nresponse = \"2m\"\n");
            for (int i = 0; i < RUNNING; i++) {
                client(gateway).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            }
            await(() -> origin.seen.size() == RUNNING, "requests that may run do not");
            RawClient refused = client(gateway);
            refused.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf");
            assertEquals(503, refused.read().status());
            assertTrue(refused.isClosed());
        }

        private static long answered(List<RawClient> clients) {
            return clients.stream().filter(client -> {
                try {
                    return client.socket.getInputStream().available() > 0;
                } catch (IOException gone) {
                    return true;
                }
            }).count();
        }

        private static void await(BooleanSupplier isReached, String otherwise) throws Exception {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (!isReached.getAsBoolean()) {
                assertTrue(System.nanoTime() < end, otherwise);
                Thread.sleep(20);
            }
        }
    }

    static final class Features extends FeatureContract implements VirtualThreads {
    }

    static final class WebSockets extends WebSocketContract implements VirtualThreads {
    }

    static final class Slow extends SlowContract implements VirtualThreads {
    }

    static final class Corpus extends CorpusContract implements VirtualThreads {
    }
}
