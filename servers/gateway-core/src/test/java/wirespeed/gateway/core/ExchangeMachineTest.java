// The course of an exchange: in every order of events, and by name where an order has a meaning.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.Size;
import org.junit.jupiter.api.Test;

class ExchangeMachineTest {
    /** Besides the beginning. */
    private static final int EVENTS = 7;

    /** One path after the other, like the digits of a counter whose base differs by digit. */
    private static int walk(ExchangeModel.Setup setup) {
        List<Integer> path = new ArrayList<>();
        int walked = 0;
        do {
            List<Integer> widths = walk(setup, path);
            walked++;
            while (!path.isEmpty() && path.get(path.size() - 1) + 1 == widths.get(path.size() - 1)) {
                path.remove(path.size() - 1);
            }
            if (!path.isEmpty()) {
                path.set(path.size() - 1, path.get(path.size() - 1) + 1);
            }
        } while (!path.isEmpty());
        return walked;
    }

    /** Goes this path and on by first choices, which it adds; how many there were at each step. */
    private static List<Integer> walk(ExchangeModel.Setup setup, List<Integer> path) {
        ExchangeModel model = setup.begin();
        List<Integer> widths = new ArrayList<>(EVENTS);
        for (int at = 0; at < EVENTS && !model.isOver(); at++) {
            List<ExchangeModel.Event> possible = model.possible();
            if (at == path.size()) {
                path.add(0);
            }
            widths.add(possible.size());
            model.happens(possible.get(path.get(at)));
        }
        if (path.stream().mapToInt(Integer::intValue).sum() % 2 == 0) {
            model.timesOut();
        }
        model.ends();
        return widths;
    }

    @Test
    void every_order_of_eight_events_keeps_the_rules() {
        int walked = 0;
        for (ExchangeModel.Setup setup : ExchangeModel.SETUPS) {
            walked += walk(setup);
        }
        assertTrue(walked > 50_000, walked + " orders");
    }

    @Property
    void longer_orders_keep_the_rules(@ForAll @IntRange(max = 5) int setup,
            @ForAll @Size(max = 40) List<@IntRange(max = 999) Integer> choices) {
        ExchangeModel model = ExchangeModel.SETUPS.get(setup).begin();
        for (int choice : choices) {
            if (!model.isOver()) {
                List<ExchangeModel.Event> possible = model.possible();
                model.happens(possible.get(choice % possible.size()));
            }
        }
        model.timesOut();
        model.ends();
    }
}
