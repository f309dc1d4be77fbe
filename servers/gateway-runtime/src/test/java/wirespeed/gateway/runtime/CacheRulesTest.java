// RFC 9111: what is fresh, for how long, and how directives are read.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Response;

class CacheRulesTest {
    private static final long NOW = StoredResponse.date("Sat, 21 Nov 2026 12:00:00 GMT", 0);

    private static Headers headers(String... pairs) {
        Headers headers = new Headers();
        for (int i = 0; i < pairs.length; i += 2) {
            headers.add(pairs[i], pairs[i + 1]);
        }
        return headers;
    }

    private static long freshness(String... pairs) {
        return StoredResponse.freshness(headers(pairs), 200, NOW);
    }

    @Test
    void freshness_follows_the_order_of_section_4_2_1() {
        assertEquals(5, freshness("Cache-Control", "max-age=9, s-maxage=5"));
        assertEquals(9, freshness("Cache-Control", "public, MAX-AGE=\"9\"",
                "Expires", "Sat, 21 Nov 2026 13:00:00 GMT"));
        assertEquals(3600, freshness("Expires", "Sat, 21 Nov 2026 13:00:00 GMT"));
        assertEquals(0, freshness("Expires", "0"));
        assertEquals(0, freshness("Cache-Control", "max-age=soon"));
        // RFC 9111 1.2.2: too large a number is 2^31.
        assertEquals(1L << 31, freshness("Cache-Control", "max-age=99999999999999999999"));
        assertEquals(360, freshness("Last-Modified", "Sat, 21 Nov 2026 11:00:00 GMT"));
        assertEquals(24 * 3600, freshness("Last-Modified", "Sun, 21 Nov 2021 11:00:00 GMT"));
        assertEquals(0, freshness());
        assertEquals(0, StoredResponse.freshness(headers("Last-Modified",
                "Sat, 21 Nov 2026 11:00:00 GMT"), 302, NOW));
    }

    @Test
    void age_counts_the_way_to_us_and_the_time_here() {
        Response response = Response.received(200, headers("Age", "7", "Date",
                "Sat, 21 Nov 2026 11:59:50 GMT", "Cache-Control", "max-age=60"), Framing.NONE);
        StoredResponse stored = StoredResponse.of(response, new byte[0], NOW - 2000, NOW);
        assertEquals(10, stored.ageSeconds(NOW));
        assertEquals(15, stored.ageSeconds(NOW + 5000));
        assertEquals(45, stored.freshForSeconds(NOW + 5000));
    }

    @Test
    void a_304_updates_what_is_stored() {
        Response response = Response.received(200, headers("ETag", "\"a\"", "X", "1",
                "Cache-Control", "max-age=1"), Framing.NONE);
        StoredResponse stored = StoredResponse.of(response, new byte[3], NOW, NOW);
        StoredResponse fresh = stored.refreshed(headers("Cache-Control", "max-age=50",
                "Content-Length", "0"), NOW + 9000, NOW + 9000);
        assertEquals(50, fresh.freshForSeconds(NOW + 9000));
        assertEquals("1", fresh.headers().get("X"));
        assertEquals(3, fresh.body().length);
    }

    @Test
    void a_304_is_about_the_response_whose_validators_it_has() {
        String date = "Sat, 21 Nov 2026 11:00:00 GMT";
        StoredResponse tagged = StoredResponse.of(Response.received(200, headers("ETag", "\"a\"", "Last-Modified", date),
                Framing.NONE), new byte[3], NOW, NOW);
        StoredResponse dated = StoredResponse.of(Response.received(200, headers("Last-Modified", date), Framing.NONE),
                new byte[3], NOW, NOW);
        for (StoredResponse one : List.of(tagged, dated)) {
            assertTrue(one.isConfirmedBy(headers()));
            assertTrue(one.isConfirmedBy(headers("Last-Modified", date)));
            assertFalse(one.isConfirmedBy(headers("Last-Modified", "Sat, 21 Nov 2026 11:30:00 GMT")));
        }
        assertTrue(tagged.isConfirmedBy(headers("ETag", "W/\"a\"")));
        assertFalse(tagged.isConfirmedBy(headers("ETag", "\"b\"", "Last-Modified", date)));
    }

