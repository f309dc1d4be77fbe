// The prefix that a route takes off a path, for origin and client.
package wirespeed.gateway.core;

import java.util.List;

/** An origin that does not know its prefix would send clients to paths that are not its own. */
public final class StrippedPrefix {
    private static final String TOLD = "X-Forwarded-Prefix";
    private static final String PATH = "path=";

    private StrippedPrefix() {
    }

    /** Passes it to the origin, behind a prefix that a trusted proxy took off; once per request. */
    public static void tell(Context context) {
        tell(context.route(), context.request(), context.request().headers());
    }

    static void tell(Route route, Request request, Headers headers) {
        String prefix = prefix(route, request);
        if (!prefix.isEmpty()) {
            String before = headers.get(TOLD);
            headers.set(TOLD, (before == null ? "" : before) + prefix);
        }
    }

    /** Puts it before the places and cookie paths of an answer that lack it, where the route says so. */
    public static void restore(Context context) {
        String prefix = prefix(context.route(), context.request());
        if (prefix.isEmpty() || !context.route().restoresPrefix()) {
            return;
        }
        Headers headers = context.response().headers();
        for (String name : List.of("Location", "Content-Location")) {
            String place = headers.get(name);
            if (place != null) {
                headers.set(name, place(place, prefix, context));
            }
        }
        List<String> cookies = headers.all("Set-Cookie");
        if (!cookies.isEmpty()) {
            headers.remove("Set-Cookie");
            cookies.forEach(cookie -> headers.add("Set-Cookie", cookie(cookie, prefix)));
        }
    }

    /** Without a slash at its end; empty where nothing is taken off. */
    private static String prefix(Route route, Request request) {
        if (route == null || !route.strips(request)) {
            return "";
        }
        String prefix = route.prefix();
        return prefix.endsWith("/") ? prefix.substring(0, prefix.length() - 1) : prefix;
    }

    private static String place(String place, String prefix, Context context) {
        if (place.startsWith("/") && !place.startsWith("//")) {
            return below(place, prefix);
        }
        int begin = place.indexOf("://");
        int path = begin < 0 ? -1 : place.indexOf('/', begin + 3);
        if (path < 0) {
            return place;
        }
        String authority = place.substring(begin + 3, path);
        boolean isOrigins = context.address() != null
                && authority.equalsIgnoreCase(context.address().authority());
        if (isOrigins) {
            return below(place.substring(path), prefix);
        }
        boolean isClients = authority.equalsIgnoreCase(context.request().host())
                || authority.equalsIgnoreCase(context.request().clientHost());
        return isClients ? place.substring(0, path) + below(place.substring(path), prefix) : place;
    }

    private static String below(String path, String prefix) {
        boolean isBelow = path.startsWith(prefix) && (path.length() == prefix.length()
                || "/?#".indexOf(path.charAt(prefix.length())) >= 0);
        return isBelow ? path : prefix + path;
    }

    private static String cookie(String cookie, String prefix) {
        StringBuilder restored = new StringBuilder();
        for (String part : cookie.split(";", -1)) {
            String attribute = part.trim();
            boolean isPath = restored.length() > 0
                    && attribute.regionMatches(true, 0, PATH, 0, PATH.length())
                    && attribute.startsWith("/", PATH.length());
            restored.append(restored.length() == 0 ? "" : ";");
            if (isPath) {
                String path = attribute.substring(PATH.length());
                restored.append(" Path=").append(path.equals("/") ? prefix : below(path, prefix));
            } else {
                restored.append(part);
            }
        }
        return restored.toString();
    }
}
