// Timers on a clock that the test moves.
package wirespeed.gateway.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

class WheelTest {
    private final Wheel wheel = new Wheel(1_000_000);
    private final List<String> called = new ArrayList<>();

    private Wheel.Entry entry(String name) {
        return new Wheel.Entry() {
            @Override
            void onTimeout(long nowMillis) {
                called.add(name);
            }
        };
    }

    @Test
    void an_entry_is_called_once_and_at_most_a_tick_late() {
        Wheel.Entry entry = entry("a");
        wheel.arm(entry, 1_000_250);
        wheel.advance(1_000_200);
        assertEquals(List.of(), called);
        wheel.advance(1_000_300);
        assertEquals(List.of("a"), called);
        wheel.advance(1_010_000);
        assertEquals(1, called.size());
    }

    @Test
    void activity_moves_a_deadline_both_ways() {
        Wheel.Entry entry = entry("a");
        wheel.arm(entry, 1_000_500);
        wheel.arm(entry, 1_002_000);
        wheel.advance(1_001_900);
        assertEquals(List.of(), called);
        wheel.arm(entry, 1_300_000);
        wheel.arm(entry, 1_002_500);
        wheel.advance(1_002_600);
        assertEquals(List.of("a"), called);
    }

    @Test
    void a_deadline_beyond_the_wheel_is_kept() {
        wheel.arm(entry("a"), 1_000_000 + 600_000);
        for (long now = 1_000_000; now < 1_599_900; now += 5000) {
            wheel.advance(now);
        }
        assertEquals(List.of(), called);
        wheel.advance(1_600_100);
        assertEquals(List.of("a"), called);
    }

    @Test
    void an_entry_may_remove_its_neighbours_while_it_is_called() {
        List<Wheel.Entry> entries = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            entries.add(new Wheel.Entry() {
                @Override
                void onTimeout(long nowMillis) {
                    called.add("x");
                    entries.forEach(wheel::remove);
                }
            });
        }
        entries.forEach(entry -> wheel.arm(entry, 1_000_100));
        wheel.advance(1_000_300);
        assertEquals(1, called.size());
    }

    @Test
    void an_entry_that_throws_costs_the_others_nothing() {
        for (int i = 0; i < 3; i++) {
            wheel.arm(entry("a"), 1_000_100);
            wheel.arm(new Wheel.Entry() {
                @Override
                void onTimeout(long nowMillis) {
                    throw new OutOfMemoryError("as Netty throws it");
                }
            }, 1_000_100);
        }
        wheel.advance(1_000_300);
        assertEquals(3, called.size());
        wheel.arm(entry("b"), 1_000_500);
        wheel.advance(1_000_700);
        assertEquals(4, called.size());
    }

    @Test
    void many_random_timers_all_fire_in_time() {
        Random random = new Random(7);
        long[] now = {1_000_000};
        int[] late = {0};
        int[] fired = {0};
        for (int i = 0; i < 2000; i++) {
            long deadline = 1_000_000 + random.nextInt(300_000);
            wheel.arm(new Wheel.Entry() {
                @Override
                void onTimeout(long nowMillis) {
                    fired[0]++;
                    boolean isWrong = nowMillis < deadline || nowMillis - deadline > 250;
                    late[0] += isWrong ? 1 : 0;
                }
            }, deadline);
        }
        while (now[0] < 1_310_000) {
            now[0] += 100;
            wheel.advance(now[0]);
        }
        assertEquals(2000, fired[0]);
        assertEquals(0, late[0]);
    }

    @Test
    void a_disarmed_entry_is_called_only_when_it_is_armed_again() {
        Wheel.Entry entry = entry("a");
        wheel.arm(entry, 1_000_500);
        wheel.disarm(entry);
        wheel.arm(entry, 1_000_900);
        wheel.advance(1_000_800);
        assertEquals(List.of(), called);
        wheel.advance(1_001_000);
        assertEquals(List.of("a"), called);
        wheel.arm(entry, 1_001_500);
        wheel.disarm(entry);
        wheel.advance(1_200_000);
        assertEquals(1, called.size());
        wheel.arm(entry, 1_200_100);
        wheel.advance(1_200_300);
        assertEquals(2, called.size());
    }

    @Test
    void a_removed_entry_is_not_kept() throws Exception {
        Wheel.Entry entry = entry("a");
        WeakReference<Wheel.Entry> kept = new WeakReference<>(entry);
        wheel.arm(entry, 1_050_000);
        wheel.remove(entry);
        entry = null;
        for (int i = 0; i < 100 && kept.get() != null; i++) {
            System.gc();
            Thread.sleep(10);
        }
        assertNull(kept.get());
    }
}
