// Turns checked options into what they mean: origins, routes, filters.
package wirespeed.gateway.runtime;

import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Ascii;
import wirespeed.gateway.core.Authority;
import wirespeed.gateway.core.Balancer;
import wirespeed.gateway.core.Chain;
import wirespeed.gateway.core.Cookies;
import wirespeed.gateway.core.Filter;
import wirespeed.gateway.core.Forwarding;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.HealthCheck;
import wirespeed.gateway.core.IpAddress;
import wirespeed.gateway.core.Limits;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Networks;
import wirespeed.gateway.core.Origin;
import wirespeed.gateway.core.Persistence;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.RequestKey;
import wirespeed.gateway.core.Retry;
import wirespeed.gateway.core.Route;
import wirespeed.gateway.core.RouteTable;
import wirespeed.gateway.core.Snapshot;
import wirespeed.gateway.core.TargetPath;

/**
 * Addresses are taken over from snapshot to snapshot, so that health, load and connections outlive
 * a change. Cross-checks (a route to an origin that there is not) happen here.
 */
final class SnapshotBuilder {
    private static final Set<String> METHODS = Set.of("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE",
            "OPTIONS", "TRACE");
    private static final String PERSISTENCE = "wirespeed";
    private final Map<Entry, Address> addresses = new HashMap<>();
    private final byte[] randomKey = new byte[32];
    /** In Via, where no name is configured; loops of other gateways must not look like ours. */
    private final String randomName = "wirespeed-" + Integer.toHexString(
            new SecureRandom().nextInt() & 0xffffff | 0x1000000).substring(1);
    /** Applied when the whole configuration has been found good. */
    private final Map<Address, Placement> placements = new HashMap<>();
    private final Map<Address, Placement> placed = new HashMap<>();
    /** Options of the server that say where services are found. */
    private final Set<String> registries = new HashSet<>();
    private long version;

    /** Where an address stands: another origin that names it means another weight by it. */
    private record Entry(String origin, String id) {
    }

    private record Placement(int weight, boolean isBackup) {
        Placement {
            if (weight < 1 || weight > 1000) {
                throw new IllegalArgumentException("weight " + weight
                        + " is out of range (1 to 1000)");
            }
        }
    }

    SnapshotBuilder() {
        new SecureRandom().nextBytes(randomKey);
    }

    /** A snapshot of this configuration with these filters. */
    synchronized Snapshot build(Config config, List<Filter> filters) {
        List<String> mistakes = new ArrayList<>();
        placements.clear();
        registries.clear();
        OptionValues server = config.table("server");
        if (!server.texts("dns").isEmpty()) {
            registries.add("dns");
        }
        List.of("consul", "eureka", "endpoints").stream().filter(option -> !server.text(option).isEmpty())
                .forEach(registries::add);
        Map<String, Origin> origins = new LinkedHashMap<>();
        Map<Entry, Address> used = new HashMap<>();
        config.origins().forEach((name, values) -> {
            try {
                origins.put(name, origin(name, values, used));
            } catch (IllegalArgumentException bad) {
                mistakes.add(values.place() + "origins." + name + ": " + bad.getMessage());
            }
        });
        List<Route> routes = new ArrayList<>();
        // Otherwise a wrong origin would be reported again by each of its routes.
        boolean areOriginsGood = mistakes.isEmpty();
        int number = 0;
        for (OptionValues values : areOriginsGood ? config.routes() : List.<OptionValues>of()) {
            number++;
            try {
                routes.add(route(number, values, origins));
            } catch (IllegalArgumentException bad) {
                mistakes.add(values.place() + "route " + number + ": " + bad.getMessage());
            }
        }
        if (config.routes().isEmpty() && origins.size() == 1) {
            routes.add(Route.toAll("all", origins.values().iterator().next()));
        } else if (areOriginsGood && config.routes().isEmpty() && !answersItself(config)) {
            mistakes.add(origins.isEmpty() ? "no origin (write [origins.NAME] with addresses ="
                    + " [\"host:port\"])" : "no route to " + String.join(", ", origins.keySet())
                    + " (write [[route]] with origins = [\"NAME\"])");
        }
        uniqueNames(filters, mistakes);
        uniqueCookies(config, routes, mistakes);
        Forwarding forwarding = forwarding(config.table("server"), mistakes);
        if (!mistakes.isEmpty()) {
            throw new ConfigError(mistakes);
        }
        // An address that is not configured any more is forgotten, with its health.
        addresses.keySet().retainAll(used.keySet());
        addresses.putAll(used);
        placements.forEach(this::place);
        placed.keySet().retainAll(used.values());
        return new Snapshot(++version, new Chain(filters), new RouteTable(routes), origins,
                limits(config.table("limits")), forwarding);
    }

