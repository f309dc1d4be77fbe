// Deadlines do not count time in which the loop could not run.
package wirespeed.gateway.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class LoopClockTest {
    private static final long MILLI = 1_000_000;
    private final LoopClock clock = new LoopClock();
    private boolean hasFired;
    private final Wheel.Entry entry = new Wheel.Entry() {
        @Override
        void onTimeout(long nowMillis) {
            hasFired = true;
        }
    };

    private void tickAt(Wheel wheel, long realMillis) {
        clock.read(realMillis * MILLI);
        clock.tick();
        wheel.advance(clock.nowMillis());
    }

    @Test
    void a_process_that_stood_still_reads_before_its_timers_fire() {
        clock.start(0);
        Wheel wheel = new Wheel(0);
        wheel.arm(entry, 5000);
        for (long at = 100; at <= 1000; at += 100) {
            tickAt(wheel, at);
        }
        // A fixed rate makes up for the ticks that were missed, all in one round of the loop.
        for (int missed = 0; missed < 70; missed++) {
            tickAt(wheel, 8000);
        }
        assertTrue(!hasFired, "fired at once after seven seconds without time");
        assertEquals(1200, clock.nowMillis());
        for (long at = 8100; at <= 11_900 && !hasFired; at += 100) {
            tickAt(wheel, at);
        }
        assertTrue(hasFired, "never fired");
    }

    @Test
    void a_body_is_not_too_slow_for_a_pause_of_the_process() {
        clock.start(0);
        clock.read(7000 * MILLI);
        assertEquals(200, clock.nowMillis());
        clock.read(9000 * MILLI);
        assertEquals(200, clock.nowMillis());
    }

    @Test
    void ticks_in_time_keep_true_time() {
        clock.start(0);
        for (long at = 150; at < 600_000; at += 150) {
            clock.read(at * MILLI);
            clock.tick();
            assertEquals(at, clock.nowMillis());
        }
    }
}
