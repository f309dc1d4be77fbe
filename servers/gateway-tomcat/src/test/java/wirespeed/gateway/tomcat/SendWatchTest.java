// Which uploads are ended, and whose fault that is.
package wirespeed.gateway.tomcat;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.hc.core5.http.config.Http1Config;
import org.junit.jupiter.api.Test;

class SendWatchTest {
    private static final long PERIOD = SendWatch.PERIOD_MILLIS * 1_000_000L;
    private final SendWatch watch = new SendWatch();
    private long now = System.nanoTime();

    private SendWatch.Send begin(int patienceMillis, long leftNanos) {
        // The test's time, and not when the watch was made.
        watch.look(now);
        return watch.begin(new OriginConnection(Http1Config.DEFAULT), patienceMillis, now, now + leftNanos);
    }

    private void look(int times) {
        for (int i = 0; i < times; i++) {
            now += PERIOD;
            watch.look(now);
        }
    }

    @Test
    void the_end_of_the_exchange_is_not_the_origins_fault_whoevers_turn_it_is() {
        SendWatch.Send begun = begin(60_000, PERIOD / 2);
        SendWatch.Send origins = begin(60_000, PERIOD / 2);
        origins.awaitClient();
        origins.awaitOrigin();
        SendWatch.Send clients = begin(60_000, PERIOD / 2);
        clients.awaitClient();
        look(1);
        for (SendWatch.Send each : new SendWatch.Send[] {begun, origins, clients}) {
            assertTrue(each.isLate());
            assertFalse(each.isStalled());
        }
    }

    @Test
    void an_origin_that_takes_nothing_for_too_long_is_at_fault() {
        SendWatch.Send stalled = begin(550, 1000 * PERIOD);
        stalled.awaitOrigin();
        look(7);
        assertFalse(stalled.isLate());
        look(1);
        assertTrue(stalled.isLate());
        assertTrue(stalled.isStalled());
    }

    @Test
    void an_origin_that_takes_nothing_for_half_of_the_exchange_and_to_its_end_is_at_fault() {
        SendWatch.Send all = begin(60_000, 10 * PERIOD);
        all.awaitOrigin();
        SendWatch.Send nearlyHalf = begin(60_000, 10 * PERIOD);
        look(4);
        nearlyHalf.awaitOrigin();
        look(7);
        assertTrue(all.isStalled());
        assertTrue(nearlyHalf.isLate());
        assertFalse(nearlyHalf.isStalled());
    }

    @Test
    void an_origin_that_takes_a_piece_now_and_then_is_not() {
        SendWatch.Send slow = begin(500, 1000 * PERIOD);
        for (int i = 0; i < 10; i++) {
            slow.awaitOrigin();
            look(5);
        }
        assertFalse(slow.isLate());
    }

    @Test
    void nobody_is_waited_for_while_the_process_gets_no_time() {
        SendWatch.Send stopped = begin(500, Long.MAX_VALUE / 2);
        stopped.awaitOrigin();
        now += 3_600_000_000_000L;
        watch.look(now);
        assertFalse(stopped.isLate());
        look(5);
        assertFalse(stopped.isLate());
        look(1);
        assertTrue(stopped.isStalled());
    }
}