    /** Filters may answer all requests without an origin. */
    private static boolean answersItself(Config config) {
        return !config.filters().isEmpty() || !config.table("filters").text("folder").isEmpty();
    }

    private Forwarding forwarding(OptionValues server, List<String> mistakes) {
        String name = server.text("via-name").isEmpty() ? randomName : server.text("via-name");
        if (!name.matches("[A-Za-z0-9._~-]{1,64}")) {
            mistakes.add("server.via-name: invalid name \"" + name + "\" (letters, digits and . _ ~ -)");
        }
        try {
            return new Forwarding(name, Networks.parse(server.texts("trusted-proxies")));
        } catch (IllegalArgumentException bad) {
            mistakes.add("server.trusted-proxies: " + bad.getMessage());
            return null;
        }
    }

    private static void uniqueNames(List<Filter> filters, List<String> mistakes) {
        Set<String> names = new HashSet<>();
        for (Filter filter : filters) {
            if (!names.add(filter.name())) {
                mistakes.add("filter " + filter.name() + ": two filters have this name");
            }
        }
    }

    private static Limits limits(OptionValues values) {
        return new Limits((int) values.bytes("line"), (int) values.bytes("head"),
                values.count("fields"), values.bytes("body"),
                (int) values.bytes("response-head"), values.count("response-fields"));
    }

    private Origin origin(String name, OptionValues values, Map<Entry, Address> used) {
        if (name.chars().anyMatch(Character::isISOControl)) {
            throw new IllegalArgumentException("the name holds a control character");
        }
        List<Address> list = new ArrayList<>();
        for (String text : values.texts("addresses")) {
            list.add(address(name, text, used));
        }
        if (list.isEmpty()) {
            throw new IllegalArgumentException("addresses is empty (write addresses ="
                    + " [\"host:port\"])");
        }
        checkKey("hash-key", values);
        Origin.Settings settings = new Origin.Settings(values.millis("connect"),
                values.millis("response"), values.millis("body-idle"), values.count("connections"),
                values.count("connection-requests"), values.millis("connection-age"),
                values.count("waiters"), values.millis("slow-start"), values.count("retries"),
                values.isTrue("interim"), values.isTrue("preserve-host"), values.isTrue("tls"),
                values.text("hash-key"), persistence(name, values),
                check(values), retry(values), http2(values),
                values.isTrue("request-trailers"), tlsName(values));
        return new Origin(name, list, Balancer.Method.parse(values.text("balance")), settings);
    }

    private static Retry retry(OptionValues values) {
        if (values.millis("hedge-after") > 0 && values.count("retries") == 0) {
            throw new IllegalArgumentException("hedge-after needs retries >= 1 (the second"
                    + " attempt is a retry)");
        }
        return Retry.of(values.texts("retry-status"), values.count("retry-budget"),
                values.isTrue("eject-on-5xx"), values.millis("eject-slower-than"),
                values.millis("hedge-after"));
    }

