/** The wheel on a virtual clock. */
package wirespeed.stuborigin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;

class WheelTest {
    private static final long MS = 1_000_000;
    private final List<Long> due = new ArrayList<>();
    private final Wheel wheel = new Wheel(0);

    private final class Noting extends Wheel.Entry {
        private final long name;

        Noting(long name) {
            this.name = name;
        }

        @Override
        void due(long nowNs) {
            due.add(name);
        }
    }

    @Test
    void an_entry_is_due_at_the_first_tick_not_before_its_time() {
        wheel.add(new Noting(1), 50 * MS - 300_000);
        wheel.advance(50 * MS - 1);
        assertEquals(List.of(), due);
        wheel.advance(50 * MS);
        assertEquals(List.of(1L), due);
        assertEquals(0, wheel.size());
    }

    @Test
    void the_next_due_time_is_that_of_the_earliest_entry() {
        assertEquals(Wheel.NEVER, wheel.nextDueNs());
        wheel.add(new Noting(1), 70 * MS);
        wheel.add(new Noting(2), 30 * MS);
        assertEquals(30 * MS, wheel.nextDueNs());
        wheel.advance(30 * MS);
        assertEquals(70 * MS, wheel.nextDueNs());
    }

    @Test
    void an_entry_beyond_a_whole_turn_waits_for_its_turn() {
        wheel.add(new Noting(1), 10_000 * MS);
        wheel.add(new Noting(2), (10_000 - 4096) * MS);
        for (long now = 0; now < 10_000; now++) {
            wheel.advance(now * MS);
        }
        assertEquals(List.of(2L), due);
        wheel.advance(10_000 * MS);
        assertEquals(List.of(2L, 1L), due);
    }

    @Test
    void a_removed_entry_is_not_due_and_can_wait_again() {
        Noting entry = new Noting(1);
        wheel.add(entry, 5 * MS);
        assertThrows(IllegalStateException.class, () -> wheel.add(entry, 6 * MS));
        wheel.remove(entry);
        wheel.remove(entry);
        wheel.advance(9 * MS);
        assertEquals(List.of(), due);
        wheel.add(entry, 10 * MS);
        wheel.advance(10 * MS);
        assertEquals(List.of(1L), due);
    }

    @Test
    void an_entry_may_wait_again_when_it_is_due() {
        Wheel.Entry again = new Wheel.Entry() {
            @Override
            void due(long nowNs) {
                due.add(nowNs / MS);
                if (due.size() < 3) {
                    wheel.add(this, nowNs);
                }
            }
        };
        wheel.add(again, MS);
        for (long now = 1; now < 10; now++) {
            wheel.advance(now * MS);
        }
        assertEquals(List.of(1L, 2L, 3L), due);
    }

    @Test
    void a_late_call_serves_all_missed_entries_in_order() {
        SplittableRandom random = new SplittableRandom(3);
        List<Long> expected = new ArrayList<>();
        for (int each = 0; each < 20_000; each++) {
            long tick = 1 + random.nextInt(8000);
            expected.add(tick);
            wheel.add(new Noting(tick), tick * MS);
        }
        wheel.advance(4000 * MS);
        assertTrue(due.stream().allMatch(tick -> tick <= 4000));
        wheel.advance(9000 * MS);
        expected.sort(null);
        assertEquals(expected, due);
        assertEquals(0, wheel.size());
    }
}
