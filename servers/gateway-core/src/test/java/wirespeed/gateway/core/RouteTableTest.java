// Which route wins.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.regex.Pattern;
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
            counts.merge(route.origin(of("session=" + i), random).name(), 1, Integer::sum);
        }
        assertEquals(9000, counts.get("o"), 200);
    }

    private static Request of(String cookie) {
        return HeadCheckTest.parse("GET / HTTP/1.1\r\nHost: h\r\nCookie: " + cookie + "\r\n\r\n");
    }

    private static Route sticky(int weight, int... others) {
        List<Route.Target> targets = new ArrayList<>(List.of(new Route.Target(ORIGIN, weight)));
        for (int other : others) {
            Origin origin = new Origin(String.valueOf((char) ('o' + targets.size())),
                    List.of(new Address("h", 2)), Balancer.Method.ROUND_ROBIN, Origin.Settings.DEFAULT);
            targets.add(new Route.Target(origin, other));
        }
        return new Route("w", "", "/", new Route.Match(List.of(), Map.of(), Map.of(), Map.of(), null), targets,
                "cookie:session", false, false, Route.Bounds.NONE, false, false);
    }

    @Test
    void a_client_stays_with_its_origin_and_a_larger_share_moves_only_what_it_must() {
        Random random = new Random(1);
        Map<String, Integer> counts = new HashMap<>();
        for (int i = 0; i < 10_000; i++) {
            Request request = of("a=b; session=" + i);
            String first = sticky(9, 1).origin(request, random).name();
            String second = sticky(9, 1).origin(request, random).name();
            assertEquals(first, second);
            counts.merge(first, 1, Integer::sum);
            if (first.equals("p")) {
                assertEquals("p", sticky(4, 1).origin(request, random).name());
            }
        }
        assertEquals(9000, counts.get("o"), 200);
        long drawn = java.util.stream.IntStream.range(0, 10_000).filter(i ->
                sticky(9, 1).origin(of("other=1"), random).name().equals("p")).count();
        assertEquals(1000, drawn, 200);
    }

    @Test
    void a_share_that_changes_moves_no_session_between_the_other_origins() {
        Random random = new Random(1);
        Map<String, Integer> counts = new HashMap<>();
        int moved = 0;
        for (int i = 0; i < 10_000; i++) {
            Request request = of("session=" + i);
            String before = sticky(5, 4, 1).origin(request, random).name();
            String after = sticky(5, 4, 2).origin(request, random).name();
            assertTrue(after.equals(before) || after.equals("q"), before + " to " + after);
            moved += after.equals(before) ? 0 : 1;
            counts.merge(before, 1, Integer::sum);
            assertEquals(before.equals("q") ? "q" : sticky(5, 4, 0).origin(request, random).name(), before);
            assertEquals("p", sticky(0, 1, 0).origin(request, random).name());
        }
        assertEquals(5000, counts.get("o"), 250);
        assertEquals(4000, counts.get("p"), 250);
        assertEquals(10_000 * (2.0 / 11 - 1.0 / 10), moved, 150);
    }

    @Test
    void a_hash_as_a_number_is_between_0_and_1() {
        assertTrue(Balancer.unit(0) > 0);
        assertTrue(Balancer.unit(-1) < 1);
        assertEquals("o", sticky(0, 0).origin(of("session=1"), new Random(1)).name());
    }

    @Test
    void queries_and_cookies_select() {
        RouteTable table = new RouteTable(List.of(
                new Route("q", "", "/", new Route.Match(List.of(), Map.of(), Map.of("v b", "2&", "e", ""),
                        Map.of(), null), List.of(new Route.Target(ORIGIN, 1)), "", false, false,
                        Route.Bounds.NONE, false, false),
                new Route("c", "", "/", new Route.Match(List.of(), Map.of(), Map.of(), Map.of("beta", "1"), null),
                        List.of(new Route.Target(ORIGIN, 1)), "", false, false, Route.Bounds.NONE, false,
                        false)));
        for (String query : List.of("?v+b=2%26&e", "?e=&%76%20b=%32%26", "?x&&=1&e&v+b=2%26&v+b=3")) {
            assertEquals("q", found(table, "GET", "h", "/" + query, ""), query);
        }
        for (String query : List.of("", "?", "?v+b=2%26", "?e&v+b=3&v+b=2%26", "?e=1&v+b=2%26")) {
            assertNull(found(table, "GET", "h", "/" + query, ""), query);
        }
        assertEquals("2%2", QueryParameters.get("b=%2&a=2%2&a=3", "a"));
        assertNull(QueryParameters.get(null, "a"));
        assertEquals("c", found(table, "GET", "h", "/", "Cookie: a=b; beta=1\r\n"));
        assertNull(found(table, "GET", "h", "/", "Cookie: beta=2; beta=1\r\n"));
    }

    private record Regex(Pattern pattern) implements Route.PathPattern {
        @Override
        public boolean isFoundIn(String path) {
            return pattern.matcher(path).find();
        }

        @Override
        public String text() {
            return pattern.pattern();
        }
    }

    private static Route matching(String name, String prefix, String pattern) {
        return new Route(name, "", prefix, new Route.Match(List.of(), Map.of(), Map.of(), Map.of(),
                new Regex(Pattern.compile(pattern))), List.of(new Route.Target(ORIGIN, 1)), "", false, false,
                Route.Bounds.NONE, false, false);
    }

    @Test
    void patterns_select_among_the_routes_of_a_prefix() {
        RouteTable table = new RouteTable(List.of(matching("order", "/users", "^/users/[0-9]+/orders$"),
                matching("image", "/", "\\.(png|jpg)$"), route("", "/users")));
        assertEquals("order", found(table, "GET", "h", "/users/12/orders?x=y", ""));
        assertEquals("order", found(table, "GET", "h", "/users/./12/%6frders", ""));
        assertEquals("/users", found(table, "GET", "h", "/users/12/orders/3", ""));
        assertEquals("/users", found(table, "GET", "h", "/users/a.png", ""));
        assertEquals("image", found(table, "GET", "h", "/a/b.png;v=1", ""));
        assertNull(found(table, "GET", "h", "/a/b.png/c", ""));
    }

    @Test
    void a_stripped_prefix_leaves_a_path_and_no_other_path_is_stripped() {
        Route route = route("", "/api");
        Map.of("/api", "/", "/api/x", "/x", "/v2/items", "/v2/items", "/new", "/new", "/apis/x", "/apis/x")
                .forEach((path, forwarded) -> {
                    Request request = new Request("GET", "/api/asked", 1, new Headers());
                    request.path(path, null);
                    assertEquals(forwarded, route.forwardedPath(request), path);
                });
    }
}