    private static Origin.Http2 http2(OptionValues values) {
        boolean isEncrypted = values.isTrue("tls");
        return switch (values.text("http2")) {
            case "alpn" -> {
                if (!isEncrypted) {
                    throw new IllegalArgumentException("http2 = \"alpn\" needs tls = true (without"
                            + " TLS write \"prior-knowledge\")");
                }
                yield Origin.Http2.ALPN;
            }
            case "prior-knowledge" -> {
                if (isEncrypted) {
                    throw new IllegalArgumentException("http2 = \"prior-knowledge\" needs tls = false"
                            + " (with TLS write \"alpn\")");
                }
                yield Origin.Http2.PRIOR_KNOWLEDGE;
            }
            default -> Origin.Http2.OFF;
        };
    }

    private void checkService(Address service) {
        String option = service.registry() == null ? "dns"
                : service.registry().equals("file") ? "endpoints" : service.registry();
        if (!registries.contains(option)) {
            throw new IllegalArgumentException("the service \"" + service.id() + "\" needs server." + option
                    + switch (option) {
                        case "dns" -> ", a DNS server such as 127.0.0.1:53";
                        case "consul" -> ", an agent such as http://127.0.0.1:8500";
                        case "eureka" -> ", a server such as http://127.0.0.1:8761/eureka";
                        default -> ", a file with lines such as \"shop 10.0.0.1:8080\"";
                    });
        }
    }

    /** Reads "host:port", "host:port*3" and "host:port backup". */
    private Address address(String origin, String text, Map<Entry, Address> used) {
        boolean isBackup = text.endsWith(" backup");
        String rest = isBackup ? text.substring(0, text.length() - 7).trim() : text.trim();
        int star = rest.indexOf('*');
        int weight = star < 0 ? 1 : weight(rest.substring(star + 1));
        Address parsed = Address.parse(star < 0 ? rest : rest.substring(0, star));
        if (parsed.isService()) {
            checkService(parsed);
        } else {
            checkHost(parsed, text);
        }
        Entry entry = new Entry(origin, parsed.id());
        boolean isLate = addresses.keySet().stream().anyMatch(one -> one.origin().equals(origin));
        if (isLate && !addresses.containsKey(entry)) {
            parsed.startSlowly(System.nanoTime() / 1_000_000);
        }
        Address address = addresses.getOrDefault(entry, parsed);
        address = used.getOrDefault(entry, address);
        used.put(entry, address);
        placements.put(address, new Placement(weight, isBackup));
        return address;
    }

    /** A name of other characters is never resolved, and would be none in Host; no server has port 0. */
    private static void checkHost(Address parsed, String text) {
        if (parsed.port() == 0) {
            throw new IllegalArgumentException("\"" + text + "\": port out of range (1 to 65535)");
        }
        // The zone of a link-local address stands in no Host.
        if (parsed.host().indexOf('%') < 0) {
            checkAuthority(parsed.authority(), "\"" + text + "\" is not host:port");
        }
    }

    private static void checkAuthority(String authority, String message) {
        try {
            Authority.check(authority);
        } catch (Refusal none) {
            throw new IllegalArgumentException(message + ": " + none.getMessage(), none);
        }
    }

    /** With a port, or of other characters, no certificate has it. */
    private static String tlsName(OptionValues values) {
        String name = values.text("tls-name");
        if (!name.isEmpty() && !name.matches("[A-Za-z0-9._-]+") && IpAddress.parse(name) == null) {
            throw new IllegalArgumentException("tls-name \"" + name + "\" is not a host name (write it without"
                    + " a port, such as shop.example)");
        }
        return name;
    }

    /** Only what the configuration changes: a weight that an operator set outlives a swap. */
    private void place(Address address, Placement wanted) {
        if (!wanted.equals(placed.put(address, wanted))) {
            address.weight(wanted.weight());
            address.backup(wanted.isBackup());
        }
    }

    /** The weight that the configuration gives an address. */
    synchronized int configuredWeight(Address address) {
        Placement wanted = placed.get(address);
        return wanted == null ? 1 : wanted.weight();
    }

