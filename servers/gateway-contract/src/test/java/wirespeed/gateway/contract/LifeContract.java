// The life of connections: shared limits, and an end that comes in time.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

abstract class LifeContract extends CarrierContract {
    @TempDir
    Path folder;

    @Test
    void one_connection_to_an_address_serves_the_clients_of_all_loops() throws Exception {
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\nconnections = 1\n[timeouts]\npool-wait = \"20s\"\n");
        int clients = 4;
        for (int i = 0; i < clients; i++) {
            RawClient client = client(gateway);
            long begin = System.nanoTime();
            assertEquals(200, client.get("/first").status());
            long millis = (System.nanoTime() - begin) / 1_000_000;
            assertTrue(millis < 10_000, millis + " ms for a connection that is unused");
        }
        AtomicInteger refused = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            RawClient client = client(gateway);
            Thread thread = new Thread(() -> {
                for (int request = 0; request < 100; request++) {
                    try {
                        refused.addAndGet(client.get("/").status() == 200 ? 0 : 1);
                    } catch (IOException gone) {
                        refused.incrementAndGet();
                    }
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join(60_000);
            assertFalse(thread.isAlive());
        }
        assertEquals(0, refused.get());
        assertTrue(gateway.runtime.gateway().snapshot().origins().get("o").addresses().get(0)
                .connections().get() <= 1);
    }
}
