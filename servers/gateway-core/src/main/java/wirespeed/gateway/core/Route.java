// Which requests go to which origin.
package wirespeed.gateway.core;

import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;
import java.util.random.RandomGenerator;

/**
 * One row of the route table.
 *
 * @param name for metrics and the admin port
 * @param host exact host, "*.suffix", or empty for every host
 * @param prefix path prefix that ends on a segment border
 * @param match what else a request needs
 * @param targets origins with their weights; one is chosen per request
 * @param stickyKey by which requests get the same origin, see {@link RequestKey}; empty for a random one
 * @param stripPrefix whether the prefix is removed before the origin sees the path
 * @param allowsUpgrade whether WebSocket is passed through
 * @param bounds of its own
 * @param restoresPrefix whether answers get a prefix back that was stripped
 * @param takesEncodedSlashes whether a path may hold %2F
 */
public record Route(String name, String host, String prefix, Match match, List<Target> targets,
        String stickyKey, boolean stripPrefix, boolean allowsUpgrade, Bounds bounds,
        boolean restoresPrefix, boolean takesEncodedSlashes) {
    /** One whose answers stay as they are. */
    public Route(String name, String host, String prefix, List<String> methods,
            Map<String, String> headers, List<Target> targets, boolean stripPrefix,
            boolean allowsUpgrade, Bounds bounds) {
        this(name, host, prefix, new Match(methods, headers, Map.of(), Map.of(), null), targets, "",
                stripPrefix, allowsUpgrade, bounds, false, false);
    }

    /** A regular expression; the JDK's own would backtrack on paths that a client chooses. */
    public interface PathPattern {
        /** Whether some part of a path matches, in time in proportion to its length. */
        boolean isFoundIn(String path);

        /** As the configuration has it. */
        String text();
    }

    /**
     * What a request needs besides host and prefix.
     *
     * @param methods one of these; empty for any
     * @param headers fields that must have exactly this value
     * @param query parameters whose first value must be exactly this
     * @param cookies that must have exactly this value
     * @param pattern that must find something in the path; null for any path
     */
    public record Match(List<String> methods, Map<String, String> headers, Map<String, String> query,
            Map<String, String> cookies, PathPattern pattern) {
        public Match {
            methods = List.copyOf(methods);
            headers = Map.copyOf(headers);
            query = Map.copyOf(query);
            cookies = Map.copyOf(cookies);
        }

        boolean accepts(Request request) {
            return (methods.isEmpty() || methods.contains(request.method()))
                    && (headers.isEmpty() || isEach(headers, name -> request.headers().get(name)))
                    && (query.isEmpty() || isEach(query, name -> QueryParameters.get(request.query(), name)))
                    && (cookies.isEmpty() || isEach(cookies, name -> Cookies.get(request.headers(), name)))
                    && (pattern == null || pattern.isFoundIn(request.path()));
        }

        private static boolean isEach(Map<String, String> wanted, UnaryOperator<String> found) {
            for (Map.Entry<String, String> one : wanted.entrySet()) {
                if (!one.getValue().equals(found.apply(one.getKey()))) {
                    return false;
                }
            }
            return true;
        }
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

    /** Whether a normalised path lies below the prefix. */
    boolean covers(String path) {
        return TargetPath.isBelow(prefix, path);
    }

    Origin origin(Request request, RandomGenerator random) {
        if (targets.size() == 1) {
            return targets.get(0).origin();
        }
        String key = stickyKey.isEmpty() ? null : RequestKey.of(request, stickyKey);
        return key == null ? drawn(random) : sticky(key);
    }

    private Origin sticky(String key) {
        long keyHash = Balancer.hash(key);
        Origin best = targets.get(0).origin();
        double bestScore = 0;
        for (Target target : targets) {
            double score = Balancer.score(keyHash, target.origin().name(), target.weight());
            if (score > bestScore) {
                bestScore = score;
                best = target.origin();
            }
        }
        return best;
    }

    private Origin drawn(RandomGenerator random) {
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

    /** Whether the prefix is taken off: a filter may have set a path that does not have it. */
    boolean strips(Request request) {
        return stripPrefix && !prefix.equals("/") && covers(request.path());
    }

    /** A path as the origin gets it; segments may carry parameters that the prefix lacks. */
    public String forwardedPath(Request request) {
        String path = request.pathWithParameters();
        if (!strips(request)) {
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