    private static int weight(String text) {
        if (!text.matches("\\d{1,4}")) {
            throw new IllegalArgumentException("invalid weight \"" + text + "\"");
        }
        return Integer.parseInt(text);
    }

    private Persistence persistence(String origin, OptionValues values) {
        String key = values.text("persistence-key");
        byte[] secret = key.isEmpty() ? randomKey
                : key.getBytes(java.nio.charset.StandardCharsets.UTF_8);
        String kind = values.text("persistence");
        String given = values.text("persistence-name");
        if (!given.isEmpty() && !Ascii.isToken(given)) {
            throw new IllegalArgumentException("persistence-name: no cookie or header field has the name \""
                    + given + "\" (write letters, digits and hyphens)");
        }
        return switch (kind) {
            // Of two origins with one cookie each would take the other's from a client.
            case "cookie" -> new Persistence(Persistence.Kind.COOKIE,
                    given.isEmpty() ? cookie(origin) : given, secret);
            case "header" -> new Persistence(Persistence.Kind.HEADER,
                    given.isEmpty() ? PERSISTENCE : given, secret);
            default -> Persistence.NONE;
        };
    }

    private static String cookie(String origin) {
        return PERSISTENCE + '-' + (Ascii.isToken(origin) ? origin : Integer.toHexString(origin.hashCode()));
    }

    /** With one cookie for one host, an origin would undo what another one with other tokens has bound. */
    private static void uniqueCookies(Config config, List<Route> routes, List<String> mistakes) {
        Map<String, Map<Origin, Set<Route>>> cookies = new LinkedHashMap<>();
        for (Route route : routes) {
            for (Route.Target target : route.targets()) {
                Persistence persistence = target.origin().settings().persistence();
                if (persistence.kind() == Persistence.Kind.COOKIE) {
                    cookies.computeIfAbsent(persistence.name(), name -> new LinkedHashMap<>())
                            .computeIfAbsent(target.origin(), origin -> new HashSet<>()).add(route);
                }
            }
        }
        cookies.forEach((cookie, origins) -> {
            Map<Origin, Set<Route>> before = new LinkedHashMap<>();
            origins.forEach((origin, own) -> {
                before.forEach((other, others) -> {
                    if (!hasTokensOf(origin, other) && own.stream().anyMatch(route ->
                            others.stream().anyMatch(one -> mayMeet(route, one)))) {
                        mistakes.add(config.origins().get(origin.name()).place() + "origins." + origin.name()
                                + ": persistence-name \"" + cookie + "\" is that of origins." + other.name()
                                + ", too (leave it out, or give each its own)");
                    }
                });
                before.put(origin, own);
            });
        });
    }

    private static boolean hasTokensOf(Origin one, Origin other) {
        return ids(one).equals(ids(other))
                && one.settings().persistence().hasKeyOf(other.settings().persistence());
    }

    private static Set<String> ids(Origin origin) {
        Set<String> ids = new HashSet<>();
        origin.addresses().forEach(address -> ids.add(address.id()));
        return ids;
    }

    /** Whether one client can be sent to an origin by the one route, and to another one by the other. */
    private static boolean mayMeet(Route one, Route other) {
        boolean keepsClients = !one.stickyKey().isEmpty() && !one.stickyKey().equals("path");
        return Authority.overlap(one.host(), other.host()) && !(one == other && keepsClients);
    }

    private static HealthCheck check(OptionValues values) {
        if (values.text("check-path").isEmpty()) {
            return null;
        }
        String status = values.text("check-status");
        if (!status.matches("\\d{3}(-\\d{3})?")) {
            throw new IllegalArgumentException("invalid check-status \"" + status
                    + "\" (a status or a range such as 200-399)");
        }
        int min = Integer.parseInt(status.substring(0, 3));
        int max = Integer.parseInt(status.substring(status.length() - 3));
        if (min > max) {
            throw new IllegalArgumentException("check-status: no status is in \"" + status + "\"");
        }
        return new HealthCheck(values.text("check-path"), values.millis("check-interval"),
                values.millis("check-timeout"), values.count("check-rise"),
                values.count("check-fall"), min, max, values.text("check-body"),
                values.text("check-host"), values.count("check-port"), fields(values));
    }

