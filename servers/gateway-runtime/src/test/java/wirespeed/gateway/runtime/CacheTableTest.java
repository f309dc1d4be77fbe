// The cache's memory is bounded in bytes, and forgotten responses stay forgotten.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Response;

class CacheTableTest {
    private final CacheTable table = new CacheTable(1 << 20);

    private static StoredResponse response(String field) {
        Headers headers = new Headers();
        headers.add("X", field);
        return StoredResponse.of(Response.received(200, headers, Framing.NONE), new byte[0], 0, 0);
    }

    private CacheTable.Asked asked(String uri) {
        return table.asked(uri, "owner", new Headers());
    }

    private void fill(String uri, String field) {
        for (int i = 0; i < 1000; i++) {
            table.put(asked(uri + i), response(field));
        }
        assertTrue(table.size() <= 128, table.size() + " entries of more than 8 KiB");
    }

    @Test
    void a_stored_response_weighs_its_uri() {
        fill("http://a/" + "x".repeat(8192), "");
    }

    @Test
    void a_stored_response_weighs_its_fields() {
        fill("http://a/", "x".repeat(8192));
    }

    @Test
    void what_is_known_of_uris_is_bounded_when_their_responses_have_left() {
        StoredResponse response = response("");
        for (int i = 0; i < 150_000; i++) {
            table.put(asked("http://a/" + i), response);
        }
        assertTrue(table.uris() < 120_000, table.uris() + " URIs");
    }

    @Test
    void a_purge_drops_the_uris_that_begin_so_and_counts_them() {
        for (String uri : new String[] {"http://a/1", "http://a/2", "http://b/1"}) {
            table.put(asked(uri), response(""));
            table.put(table.asked(uri, "another", new Headers()), response(""));
        }
        assertEquals(2, table.purge("http://a/"));
        assertNull(table.find(asked("http://a/1")));
        assertNotNull(table.find(asked("http://b/1")));
        assertEquals(0, table.purge("http://a/"));
    }

    @Test
    void a_response_asked_for_before_a_purge_is_not_stored_after_it() {
        CacheTable.Asked before = asked("http://a/1");
        table.purge("http://a/");
        table.put(before, response(""));
        assertNull(table.find(before));
        CacheTable.Asked after = asked("http://a/1");
        table.put(after, response(""));
        assertNotNull(table.find(after));
    }

    private CacheTable.Asked askedWith(String... fields) {
        Headers headers = new Headers();
        for (int i = 0; i < fields.length; i += 2) {
            headers.add(fields[i], fields[i + 1]);
        }
        return table.asked("http://a/", "owner", headers);
    }

    @Test
    void a_response_for_requests_without_a_field_is_none_for_an_empty_one() {
        Headers varies = new Headers();
        varies.add("Vary", "X-Tenant");
        StoredResponse stored = StoredResponse.of(Response.received(200, varies, Framing.NONE), new byte[0], 0, 0);
        table.put(askedWith(), stored);
        assertNotNull(table.find(askedWith("X-Other", "")));
        assertNull(table.find(askedWith("X-Tenant", "")));
        table.put(askedWith("x-tenant", "a", "x-tenant", "b"), stored);
        assertNotNull(table.find(askedWith("X-Tenant", "a,b")));
        assertNull(table.find(askedWith("X-Tenant", "a")));
    }
}