    @Test
    void validators_of_a_client_are_compared_weakly() {
        Response response = Response.received(200, headers("ETag", "W/\"a\""), Framing.NONE);
        StoredResponse stored = StoredResponse.of(response, new byte[3], NOW, NOW);
        assertEquals(304, stored.toResponse(headers("If-None-Match", "\"x\", \"a\""), NOW)
                .status());
        for (String other : List.of("\"x\"", "\"W/\"", "a", "\"x,\"a\"", "\"\"")) {
            assertEquals(200, stored.toResponse(headers("If-None-Match", other), NOW).status(), other);
        }
        // A comma may stand in a tag, too (RFC 9110 §8.8.3).
        StoredResponse comma = StoredResponse.of(Response.received(200, headers("ETag", "\"a,b\""),
                Framing.NONE), new byte[3], NOW, NOW);
        assertEquals(304, comma.toResponse(headers("If-None-Match", "\"x\", W/\"a,b\""), NOW).status());
        assertEquals(200, comma.toResponse(headers("If-None-Match", "\"a\", \"b\""), NOW).status());
        assertEquals(304, stored.toResponse(headers("If-None-Match", "\"x\"", "If-None-Match", "\"a\""), NOW)
                .status());
    }

    @Test
    void a_tag_without_quotes_comes_back_as_it_is() {
        for (String tag : List.of("a1", "W/a1")) {
            StoredResponse bare = StoredResponse.of(Response.received(200, headers("ETag", tag), Framing.NONE),
                    new byte[3], NOW, NOW);
            for (String same : List.of(tag, "a1", "\"x\", W/a1")) {
                assertEquals(304, bare.toResponse(headers("If-None-Match", same), NOW).status(), same);
            }
            for (String other : List.of("a", "\"a1\"", "a1x")) {
                assertEquals(200, bare.toResponse(headers("If-None-Match", other), NOW).status(), other);
            }
        }
    }

    @Test
    void a_client_that_asks_by_time_keeps_a_copy_of_the_same_time() {
        String date = "Sat, 21 Nov 2026 11:00:00 GMT";
        for (String name : List.of("Last-Modified", "Date")) {
            StoredResponse stored = StoredResponse.of(Response.received(200, headers(name, date), Framing.NONE),
                    new byte[3], NOW, NOW);
            assertEquals(304, stored.toResponse(headers("If-Modified-Since", date), NOW).status(), name);
            assertEquals(200, stored.toResponse(headers("If-Modified-Since", "Sat, 21 Nov 2026 10:59:59 GMT"), NOW)
                    .status(), name);
            assertEquals(200, stored.toResponse(headers("If-Modified-Since", "yesterday"), NOW).status(), name);
        }
    }

    @Test
    void a_quoted_comma_does_not_end_a_directive() {
        CacheControl control = CacheControl.of(headers("Cache-Control",
                "private=\"a, no-store\", max-age=3"));
        assertTrue(control.has("private"));
        assertEquals(3, control.seconds("max-age"));
        assertEquals(-1, control.seconds("no-store"));
    }

    @Test
    void quotes_hide_no_directive_that_stands_behind_them() {
        for (String line : List.of("a=\"b\\\"c\", no-store", "a=\"b, no-store", "a=b\", no-store",
                "a=\"\\\", b=\"c\", no-store", "no-store, a=\"", "a=\"b\\, no-store")) {
            assertTrue(CacheControl.of(headers("Cache-Control", line)).has("no-store"), line);
        }
        for (String line : List.of("a=\"b, no-store\"", "a=\"\\\", no-store, \"", "a=\"\\\\\", b=\", no-store\"")) {
            assertFalse(CacheControl.of(headers("Cache-Control", line)).has("no-store"), line);
        }
        assertEquals(3, CacheControl.of(headers("Cache-Control", "a=\"max-age=9\", max-age=3, max-age=5"))
                .seconds("max-age"));
    }

    @Test
    void of_several_ages_the_first_one_counts() {
        for (String age : List.of("7", "7, 0", "7,9", "7 , x")) {
            assertEquals(7, aged(age).ageSeconds(NOW), age);
        }
        for (String age : List.of("-1", "x", "7.5", "", "x, 7")) {
            assertEquals(0, aged(age).ageSeconds(NOW), age);
        }
    }

    private static StoredResponse aged(String age) {
        return StoredResponse.of(Response.received(200, headers("Age", age), Framing.NONE), new byte[0],
                NOW, NOW);
    }

