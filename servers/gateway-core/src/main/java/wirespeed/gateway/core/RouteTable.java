// Finds the route of a request.
package wirespeed.gateway.core;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Exact host, then the longest matching suffix, then routes for every host; among those of one host
 * the longest prefix first, then the order of the configuration. A host whose routes do not fit
 * falls back to the next wider one.
 */
public final class RouteTable {
    private final List<Route> routes;
    private final Map<String, PrefixRoutes> exact = new HashMap<>();
    private final Map<String, PrefixRoutes> suffixes = new HashMap<>();
    private final PrefixRoutes everyHost;
    private final boolean takesEncodedSlashes;

    public RouteTable(List<Route> routes) {
        this.routes = List.copyOf(routes);
        takesEncodedSlashes = routes.stream().anyMatch(Route::takesEncodedSlashes);
        Map<String, List<Route>> byHost = new HashMap<>();
        for (Route route : routes) {
            byHost.computeIfAbsent(Authority.canonical(route.host()),
                    host -> new ArrayList<>()).add(route);
        }
        byHost.forEach((host, group) -> {
            if (host.startsWith("*.")) {
                suffixes.put(host.substring(1), new PrefixRoutes(group));
            } else if (!host.isEmpty()) {
                exact.put(host, new PrefixRoutes(group));
            }
        });
        everyHost = new PrefixRoutes(byHost.getOrDefault("", List.of()));
    }

    public List<Route> routes() {
        return routes;
    }

    /** Refuses what no route takes, before any filter sees it. */
    void checkPath(Request request) {
        if (!takesEncodedSlashes && TargetPath.hasEncodedSlash(request.path())) {
            throw Refusal.bad("path holds an encoded control character or separator");
        }
    }

    /** The route, or null when none fits. */
    public Route find(Request request) {
        if (!exact.isEmpty() || !suffixes.isEmpty()) {
            Route route = findByHost(request);
            if (route != null) {
                return route;
            }
        }
        return everyHost.first(request);
    }

    private Route findByHost(Request request) {
        if (request.host() == null) {
            return null;
        }
        String host = Authority.name(request.host());
        Route route = exact.getOrDefault(host, PrefixRoutes.NONE).first(request);
        for (int dot = host.indexOf('.'); route == null && dot >= 0;
                dot = host.indexOf('.', dot + 1)) {
            route = suffixes.getOrDefault(host.substring(dot), PrefixRoutes.NONE).first(request);
        }
        return route;
    }
}
