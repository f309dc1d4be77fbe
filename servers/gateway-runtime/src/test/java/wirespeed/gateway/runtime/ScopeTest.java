// For which requests a shipped filter is.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Snapshot;

class ScopeTest {
    private static final Snapshot SNAPSHOT = new SnapshotBuilder().build(ConfigReader.read(
            "[origins.o]\naddresses = [\"h:1\"]\n", "x.toml", Map.of(), Map.of()), List.of());

    private static boolean covers(String configured, String host) {
        Request request = new Request("GET", "/", 1, new Headers());
        request.host(host);
        return new ShippedFilters.Scope("deny", 0, "/", configured, "any")
                .covers(new Context(SNAPSHOT, request, 0));
    }

    @Test
    void a_host_is_the_same_with_and_without_a_dot_at_its_end() {
        for (String configured : List.of("admin.test", "Admin.test", "admin.test.")) {
            for (String host : List.of("admin.test", "ADMIN.test", "admin.test.:80")) {
                assertEquals(true, covers(configured, host), configured + " for " + host);
            }
            assertEquals(false, covers(configured, "shop.test."), configured);
        }
    }

    @Test
    void a_suffix_stands_for_the_hosts_below_it() {
        for (String configured : List.of("*.admin.test", "*.Admin.test.")) {
            for (String host : List.of("a.admin.test", "A.b.ADMIN.test.:80")) {
                assertEquals(true, covers(configured, host), configured + " for " + host);
            }
            for (String host : List.of("admin.test", "xadmin.test", "a.admin.test.example")) {
                assertEquals(false, covers(configured, host), configured + " for " + host);
            }
        }
        assertEquals(true, covers("[2001:DB8::1]", "[2001:db8::1]:80"));
    }

    @Test
    void the_scheme_is_the_first_one_that_proxies_in_front_name() {
        for (String said : List.of("https", "HTTPS", "https, http", " https ,http", "https,https")) {
            Headers headers = new Headers();
            headers.add("X-Forwarded-Proto", said);
            Context context = new Context(SNAPSHOT, new Request("GET", "/", 1, headers), 0);
            assertEquals(true, scheme("https").covers(context), said);
            assertEquals(false, scheme("http").covers(context), said);
        }
    }

    private static ShippedFilters.Scope scheme(String configured) {
        return new ShippedFilters.Scope("deny", 0, "/", "", configured);
    }
}
