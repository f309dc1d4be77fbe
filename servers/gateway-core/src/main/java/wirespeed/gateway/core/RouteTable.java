// Finds the route of a request.
package wirespeed.gateway.core;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Exact host, then the longest matching suffix, then routes for every host; among those of one host
 * the longest prefix first, then the order of the configuration. A host whose routes do not fit
 * falls back to the next wider one.
 */
public final class RouteTable {
    private static final Route[] NONE = {};
    private final List<Route> routes;
    private final Map<String, Route[]> exact = new HashMap<>();
    private final Map<String, Route[]> suffixes = new HashMap<>();
    private final Route[] everyHost;

    public RouteTable(List<Route> routes) {
        this.routes = List.copyOf(routes);
        Map<String, List<Route>> byHost = new HashMap<>();
        for (Route route : routes) {
            byHost.computeIfAbsent(route.host().toLowerCase(java.util.Locale.ROOT),
                    host -> new ArrayList<>()).add(route);
        }
        byHost.forEach((host, group) -> {
            group.sort(Comparator.comparingInt((Route route) -> -route.prefix().length()));
            Route[] sorted = group.toArray(Route[]::new);
            if (host.startsWith("*.")) {
                suffixes.put(host.substring(1), sorted);
            } else if (!host.isEmpty()) {
                exact.put(host, sorted);
            }
        });
        List<Route> rest = byHost.get("");
        everyHost = rest == null ? NONE : rest.toArray(Route[]::new);
    }

    public List<Route> routes() {
        return routes;
    }

    /** The route, or null when none fits. */
    public Route find(Request request) {
        if (!exact.isEmpty() || !suffixes.isEmpty()) {
            Route route = findByHost(request);
            if (route != null) {
                return route;
            }
        }
        return first(everyHost, request);
    }

    private Route findByHost(Request request) {
        if (request.host() == null) {
            return null;
        }
        String host = Authority.name(request.host());
        Route route = first(exact.getOrDefault(host, NONE), request);
        for (int dot = host.indexOf('.'); route == null && dot >= 0;
                dot = host.indexOf('.', dot + 1)) {
            route = first(suffixes.getOrDefault(host.substring(dot), NONE), request);
        }
        return route;
    }

    private static Route first(Route[] group, Request request) {
        for (Route route : group) {
            if (route.covers(request.path()) && route.accepts(request)) {
                return route;
            }
        }
        return null;
    }
}