    @Test
    void dates_are_read_in_each_of_their_three_forms() {
        for (String date : List.of("Sat, 21 Nov 2026 13:00:00 GMT", "Saturday, 21-Nov-26 13:00:00 GMT",
                "Sat Nov 21 13:00:00 2026")) {
            assertEquals(3600, freshness("Expires", date), date);
        }
        assertEquals(StoredResponse.date("Sun, 06 Nov 1994 08:49:37 GMT", 0),
                StoredResponse.date("Sunday, 06-Nov-94 08:49:37 GMT", 0));
        assertEquals(StoredResponse.date("Sun, 06 Nov 1994 08:49:37 GMT", 0),
                StoredResponse.date("Sun Nov  6 08:49:37 1994", 0));
        assertEquals(StoredResponse.date("Sun, 06 Nov 1994 08:49:37 GMT", 0),
                StoredResponse.date("sun, 06 NOV 1994 08:49:37 gmt", 0));
        for (String none : List.of("6 Nov 1994", "Sun, 6 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 8:49:37 GMT",
                "Sun, 06 Nov 1994 08:49:37 +0000", "06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 94 08:49:37 GMT",
                "Sun, 06 Nov 1994 08:49:37 UTC", "Sun,  06 Nov 1994 08:49:37 GMT")) {
            assertEquals(-1, StoredResponse.date(none, -1), none);
        }
    }

    @Test
    void a_response_without_a_date_is_dated_when_it_comes() {
        for (Headers undated : List.of(headers(), headers("Date", "yesterday"))) {
            Response response = Response.received(200, undated, Framing.NONE);
            StoredResponse stored = StoredResponse.of(response, new byte[0], NOW, NOW);
            assertEquals(List.of("Sat, 21 Nov 2026 12:00:00 GMT"), stored.headers().all("Date"));
        }
    }

    @Test
    void only_max_stale_without_a_number_knows_no_limit() {
        assertEquals(Long.MAX_VALUE, staleSecondsMax("max-stale"));
        assertEquals(7, staleSecondsMax("max-stale=7"));
        assertEquals(0, staleSecondsMax("max-stale=0"));
        assertEquals(0, staleSecondsMax("max-stale=soon"));
        assertEquals(1L << 31, staleSecondsMax("max-stale=99999999999999999999"));
        assertEquals(-1, staleSecondsMax("max-age=9"));
    }

    private static long staleSecondsMax(String directives) {
        return CacheControl.of(headers("Cache-Control", directives)).staleSecondsMax();
    }

    private static RateLimit limit(int burst, long[] now) {
        return new RateLimit(new ShippedFilters.Scope("r", 0, "/", "", "any"), List.of("client"),
                10, burst, 32, 64, () -> now[0]);
    }

    @Test
    void buckets_that_are_full_again_are_forgotten() {
        long[] now = {0};
        RateLimit limit = limit(3, now);
        for (int i = 0; i < 1000; i++) {
            limit.take("client " + i);
        }
        assertEquals(1000, limit.size());
        now[0] += 2_000_000_000L;
        limit.take("a");
        assertEquals(1, limit.size());
    }

    @Test
    void long_keys_of_a_bucket_differ_by_their_last_character() {
        RateLimit limit = limit(1, new long[] {0});
        String key = "x".repeat(16_000);
        assertEquals(0, limit.take(key + "a"));
        assertTrue(limit.take(key + "a") > 0);
        assertEquals(0, limit.take(key + "b"));
        assertEquals(KeyHash.of(key), RateLimit.kept(key), "a key is not kept in its length");
    }

    @Test
    void buckets_are_bounded_in_number() {
        RateLimit limit = limit(1000, new long[] {0});
        for (int i = 0; i < 100_100; i++) {
            limit.take("client " + i);
        }
        assertTrue(limit.size() <= 100_000 + 4096, limit.size() + " buckets");
    }

    @Test
    void a_bucket_gives_its_burst_and_then_its_rate() {
        long[] now = {0};
        RateLimit limit = limit(3, now);
        for (int i = 0; i < 3; i++) {
            assertEquals(0, limit.take("a"));
        }
        assertEquals(100_000_000, limit.take("a"));
        assertEquals(0, limit.take("b"));
        now[0] += 100_000_000;
        assertEquals(0, limit.take("a"));
        assertTrue(limit.take("a") > 0);
    }
}
