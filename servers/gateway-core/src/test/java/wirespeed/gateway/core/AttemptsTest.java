// When a request is sent again.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class AttemptsTest {
    private static Context asked(String method, int addresses, int attempts) {
        List<Address> all = IntStream.range(0, addresses)
                .mapToObj(i -> new Address("h" + i, 80)).toList();
        Origin.Settings usual = Origin.Settings.DEFAULT;
        Origin origin = new Origin("o", all, Balancer.Method.RANDOM_TWO, new Origin.Settings(
                usual.connectMillis(), usual.responseMillis(), usual.idleBodyMillis(),
                usual.connectionsMax(), usual.connectionRequestsMax(),
                usual.connectionAgeMillis(), usual.waitersMax(), 0, 1, false, true, false,
                "client", Persistence.NONE, null, Retry.of(List.of("503"), 20, false, 0, 10),
                Origin.Http2.OFF, false, ""));
        Context context = new Context(new Snapshot(1, new Chain(List.of()),
                new RouteTable(List.of()), Map.of(), Limits.DEFAULT,
                new Forwarding("gw-1", Networks.NONE)), HeadCheckTest.parse(method
                + " /p HTTP/1.1\r\nHost: a\r\n\r\n"), 0);
        context.route(Route.toAll("all", origin));
        for (int i = 0; i < attempts; i++) {
            context.attempt(all.get(0));
        }
        return context;
    }

    @Test
    void a_stale_connection_does_not_count_as_an_attempt() {
        assertTrue(Attempts.mayFollow(asked("GET", 1, 1), Loss.STALE, false, true, 0));
        assertFalse(Attempts.mayFollow(asked("GET", 1, 2), Loss.STALE, false, true, 0));
        assertFalse(Attempts.mayFollow(asked("POST", 1, 1), Loss.STALE, false, true, 0));
    }

    @Test
    void the_end_of_an_exchange_speaks_against_an_address_that_had_half_of_it() {
        assertTrue(Attempts.hadTime(600, 600));
        assertTrue(Attempts.hadTime(300, 600));
        assertFalse(Attempts.hadTime(299, 600));
        assertFalse(Attempts.hadTime(-1, 600));
    }

    @Test
    void a_close_that_crossed_the_request_may_take_a_round_trip() {
        long millis = 1_000_000;
        assertEquals(Loss.STALE, Attempts.withoutAnswer(true, 200 * millis, 0));
        assertEquals(Loss.BEFORE_ANSWER, Attempts.withoutAnswer(true, 300 * millis, 0));
        assertEquals(Loss.STALE, Attempts.withoutAnswer(true, 300 * millis, 300 * millis));
        assertEquals(Loss.BEFORE_ANSWER, Attempts.withoutAnswer(true, 600 * millis, 300 * millis));
        assertEquals(Loss.BEFORE_ANSWER, Attempts.withoutAnswer(true, 5000 * millis, 7000 * millis));
        assertEquals(Loss.BEFORE_ANSWER, Attempts.withoutAnswer(false, 0, 300 * millis));
    }

    @Test
    void an_unprocessed_request_is_sent_again_whatever_its_method() {
        assertTrue(Attempts.mayFollow(asked("POST", 1, 1), Loss.UNPROCESSED, false, true, 0));
        assertFalse(Attempts.mayFollow(asked("POST", 1, 2), Loss.UNPROCESSED, false, true, 0));
        assertFalse(Attempts.mayFollow(asked("POST", 1, 1), Loss.UNPROCESSED, false, false, 0));
        assertFalse(Attempts.mayFollow(asked("POST", 2, 2), Loss.UNPROCESSED, false, true, 0));
    }

    @Test
    void another_address_is_asked_within_the_retries() {
        assertTrue(Attempts.mayFollow(asked("GET", 2, 1), Loss.BEFORE_ANSWER, false, true, 0));
        assertFalse(Attempts.mayFollow(asked("GET", 2, 2), Loss.BEFORE_ANSWER, false, true, 0));
        assertFalse(Attempts.mayFollow(asked("GET", 1, 1), Loss.BEFORE_ANSWER, false, true, 0));
        assertFalse(Attempts.mayFollow(asked("GET", 2, 1), Loss.AFTER_ANSWER, false, true, 0));
        assertFalse(Attempts.mayFollow(asked("PUT", 2, 1), Loss.BEFORE_ANSWER, false, false, 0));
        assertTrue(Attempts.mayFollow(asked("POST", 2, 1), Loss.BEFORE_ANSWER, true, false, 0));
    }

    @Test
    void an_answer_is_dropped_for_its_status_only() {
        assertTrue(Attempts.isTriedElsewhere(asked("GET", 2, 1), 503, true, 0));
        assertFalse(Attempts.isTriedElsewhere(asked("GET", 2, 1), 502, true, 0));
        assertFalse(Attempts.isTriedElsewhere(asked("POST", 2, 1), 503, true, 0));
    }

    @Test
    void a_request_is_hedged_once_and_only_if_it_may_be_sent_twice() {
        assertTrue(Attempts.mayHedge(asked("GET", 2, 1), true, 0));
        assertFalse(Attempts.mayHedge(asked("GET", 2, 2), true, 0), "no more than the retries");
        assertFalse(Attempts.mayHedge(asked("GET", 1, 1), true, 0), "no other address");
        assertFalse(Attempts.mayHedge(asked("PUT", 2, 1), false, 0), "its body is gone");
        assertFalse(Attempts.mayHedge(asked("POST", 2, 1), true, 0));
        Context context = asked("GET", 2, 1);
        int taken = 0;
        while (Attempts.mayHedge(context, true, 0)) {
            taken++;
        }
        assertEquals(11, taken, "the retry budget bounds it");
    }

    @Test
    void the_budget_ends() {
        Context context = asked("GET", 2, 1);
        int taken = 0;
        while (Attempts.mayFollow(context, Loss.BEFORE_ANSWER, false, true, 0)) {
            taken++;
        }
        assertEquals(11, taken);
    }

    @Test
    void a_retry_without_another_address_costs_no_budget() {
        Context context = asked("GET", 2, 1);
        Address other = context.origin().addresses().get(1);
        other.administration(Address.Administration.DOWN);
        for (int i = 0; i < 100; i++) {
            assertFalse(Attempts.mayFollow(context, Loss.BEFORE_ANSWER, false, true, 0));
            assertFalse(Attempts.isTriedElsewhere(context, 503, true, 0));
            assertFalse(Attempts.mayHedge(context, true, 0));
        }
        other.administration(Address.Administration.UP);
        assertTrue(Attempts.mayFollow(context, Loss.BEFORE_ANSWER, false, true, 0));
    }
}
