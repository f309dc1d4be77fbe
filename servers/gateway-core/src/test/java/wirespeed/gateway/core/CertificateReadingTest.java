// Two threads that read certificates at one time do not leave the older ones.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class CertificateReadingTest {
    private final Gateway gateway = new Gateway(Map.of(), List.of(), new Snapshot(1,
            new Chain(List.of()), new RouteTable(List.of()), Map.of(), Limits.DEFAULT,
            new Forwarding("gateway", Networks.NONE)));
    private final AtomicInteger file = new AtomicInteger(1);
    private final CountDownLatch isRead = new CountDownLatch(1);
    private final CountDownLatch mayUse = new CountDownLatch(1);
    private volatile int shown;

    /** The first one reads the file, and stands still before it uses what it has read. */
    private void read() {
        int content = file.get();
        if (isRead.getCount() > 0) {
            isRead.countDown();
            await(mayUse);
        }
        shown = content;
    }

    private static void await(CountDownLatch latch) {
        try {
            assertTrue(latch.await(60, TimeUnit.SECONDS));
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    @Test
    void a_thread_that_began_with_older_files_is_not_the_last_to_end() throws Exception {
        gateway.certificates(this::read);
        Thread slow = new Thread(gateway::readCertificates);
        slow.start();
        await(isRead);
        file.set(2);
        Thread quick = new Thread(gateway::readCertificates);
        quick.start();
        while (quick.getState() != Thread.State.BLOCKED && quick.isAlive()) {
            // Until it waits for the other one, or is through.
            Thread.sleep(5);
        }
        mayUse.countDown();
        slow.join();
        quick.join();
        assertEquals(2, shown);
    }
}