    private static Map<String, String> fields(OptionValues values) {
        Map<String, String> fields = values.table("check-fields");
        fields.forEach(new Headers()::add);
        String path = values.text("check-path");
        if (!path.startsWith("/") || path.chars().anyMatch(c -> c > 0x7e || !Ascii.isTarget(c))) {
            throw new IllegalArgumentException("check-path: \"" + path + "\" is not a path (write for example"
                    + " /health)");
        }
        if (!values.text("check-host").isEmpty()) {
            checkAuthority(values.text("check-host"), "check-host");
        }
        return fields;
    }

    private static void checkKey(String option, OptionValues values) {
        try {
            RequestKey.check(values.text(option));
        } catch (IllegalArgumentException bad) {
            throw new IllegalArgumentException(option + ": " + bad.getMessage(), bad);
        }
    }

    /** A route that no request could have would be passed over silently. */
    private static Route.Match match(OptionValues values) {
        for (String method : values.texts("methods")) {
            String upper = method.toUpperCase(Locale.ROOT);
            if (!Ascii.isToken(method) || !method.equals(upper) && METHODS.contains(upper)) {
                throw new IllegalArgumentException("methods: \"" + method + "\" is not a method ("
                        + (METHODS.contains(upper) ? "write " + upper + "; " : "")
                        + "they are compared with their case)");
            }
        }
        for (String option : List.of("headers", "cookies")) {
            values.table(option).forEach((name, value) -> {
                boolean isName = option.equals("cookies") ? Cookies.isName(name) : Ascii.isToken(name);
                if (!isName || !Ascii.isValue(value) || !value.equals(value.trim())) {
                    throw new IllegalArgumentException(option + ": no request has \"" + name + "\" = \""
                            + value + "\" (write a name, and a value without blanks around it)");
                }
            });
        }
        values.table("headers").keySet().forEach(SnapshotBuilder::checkSeen);
        Expression pattern = values.text("pattern").isEmpty() ? null : Expression.of(values.text("pattern"));
        return new Route.Match(values.texts("methods"), values.table("headers"), values.table("query"),
                values.table("cookies"), pattern);
    }

    private static void checkSeen(String field) {
        if (Headers.isNeverSeen(field)) {
            throw new IllegalArgumentException("headers: " + field + " is taken off a request before its"
                    + " route is chosen (use another field)");
        }
    }

    private static Route route(int number, OptionValues values, Map<String, Origin> origins) {
        String host = Authority.pattern(values.text("host"));
        String prefix = TargetPath.prefix(values.text("prefix"));
        List<Route.Target> targets = new ArrayList<>();
        for (String text : values.texts("origins")) {
            int star = text.indexOf('*');
            String name = star < 0 ? text : text.substring(0, star);
            Origin origin = origins.get(name);
            if (origin == null) {
                throw new IllegalArgumentException("unknown origin \"" + name + "\""
                        + (origins.isEmpty() ? " (none is defined)" : " ("
                        + String.join(", ", origins.keySet()) + ")"));
            }
            targets.add(new Route.Target(origin, star < 0 ? 1 : weight(text.substring(star + 1))));
        }
        if (targets.isEmpty()) {
            throw new IllegalArgumentException("origins is empty");
        }
        String name = values.text("name").isEmpty() ? "route-" + number : values.text("name");
        if (!values.text("sticky").isEmpty()) {
            checkKey("sticky", values);
        }
        return new Route(name, host, prefix, match(values), targets, values.text("sticky"),
                values.isTrue("strip-prefix"), values.isTrue("upgrade"),
                new Route.Bounds(values.bytes("body"), values.millis("timeout"), values.millis("response")),
                values.isTrue("restore-prefix"), values.isTrue("encoded-slashes"));
    }
}
