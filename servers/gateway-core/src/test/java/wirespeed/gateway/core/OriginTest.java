// Balancing, ejection, reserves, persistence and the retry budget.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class OriginTest {
    private final List<Address> addresses = IntStream.range(0, 4)
            .mapToObj(i -> new Address("h" + i, 80)).toList();

    private Origin origin(Balancer.Method method, String hashKey, Persistence persistence) {
        return new Origin("o", addresses, method, new Origin.Settings(1, 1, 1, 1, 1, 1, 1, 0, 1, false, true, false,
                hashKey, persistence, null, Retry.DEFAULT, Origin.Http2.OFF,
                false, ""));
    }

    private Origin origin(Balancer.Method method) {
        return origin(method, "client", Persistence.NONE);
    }

    private static Context context(String more) {
        return new Context(new Snapshot(1, new Chain(List.of()), new RouteTable(List.of()),
                Map.of(), Limits.DEFAULT, new Forwarding("gw-1", Networks.NONE)), HeadCheckTest.parse("GET /p HTTP/1.1\r\nHost: a\r\n"
                + more + "\r\n"), 0);
    }

    private static Map<Address, Integer> spread(Origin origin, int rounds) {
        Map<Address, Integer> counts = new HashMap<>();
        for (int i = 0; i < rounds; i++) {
            counts.merge(origin.choose(context(""), null, 0), 1, Integer::sum);
        }
        return counts;
    }

    @Test
    void round_robin_follows_weights_exactly() {
        addresses.get(0).weight(3);
        Map<Address, Integer> counts = spread(origin(Balancer.Method.ROUND_ROBIN), 600);
        assertEquals(300, counts.get(addresses.get(0)));
        assertEquals(100, counts.get(addresses.get(1)));
    }

    @Test
    void least_connections_takes_the_idle_one() {
        addresses.forEach(address -> address.inFlight().set(5));
        addresses.get(2).inFlight().set(1);
        assertSame(addresses.get(2),
                origin(Balancer.Method.LEAST_CONNECTIONS).choose(context(""), null, 0));
    }

    /** The share of an address *1 next to one *9, at this many requests in flight on average. */
    private static double shareOfTheLight(Balancer.Method method, double inFlight) {
        Address heavy = new Address("10.0.1.1", 80);
        Address light = new Address("10.0.1.2", 80);
        heavy.weight(9);
        Origin origin = new Origin("o", List.of(heavy, light), method, new Origin.Settings(1, 1, 1, 1, 1,
                1, 1, 0, 1, false, true, false, "client", Persistence.NONE, null, Retry.DEFAULT,
                Origin.Http2.OFF, false, ""));
        Random random = new Random(3);
        TreeMap<Double, Address> ends = new TreeMap<>();
        double now = 0;
        int chosen = 0;
        for (int i = 0; i < 20_000; i++) {
            now += -Math.log(1 - random.nextDouble()) / inFlight;
            while (!ends.isEmpty() && ends.firstKey() <= now) {
                ends.pollFirstEntry().getValue().inFlight().decrementAndGet();
            }
            Address address = origin.choose(context(""), null, 0);
            address.inFlight().incrementAndGet();
            ends.put(now - Math.log(1 - random.nextDouble()), address);
            chosen += address == light ? 1 : 0;
        }
        return chosen / 20_000.0;
    }

    @Test
    void weights_hold_at_low_load_and_at_high_load() {
        for (Balancer.Method method : List.of(Balancer.Method.RANDOM_TWO,
                Balancer.Method.LEAST_CONNECTIONS)) {
            for (double inFlight : new double[] {0.1, 1, 30}) {
                double share = shareOfTheLight(method, inFlight);
                assertTrue(share > 0.06 && share < 0.13, method + " at " + inFlight + ": " + share);
            }
        }
    }

    @Test
    void random_two_avoids_the_busiest() {
        addresses.get(3).inFlight().set(100);
        Map<Address, Integer> counts = spread(origin(Balancer.Method.RANDOM_TWO), 1000);
        assertNull(counts.get(addresses.get(3)));
        assertEquals(3, counts.size());
    }

    @Test
    void hash_is_stable_and_moves_only_the_keys_of_a_lost_address() {
        Origin origin = origin(Balancer.Method.HASH, "header:K", Persistence.NONE);
        Map<String, Address> before = new HashMap<>();
        for (int i = 0; i < 400; i++) {
            before.put("k" + i, origin.choose(context("K: k" + i + "\r\n"), null, 0));
        }
        assertEquals(4, before.values().stream().distinct().count());
        addresses.get(1).administration(Address.Administration.DOWN);
        before.forEach((key, address) -> {
            Address now = origin.choose(context("K: " + key + "\r\n"), null, 0);
            if (address != addresses.get(1)) {
                assertSame(address, now);
            } else {
                assertNotEquals(address, now);
            }
        });
    }

    @Test
    void failures_eject_and_a_probe_brings_back() {
        Address bad = addresses.get(0);
        Origin origin = origin(Balancer.Method.ROUND_ROBIN);
        for (int i = 0; i < Breaker.FAILURES_IN_A_ROW; i++) {
            bad.breaker().failed(1000, 1000);
        }
        assertFalse(bad.isUsable(1000));
        assertTrue(bad.isUsable(1000 + Breaker.EJECTION_MILLIS));
        bad.breaker().chosen(1000 + Breaker.EJECTION_MILLIS);
        assertFalse(bad.isUsable(1001 + Breaker.EJECTION_MILLIS));
        bad.breaker().succeeded(1000 + Breaker.EJECTION_MILLIS);
        assertTrue(bad.isUsable(1001 + Breaker.EJECTION_MILLIS));
        assertEquals(4, spread(origin, 400).size());
    }

    private static void eject(Address address) {
        for (int i = 0; i < Breaker.FAILURES_IN_A_ROW; i++) {
            address.breaker().failed(1000, 1000);
        }
    }

    @Test
    void requests_under_way_do_not_prolong_an_ejection_but_a_failed_probe_does() {
        Breaker breaker = addresses.get(0).breaker();
        for (int i = 0; i < 100; i++) {
            breaker.failed(1000, 1000);
        }
        long over = 1000 + Breaker.EJECTION_MILLIS;
        assertTrue(breaker.isUsable(over));
        breaker.chosen(over);
        breaker.failed(over, over);
        breaker.failed(over, over);
        assertFalse(breaker.isUsable(over + 2 * Breaker.EJECTION_MILLIS - 1));
        assertTrue(breaker.isUsable(over + 2 * Breaker.EJECTION_MILLIS));
    }

    @Test
    void an_answer_to_what_was_asked_before_an_ejection_does_not_end_it() {
        Address address = addresses.get(0);
        eject(address);
        address.breaker().succeeded(990);
        assertTrue(address.breaker().isOpen());
        long over = 1000 + Breaker.EJECTION_MILLIS;
        address.breaker().chosen(over);
        address.breaker().failed(over, over);
        address.breaker().succeeded(over - 10);
        assertFalse(address.isUsable(over + 2 * Breaker.EJECTION_MILLIS - 1), "the second is longer");
        address.breaker().succeeded(over + 10);
        assertTrue(address.isUsable(over + 10), "an ejected address that answers all the same");
    }

    @Test
    void failures_of_what_was_asked_before_an_ejection_do_not_begin_the_next_one() {
        Breaker breaker = addresses.get(0).breaker();
        eject(addresses.get(0));
        long over = 1000 + Breaker.EJECTION_MILLIS;
        breaker.chosen(over);
        breaker.succeeded(over);
        for (int i = 0; i < 100; i++) {
            breaker.failed(999, over + 5000);
        }
        assertFalse(breaker.isOpen(), "they time out after it came back");
        for (int i = 0; i < Breaker.FAILURES_IN_A_ROW; i++) {
            breaker.failed(over + 1, over + 5000);
        }
        assertTrue(breaker.isOpen());
    }

    @Test
    void when_all_are_ejected_the_one_that_is_well_again_is_found() {
        for (Balancer.Method method : Balancer.Method.values()) {
            Address well = new Address("well", 80);
            Address dead = new Address("dead", 80);
            Origin origin = new Origin("two", List.of(well, dead), method,
                    Origin.Settings.DEFAULT);
            eject(well);
            eject(dead);
            assertEquals(2, spread(origin, 400).size(), method.label());
            assertSame(well, origin.choose(context(""), dead, 1000));
            well.breaker().succeeded(1010);
            assertEquals(java.util.Set.of(well), spread(origin, 50).keySet());
        }
    }

    @Test
    void a_reserve_comes_before_what_was_ejected() {
        addresses.get(3).backup(true);
        addresses.subList(0, 3).forEach(OriginTest::eject);
        assertEquals(java.util.Set.of(addresses.get(3)),
                spread(origin(Balancer.Method.RANDOM_TWO), 50).keySet());
        eject(addresses.get(3));
        assertFalse(spread(origin(Balancer.Method.RANDOM_TWO), 50)
                .containsKey(addresses.get(3)));
    }

    @Test
    void the_only_address_is_never_ejected() {
        Address only = addresses.get(0);
        Origin origin = new Origin("one", List.of(only), Balancer.Method.ROUND_ROBIN,
                Origin.Settings.DEFAULT);
        eject(only);
        assertSame(only, origin.choose(context(""), null, 1000));
        only.checked(false);
        assertNull(origin.choose(context(""), null, 1000));
    }

    @Test
    void an_address_that_comes_back_gets_its_share_slowly() {
        Address back = addresses.get(0);
        Origin origin = new Origin("slow", addresses, Balancer.Method.ROUND_ROBIN,
                Origin.Settings.DEFAULT);
        back.checked(false);
        back.checked(true);
        long returned = System.nanoTime() / 1_000_000;
        assertTrue(share(origin, back, returned) < 0.15);
        assertTrue(share(origin, back, returned + 100_000) > 0.2);
        addresses.subList(1, 4).forEach(address -> address.checked(false));
        assertSame(back, origin.choose(context(""), null, returned));
    }

    private static double share(Origin origin, Address address, long nowMillis) {
        int chosen = 0;
        for (int i = 0; i < 1000; i++) {
            chosen += origin.choose(context(""), null, nowMillis) == address ? 1 : 0;
        }
        return chosen / 1000.0;
    }

    @Test
    void at_most_half_of_the_addresses_are_ejected() {
        addresses.subList(0, 3).forEach(OriginTest::eject);
        Origin origin = origin(Balancer.Method.ROUND_ROBIN);
        // Two of four are in use: the one that is well gets half.
        assertEquals(200, spread(origin, 400).get(addresses.get(3)), 60);
    }

    @Test
    void a_reserve_is_used_when_nothing_else_is() {
        addresses.get(3).backup(true);
        assertEquals(3, spread(origin(Balancer.Method.ROUND_ROBIN), 300).size());
        addresses.subList(0, 3).forEach(address -> address.checked(false));
        assertEquals(Map.of(addresses.get(3), 10),
                spread(origin(Balancer.Method.ROUND_ROBIN), 10));
        addresses.get(3).administration(Address.Administration.DRAIN);
        assertNull(origin(Balancer.Method.ROUND_ROBIN).choose(context(""), null, 0));
    }

    @Test
    void a_cookie_binds_and_a_drained_address_serves_old_sessions() {
        Persistence cookie = new Persistence(Persistence.Kind.COOKIE, "sid", new byte[] {1, 2});
        Origin origin = origin(Balancer.Method.RANDOM_TWO, "client", cookie);
        Context first = context("");
        Address address = origin.choose(first, null, 0);
        first.attempt(address);
        first.response(Response.of(200, "text/plain", "x"));
        cookie.bind(first);
        String set = first.response().headers().get("Set-Cookie");
        assertTrue(set.endsWith("; Path=/; HttpOnly; SameSite=Lax"), set);
        address.administration(Address.Administration.DRAIN);
        String line = "Cookie: a=b; " + set.substring(0, set.indexOf(';')) + "\r\n";
        for (int i = 0; i < 50; i++) {
            assertSame(address, origin.choose(context(line), null, 0));
        }
        address.administration(Address.Administration.DOWN);
        assertNotEquals(address, origin.choose(context(line), null, 0));
    }

    @Test
    void retries_stay_within_their_budget() {
        Origin origin = origin(Balancer.Method.ROUND_ROBIN);
        for (int i = 0; i < 1000; i++) {
            origin.countRequest();
        }
        int retries = 0;
        while (origin.takesRetry()) {
            retries++;
        }
        assertEquals(211, retries);
    }

    @Test
    void a_long_time_without_failures_saves_up_no_storm_of_retries() {
        Origin origin = origin(Balancer.Method.ROUND_ROBIN);
        for (int i = 0; i < 1_000_000; i++) {
            origin.countRequest();
        }
        int retries = 0;
        for (int i = 0; i < 100_000; i++) {
            origin.countRequest();
            retries += origin.takesRetry() ? 1 : 0;
        }
        int share = 100_000 / 5;
        int saved = Origin.REMEMBERED / 5;
        assertTrue(retries >= share && retries <= share + saved, retries + " retries");
    }

    @Test
    void an_address_is_read_strictly() {
        assertEquals("[::1]:80", Address.parse("[::1]:80").id());
        for (String text : List.of("a", "a:", "a:x", "a:70000", "::1:80")) {
            org.junit.jupiter.api.Assertions.assertThrows(IllegalArgumentException.class,
                    () -> Address.parse(text), text);
        }
    }

    @Test
    void slow_answers_eject_an_address_where_that_is_wanted() {
        Origin.Settings usual = Origin.Settings.DEFAULT;
        for (int slowMillis : new int[] {0, 1000}) {
            Address address = new Address("s" + slowMillis, 80);
            Origin own = new Origin("o", List.of(address, new Address("other", 80)),
                    Balancer.Method.RANDOM_TWO, new Origin.Settings(1, 1, 1, 1, 1, 1, 1, 0, 1,
                    false, true, false, "client", Persistence.NONE, null,
                    Retry.of(List.of(), 20, false, slowMillis, 0), usual.http2(), false, ""));
            for (int i = 0; i < Breaker.FAILURES_IN_A_ROW; i++) {
                own.judge(address, 200, 1000, 4000, 5000);
            }
            assertTrue(!address.breaker().isOpen(), "1000 ms are not more than 1000 ms");
            for (int i = 0; i < Breaker.FAILURES_IN_A_ROW; i++) {
                own.judge(address, 200, 1001, 3999, 5000);
            }
            assertEquals(slowMillis > 0, address.breaker().isOpen());
        }
    }
}
