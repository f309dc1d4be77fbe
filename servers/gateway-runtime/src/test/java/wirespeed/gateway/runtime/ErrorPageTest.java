// What a page takes of memory: one buffer for all clients.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Filter;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.core.Snapshot;

class ErrorPageTest {
    private static final Config CONFIG = ConfigReader.read("[origins.o]\naddresses = [\"h:1\"]\n"
            + "[[filter]]\ntype = \"error-page\"\nstatuses = [\"404\", \"5xx\"]\nbody = \"page\"\n",
            "x.toml", Map.of(), Map.of());
    private static final Snapshot SNAPSHOT = new SnapshotBuilder().build(CONFIG, List.of());
    private static final Filter FAILURES = ShippedFilters.of(CONFIG.filters()).stream()
            .filter(one -> one.phase() == Phase.ERROR).findFirst().orElseThrow();

    private static Response shown(int status, Category category) {
        Context context = new Context(SNAPSHOT, new Request("GET", "/", 1, new Headers()), 0);
        context.response(Response.of(status, "text/plain", "line"));
        context.category(category);
        FAILURES.apply(context);
        return context.response();
    }

    private static String text(ByteBuffer body) {
        return StandardCharsets.US_ASCII.decode(body).toString();
    }

    @Test
    void a_page_is_for_its_statuses_and_for_no_client_that_is_shed() {
        for (int status : new int[] {404, 500, 503, 599}) {
            assertEquals("page", text(shown(status, Category.ORIGIN_RESET).body()));
            assertEquals("line", text(shown(status, Category.SHED).body()));
        }
        for (int status : new int[] {200, 304, 400, 403, 405, 499}) {
            assertEquals("line", text(shown(status, Category.ORIGIN_RESET).body()));
        }
    }

    /** A socket's queue copies what is not direct, once for each client that does not read. */
    @Test
    void no_client_needs_a_copy_of_a_page() {
        Response first = shown(404, Category.NO_ROUTE);
        assertTrue(first.body().isDirect());
        assertEquals("page", text(first.body()));
        assertEquals("page", text(first.body()));
        assertEquals("page", text(shown(404, Category.NO_ROUTE).body()));
    }

    @Test
    void no_client_needs_a_copy_of_a_static_response() {
        Filter filter = ShippedFilters.of(ConfigReader.read("[origins.o]\naddresses = [\"h:1\"]\n"
                + "[[filter]]\ntype = \"static-response\"\nbody = \"text\"\n", "x.toml", Map.of(), Map.of())
                .filters()).get(0);
        Context context = new Context(SNAPSHOT, new Request("GET", "/", 1, new Headers()), 0);
        for (int i = 0; i < 2; i++) {
            ByteBuffer body = filter.apply(context).response().body();
            assertTrue(body.isDirect());
            assertEquals("text", text(body));
        }
    }
}
