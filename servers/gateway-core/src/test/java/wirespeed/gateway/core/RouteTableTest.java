// Which route wins.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;

class RouteTableTest {
    private static final Origin ORIGIN = new Origin("o", List.of(new Address("h", 1)),
            Balancer.Method.ROUND_ROBIN, Origin.Settings.DEFAULT);

    private static Route route(String host, String prefix, List<String> methods,
            Map<String, String> headers) {
        return new Route(host + prefix, host, prefix, methods, headers,
                List.of(new Route.Target(ORIGIN, 1)), true, false, Route.Bounds.NONE);
    }

    private static Route route(String host, String prefix) {
        return route(host, prefix, List.of(), Map.of());
    }

    private static String found(RouteTable table, String method, String host, String path,
            String more) {
        Route route = table.find(HeadCheckTest.parse(method + " " + path + " HTTP/1.1\r\nHost: "
                + host + "\r\n" + more + "\r\n"));
        return route == null ? null : route.name();
    }

    @Test
    void the_most_specific_host_and_prefix_win() {
        RouteTable table = new RouteTable(List.of(route("", "/"), route("", "/a"),
                route("", "/a/b"), route("x.example", "/"), route("*.example", "/s"),
                route("*.y.example", "/s")));
        assertEquals("/a/b", found(table, "GET", "h", "/a/b/c", ""));
        assertEquals("/a", found(table, "GET", "h", "/a/bc", ""));
        assertEquals("/", found(table, "GET", "h", "/ab", ""));
        assertEquals("x.example/", found(table, "GET", "X.EXAMPLE:80", "/a", ""));
        assertEquals("x.example/", found(table, "GET", "x.example.:80", "/a", ""));
        assertEquals("*.example/s", found(table, "GET", "q.example.", "/s/1", ""));
        assertEquals("*.example/s", found(table, "GET", "q.example", "/s/1", ""));
        assertEquals("*.y.example/s", found(table, "GET", "q.y.example", "/s", ""));
        assertEquals("/a", found(table, "GET", "q.example", "/a", ""));
    }

    @Test
    void a_configured_host_may_end_in_a_dot() {
        RouteTable table = new RouteTable(List.of(route("", "/"), route("X.example.", "/"),
                route("*.y.example.", "/")));
        for (String host : List.of("x.example", "x.example.", "x.example.:80")) {
            assertEquals("X.example./", found(table, "GET", host, "/", ""));
        }
        assertEquals("*.y.example./", found(table, "GET", "q.y.example", "/", ""));
        assertEquals("*.y.example./", found(table, "GET", "q.y.example.", "/", ""));
    }

    @Test
    void one_of_ten_thousand_routes_is_found() {
        List<Route> routes = new java.util.ArrayList<>();
        for (int i = 0; i < 10_000; i++) {
            routes.add(route("", "/tenant-" + i + "/api"));
        }
        RouteTable table = new RouteTable(routes);
        assertEquals("/tenant-9999/api", found(table, "GET", "h", "/tenant-9999/api/x", ""));
        assertNull(found(table, "GET", "h", "/tenant-10000/api/x", ""));
    }

    @Test
    void methods_and_headers_select() {
        RouteTable table = new RouteTable(List.of(
                route("", "/a", List.of("POST"), Map.of()),
                route("", "/", List.of(), Map.of("X-Beta", "1"))));
        assertEquals("/a", found(table, "POST", "h", "/a", ""));
        assertEquals("/", found(table, "GET", "h", "/a", "x-beta: 1\r\n"));
        assertNull(found(table, "GET", "h", "/a", "x-beta: 2\r\n"));
    }

    @Test
    void weights_share_requests() {
        Origin other = new Origin("p", List.of(new Address("h", 2)), Balancer.Method.ROUND_ROBIN,
                Origin.Settings.DEFAULT);
        Route route = new Route("w", "", "/", List.of(), Map.of(),
                List.of(new Route.Target(ORIGIN, 9), new Route.Target(other, 1)), false, false,
                Route.Bounds.NONE);
        Random random = new Random(1);
        Map<String, Integer> counts = new HashMap<>();
        for (int i = 0; i < 10_000; i++) {
            counts.merge(route.origin(random).name(), 1, Integer::sum);
        }
        assertEquals(9000, counts.get("o"), 200);
    }

    @Test
    void a_stripped_prefix_leaves_a_path() {
        Route route = route("", "/api");
        assertEquals("/", route.forwardedPath("/api"));
        assertEquals("/x", route.forwardedPath("/api/x"));
    }
}
