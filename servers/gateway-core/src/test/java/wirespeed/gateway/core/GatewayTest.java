// No snapshot counts as unused, and has its filters closed, under an exchange that begins on it.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.LongAdder;
import org.junit.jupiter.api.Test;

class GatewayTest {
    private final Snapshot before = snapshot(1);
    private final Snapshot after = snapshot(2);

    private static Snapshot snapshot(long version) {
        return new Snapshot(version, new Chain(List.of()), new RouteTable(List.of()), Map.of(),
                Limits.DEFAULT, new Forwarding("gateway", Networks.parse(List.of())));
    }

    @Test
    void a_swap_while_an_exchange_begins_gives_it_the_new_snapshot() {
        AtomicInteger looks = new AtomicInteger();
        Snapshot entered = Gateway.enter(() -> looks.incrementAndGet() == 1 ? before : after);
        assertSame(after, entered);
        assertFalse(after.isUnused());
        assertTrue(before.isUnused(), "the old one is held for ever");
    }

    @Test
    void an_exchange_is_counted_before_the_second_look() {
        AtomicInteger looks = new AtomicInteger();
        Gateway.enter(() -> {
            boolean isSecond = looks.incrementAndGet() == 2;
            assertFalse(isSecond && before.isUnused(),
                    "a swap after this look could close the filters under the exchange");
            return before;
        });
        before.end();
        assertTrue(before.isUnused());
    }

    @Test
    void exchanges_that_begin_and_end_during_the_look_hide_no_other_one() {
        Passing begun = new Passing();
        Passing ended = new Passing();
        begun.others = ended.others = List.of(begun, ended);
        Snapshot busy = new Snapshot(3, new Chain(List.of()), new RouteTable(List.of()), Map.of(),
                Limits.DEFAULT, new Forwarding("gateway", Networks.NONE), begun, ended);
        busy.begin();
        assertFalse(busy.isUnused(), "one is under way");
    }

    /** After each look at this count another exchange begins and ends. */
    private static final class Passing extends LongAdder {
        private static final long serialVersionUID = 1L;
        private transient List<Passing> others = List.of();

        @Override
        public long sum() {
            long value = super.sum();
            others.forEach(LongAdder::increment);
            return value;
        }
    }
}
