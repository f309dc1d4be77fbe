// Who is to blame for an exchange that fails, and who learns of it.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Address;

abstract class BlameContract extends CarrierContract {
    @TempDir
    Path folder;

    private Carrier gateway(String originOptions, String more) {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n"
                + originOptions + "\n" + more);
    }

    private Carrier filtering(String source) throws IOException {
        Files.writeString(folder.resolve("Own.java"), "import wirespeed.gateway.core.*;\n"
                + "import java.util.concurrent.CompletableFuture;\n"
                + "public class Own implements Filter {\n"
                + "public String name() { return \"own\"; }\n"
                + "public int order() { return 5; }\n" + source + "}\n");
        return gateway("", "[filters]\nfolder = \"" + folder + "\"\n");
    }

    private static Address address(Carrier gateway) {
        return gateway.runtime.gateway().snapshot().origins().get("o").addresses().get(0);
    }

    private static void pause(int millis) throws IOException {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            throw new IOException(e);
        }
    }

    private static void await(CountDownLatch latch) throws IOException {
        try {
            assertTrue(latch.await(60, TimeUnit.SECONDS));
        } catch (InterruptedException e) {
            throw new IOException(e);
        }
    }

    @Test
    void a_connection_that_ends_after_long_work_is_a_failure_though_it_was_used_before()
            throws Exception {
        int clients = 6;
        CountDownLatch areWarm = new CountDownLatch(clients);
        origin.handler = (seen, out, socket) -> {
            if (seen.line().contains("/warm")) {
                // All at one time, so that each has a connection of its own.
                areWarm.countDown();
                await(areWarm);
                return RecordingOrigin.ordinary(seen, out, socket);
            }
            pause(600);
            return false;
        };
        Carrier gateway = gateway("retries = 0\nretry-budget = 0", "");
        List<RawClient> all = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            all.add(client(gateway));
            all.get(i).send("GET /warm HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        for (RawClient client : all) {
            assertEquals(200, client.read().status());
        }
        for (RawClient client : all) {
            client.send("GET /dies HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        for (RawClient client : all) {
            assertEquals(502, client.read().status());
        }
        assertTrue(address(gateway).breaker().isOpen());
        assertEquals(2 * clients, origin.seen.size());
    }

    @Test
    void an_origin_that_ends_each_used_connection_is_noticed() throws Exception {
        Set<Integer> used = ConcurrentHashMap.newKeySet();
        origin.handler = (seen, out, socket) -> used.add(seen.connection())
                && RecordingOrigin.ordinary(seen, out, socket);
        Carrier gateway = gateway("retries = 0\nretry-budget = 0", "");
        RawClient client = client(gateway);
        int failed = 0;
        for (int i = 0; i < 120; i++) {
            failed += client.get("/").status() == 502 ? 1 : 0;
        }
        assertTrue(failed >= 20, failed + " deaths were noticed");
    }
}
