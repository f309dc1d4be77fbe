// Clients that share a bucket, and clients that do not.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Snapshot;
import wirespeed.gateway.core.Step;

class RateLimitTest {
    private static final int BURST = 2;
    private static final Snapshot SNAPSHOT = new SnapshotBuilder().build(ConfigReader.read(
            "[origins.o]\naddresses = [\"h:1\"]\n", "x.toml", Map.of(), Map.of()), List.of());
    private long now;

    private RateLimit limit() {
        return new RateLimit(new ShippedFilters.Scope("r", 0, "/", "", "any"), List.of("client"), 1,
                BURST, 32, 64, () -> now);
    }

    @Test
    void the_addresses_of_one_network_are_one_client() {
        RateLimit limit = limit();
        int passed = 0;
        for (int i = 0; i < 1000; i++) {
            String address = "2001:db8:0:7:" + Integer.toHexString(i) + "::1";
            passed += limit.take(RateLimit.client(address, 32, 64)) <= 0 ? 1 : 0;
        }
        assertEquals(BURST, passed);
        assertTrue(limit.take(RateLimit.client("2001:db8:0:8::1", 32, 64)) <= 0);
    }

    @Test
    void ipv4_addresses_and_whole_ipv6_ones_have_buckets_of_their_own() {
        assertEquals("10.0.0.1", RateLimit.client("10.0.0.1", 32, 64));
        assertEquals("10.0.0.0/12", RateLimit.client("10.15.255.1", 12, 64));
        assertEquals("unknown", RateLimit.client("unknown", 24, 64));
        assertEquals("2001:db8:0:0:0:0:0:1", RateLimit.client("2001:db8:0:0:0:0:0:1", 32, 128));
        assertEquals("2001:db8:0:0:0:0:0:0/33", RateLimit.client("2001:db8::1", 32, 33));
    }

    private static Step ask(RateLimit limit, String... fields) {
        Headers headers = new Headers();
        for (int i = 0; i < fields.length; i += 2) {
            headers.add(fields[i], fields[i + 1]);
        }
        return limit.apply(new Context(SNAPSHOT, new Request("GET", "/", 1, headers), 0));
    }

    @Test
    void values_that_look_like_two_parts_share_no_bucket() {
        RateLimit limit = new RateLimit(new ShippedFilters.Scope("r", 0, "/", "", "any"),
                List.of("header:A", "header:B"), 1, 1, 32, 64, () -> now);
        assertNull(ask(limit, "A", "1", "B", "").response());
        assertNotNull(ask(limit, "A", "1").response());
        assertNull(ask(limit, "B", "1").response());
        assertNull(ask(limit, "A", "x1:y", "B", "").response());
        assertNull(ask(limit, "A", "x", "B", "y0:").response());
        assertNotNull(ask(limit, "A", "x", "B", "y0:").response());
    }

    @Test
    void a_key_without_a_name_is_refused() {
        for (String key : List.of("header:", "claim:", "header: ")) {
            IllegalArgumentException refused = assertThrows(IllegalArgumentException.class,
                    () -> new RateLimit(new ShippedFilters.Scope("r", 0, "/", "", "any"),
                            List.of("client", key), 1, 1, 32, 64, () -> now));
            assertTrue(refused.getMessage().startsWith("key \"" + key + "\" names no "),
                    refused.getMessage());
        }
    }

    @Test
    void a_full_table_costs_few_honest_clients_their_requests() {
        RateLimit limit = limit();
        for (int i = 0; i < 101_000; i++) {
            limit.take("attacker " + i);
            limit.take("attacker " + i);
        }
        int passed = 0;
        for (int i = 0; i < 100; i++) {
            passed += limit.take("honest " + i) <= 0 ? 1 : 0;
        }
        assertTrue(passed >= 40, passed + " of 100 passed");
    }

    @Test
    void in_a_full_table_equal_hash_codes_share_no_bucket() {
        RateLimit limit = limit();
        for (int i = 0; i < 100_000; i++) {
            limit.take("attacker " + i);
        }
        int passed = 0;
        for (int i = 0; i < 100; i++) {
            // One hash code for each pair.
            limit.take("Aa" + i);
            limit.take("Aa" + i);
            passed += limit.take("BB" + i) <= 0 ? 1 : 0;
        }
        assertTrue(passed >= 40, passed + " of 100 passed");
    }

    @Test
    void new_keys_do_not_each_search_a_full_table() {
        RateLimit limit = limit();
        for (int i = 0; i < 105_000; i++) {
            limit.take("attacker " + i);
        }
        long before = limit.sweeps.get();
        for (int i = 0; i < 10_000; i++) {
            limit.take("another " + i);
        }
        assertEquals(before, limit.sweeps.get());
        now += 10_000_000_000L;
        assertTrue(limit.take("honest") <= 0);
        assertTrue(limit.size() < 10, "the full buckets are still there");
    }
}
