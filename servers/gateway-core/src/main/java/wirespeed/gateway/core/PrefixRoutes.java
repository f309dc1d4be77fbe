// The routes of one host, by their prefixes.
package wirespeed.gateway.core;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The longest prefix first, then the order of the configuration. A few routes are tried one after the
 * other; among many a path is looked up by its own beginnings, so that it does not matter how many
 * there are.
 */
final class PrefixRoutes {
    static final PrefixRoutes NONE = new PrefixRoutes(List.of());
    /** Up to here comparing takes less than hashing. */
    static final int FEW = 16;

    private final Route[] sorted;
    private final Map<String, List<Route>> byPrefix = new HashMap<>();

    PrefixRoutes(List<Route> routes) {
        sorted = routes.stream().sorted(
                Comparator.comparingInt((Route route) -> -route.prefix().length()))
                .toArray(Route[]::new);
        for (Route route : sorted) {
            byPrefix.computeIfAbsent(route.prefix(), prefix -> new ArrayList<>(1)).add(route);
        }
    }

    /** The route, or null when none fits. */
    Route first(Request request) {
        return sorted.length <= FEW ? compared(request) : lookedUp(request);
    }

    Route compared(Request request) {
        for (Route route : sorted) {
            if (route.covers(request.path()) && route.match().accepts(request)) {
                return route;
            }
        }
        return null;
    }

    Route lookedUp(Request request) {
        String path = request.path();
        for (int end = path.length(); end > 0; end--) {
            boolean isBorder = end == path.length() || path.charAt(end) == '/'
                    || path.charAt(end - 1) == '/';
            List<Route> some = isBorder ? byPrefix.get(path.substring(0, end)) : null;
            for (int i = 0; some != null && i < some.size(); i++) {
                if (some.get(i).match().accepts(request)) {
                    return some.get(i);
                }
            }
        }
        return null;
    }
}
