// Which requests go to which origin.
package wirespeed.gateway.core;

import java.util.List;
import java.util.Map;
import java.util.random.RandomGenerator;

/**
 * One row of the route table.
 *
 * @param name for metrics and the admin port
 * @param host exact host, "*.suffix", or empty for every host
 * @param prefix path prefix that ends on a segment border
 * @param methods accepted methods; empty for all
 * @param headers fields that must have exactly this value
 * @param targets origins with their weights; one is drawn per request
 * @param stripPrefix whether the prefix is removed before the origin sees the path
 * @param allowsUpgrade whether WebSocket is passed through
 * @param bounds of its own
 * @param restoresPrefix whether answers get a prefix back that was stripped
 * @param takesEncodedSlashes whether a path may hold %2F
 */
public record Route(String name, String host, String prefix, List<String> methods,
        Map<String, String> headers, List<Target> targets, boolean stripPrefix,
        boolean allowsUpgrade, Bounds bounds, boolean restoresPrefix,
        boolean takesEncodedSlashes) {
    /** One whose answers stay as they are. */
    public Route(String name, String host, String prefix, List<String> methods,
            Map<String, String> headers, List<Target> targets, boolean stripPrefix,
            boolean allowsUpgrade, Bounds bounds) {
        this(name, host, prefix, methods, headers, targets, stripPrefix, allowsUpgrade, bounds, false,
                false);
    }

    /**
     * Where a route differs from the rest of the gateway; 0 where it does not.
     *
     * @param bodyBytesMax of a request body
     * @param exchangeMillis for a whole exchange
     * @param responseMillis of an attempt, from the request's end to the response head
     */
    public record Bounds(long bodyBytesMax, int exchangeMillis, int responseMillis) {
        public static final Bounds NONE = new Bounds(0, 0, 0);
    }

    /**
     * An origin and its share.
     *
     * @param origin where requests go
     * @param weight share relative to the other targets
     */
    public record Target(Origin origin, int weight) {
    }

    public Route {
        methods = List.copyOf(methods);
        headers = Map.copyOf(headers);
        targets = List.copyOf(targets);
    }

    /** A route for everything. */
    public static Route toAll(String name, Origin origin) {
        return new Route(name, "", "/", List.of(), Map.of(), List.of(new Target(origin, 1)),
                false, true, Bounds.NONE);
    }

    /** Refuses a path that the route's origins would not read as the gateway does. */
    public void checkPath(Request request) {
        if (!takesEncodedSlashes && TargetPath.hasEncodedSlash(request.path())) {
            throw Refusal.bad("path holds an encoded slash, which its route does not take");
        }
    }

    boolean accepts(Request request) {
        if (!methods.isEmpty() && !methods.contains(request.method())) {
            return false;
        }
        if (headers.isEmpty()) {
            return true;
        }
        for (Map.Entry<String, String> wanted : headers.entrySet()) {
            if (!wanted.getValue().equals(request.headers().get(wanted.getKey()))) {
                return false;
            }
        }
        return true;
    }

    /** Whether a normalised path lies below the prefix: /a matches /a and /a/b, not /ab. */
    boolean covers(String path) {
        if (!path.startsWith(prefix)) {
            return false;
        }
        return path.length() == prefix.length() || prefix.endsWith("/")
                || path.charAt(prefix.length()) == '/';
    }

    Origin origin(RandomGenerator random) {
        if (targets.size() == 1) {
            return targets.get(0).origin();
        }
        int total = 0;
        for (Target target : targets) {
            total += target.weight();
        }
        int point = total == 0 ? 0 : random.nextInt(total);
        for (Target target : targets) {
            point -= target.weight();
            if (point < 0) {
                return target.origin();
            }
        }
        return targets.get(0).origin();
    }

    private static int segments(String prefix) {
        int count = 0;
        for (int i = 0; i < prefix.length() - 1; i++) {
            count += prefix.charAt(i) == '/' ? 1 : 0;
        }
        return count;
    }

    /** A matched path as the origin gets it; segments may carry parameters that the prefix lacks. */
    public String forwardedPath(String path) {
        if (!stripPrefix || prefix.equals("/")) {
            return path;
        }
        int end = 0;
        for (int segments = segments(prefix); segments > 0 && end >= 0; segments--) {
            end = path.indexOf('/', end + 1);
        }
        String rest = end < 0 ? "" : path.substring(end);
        return rest.startsWith("/") ? rest : "/" + rest;
    }
}
