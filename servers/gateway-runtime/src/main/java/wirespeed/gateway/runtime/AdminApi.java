// The answers of the admin port: the state of the gateway, and changes to it.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.function.UnaryOperator;
import java.util.logging.Level;
import java.util.logging.LogManager;
import java.util.logging.Logger;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Address.Administration;
import wirespeed.gateway.core.Authority;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Refusal;

/** What is asked for is done one after the other, by whatever way it is asked; balancers do not wait. */
final class AdminApi {
    /**
     * What a client asks for.
     *
     * @param fields the first value of a header field; null for none
     * @param isOwner whether only the gateway's user can have sent the request
     */
    record Asked(String method, URI uri, UnaryOperator<String> fields, boolean isOwner) {
        boolean isRead() {
            return method.equals("GET") || method.equals("HEAD");
        }

        String path() {
            return uri.getPath();
        }
    }

    /** An answer of the admin port. */
    record Answer(int status, String type, String body, Map<String, String> fields) {
        static Answer json(int status, String body) {
            return new Answer(status, "application/json", body + "\n", Map.of());
        }

        static Answer text(int status, String body) {
            return new Answer(status, "text/plain; charset=utf-8", body + "\n", Map.of());
        }

        /** The same with a header field, besides the type. */
        Answer with(String name, String value) {
            return new Answer(status, type, body, Map.of(name, value));
        }
    }

    private final GatewayRuntime runtime;
    private final ConfigStore store;
    private final AddressStates states;
    private final MetricsPage metrics;
    private final String token;
    private final String host;
    private final boolean hasSocket;
    /** Kept, because the platform forgets levels of loggers without a reference. */
    private final Set<Logger> adjusted = new HashSet<>();

    /**
     * The API of one gateway.
     *
     * @param options the table admin
     * @param host of admin.listen; empty for none
     */
    AdminApi(GatewayRuntime runtime, ConfigStore store, AddressStates states, OptionValues options,
            String host) {
        this.runtime = runtime;
        this.states = states;
        this.store = store;
        this.metrics = new MetricsPage(runtime);
        this.token = options.text("token");
        this.host = host;
        this.hasSocket = !options.text("socket").isEmpty();
    }

    /** Does what is asked for; what cannot be done is an answer, too. */
    Answer answer(Asked asked, String body) {
        try {
            if (isProbe(asked)) {
                return view(asked.path());
            }
            synchronized (this) {
                return done(asked, body);
            }
        } catch (NotReloadable refused) {
            return Answer.text(409, refused.getMessage());
        } catch (ConfigError | IllegalArgumentException refused) {
            return Answer.text(422, refused.getMessage());
        } catch (java.nio.file.NoSuchFileException missing) {
            return Answer.text(404, missing.getMessage());
        } catch (IOException | RuntimeException failed) {
            return Answer.text(500, failed.toString());
        }
    }

    private static boolean isProbe(Asked asked) {
        return asked.isRead() && (asked.path().equals("/ready") || asked.path().equals("/health"));
    }

    /** Null for a client that may ask this; to be looked at before its body is read. */
    Answer refusal(Asked asked) {
        // Balancers ask without a token, and by whatever name.
        if (isProbe(asked) || asked.isOwner()) {
            return null;
        }
        if (hasSocket && !asked.isRead()) {
            return Answer.text(403, "changes are made over admin.socket");
        }
        if (token.isEmpty()) {
            return isOwnName(asked.fields().apply("Host")) ? null
                    : Answer.text(403, "without admin.token, ask for localhost, a loopback address"
                            + " or the host of admin.listen");
        }
        return isAllowed(asked.fields().apply("Authorization")) ? null
                : Answer.text(401, "write Authorization: Bearer and the token").with("WWW-Authenticate", "Bearer");
    }

    /** A page in a browser here can have its own name lead to this port (DNS rebinding). */
    private boolean isOwnName(String given) {
        if (given == null) {
            return true;
        }
        try {
            Authority.check(given);
        } catch (Refusal malformed) {
            return false;
        }
        String name = Authority.name(given);
        return name.equals("localhost") || name.equals(host) || name.equals("[::1]")
                || name.matches("127(\\.\\d{1,3}){3}");
    }

    private boolean isAllowed(String given) {
        return given != null && MessageDigest.isEqual(given.getBytes(StandardCharsets.UTF_8),
                ("Bearer " + token).getBytes(StandardCharsets.UTF_8));
    }

    private Answer done(Asked asked, String body) throws IOException {
        String path = asked.path();
        String method = asked.method();
        boolean isRead = asked.isRead();
        if (path.equals("/config")) {
            return isRead ? config() : replace(asked, body, null);
        }
        if (path.startsWith("/config/rollback/") && method.equals("POST")) {
            return replace(asked, body, store.older(path.substring(17)));
        }
        if (path.startsWith("/origins/")) {
            return method.equals("PATCH") ? address(asked, path, body)
                    : notAllowed(path, "PATCH /origins/NAME/addresses/HOST:PORT");
        }
        if (path.equals("/cache") && method.equals("DELETE")) {
            return purge(asked.uri());
        }
        if (path.startsWith("/loggers/") && method.equals("PUT")) {
            return logLevel(path.substring(9), body);
        }
        return isRead ? view(path) : notAllowed(path, method + " is not for " + path);
    }

    /** RFC 9110 §15.5.6: with what is for this path. */
    private static Answer notAllowed(String path, String text) {
        String methods = "GET, HEAD";
        if (path.equals("/config")) {
            methods = "GET, HEAD, PUT";
        } else if (path.startsWith("/config/rollback/")) {
            methods = "POST";
        } else if (path.startsWith("/origins/")) {
            methods = "PATCH";
        } else if (path.equals("/cache")) {
            methods = "DELETE";
        } else if (path.startsWith("/loggers/")) {
            methods = "PUT";
        }
        return Answer.text(405, text).with("Allow", methods);
    }

    private Answer view(String path) {
        AdminViews views = new AdminViews(runtime);
        return switch (path) {
            case "/metrics" -> new Answer(200, "text/plain; version=0.0.4; charset=utf-8",
                    metrics.scrape() + runtime.routeMetrics().scrape()
                            + EndpointMetrics.scrape(runtime.gateway().snapshot()), Map.of());
            case "/health" -> Answer.json(200, views.health());
            case "/ready" -> runtime.gateway().isLeaving() ? Answer.text(503, "draining")
                    : Answer.text(200, "ready");
            case "/routes" -> Answer.json(200, views.routes());
            case "/origins" -> Answer.json(200, views.origins()).with("ETag", states.tag());
            case "/filters" -> Answer.json(200, views.filters());
            case "/pools" -> Answer.json(200, views.pools());
            case "/loggers" -> Answer.json(200, views.loggers());
            default -> Answer.text(404, "there are /config /routes /origins /filters /pools"
                    + " /health /ready /metrics /loggers /cache");
        };
    }

    private Answer config() {
        synchronized (store) {
            // Without flags and environment, which are not in the text.
            String text = Secrets.of(store.inFile(store.text())).hide(store.text());
            return text == null ? Answer.text(403, "a secret is written in a way in which it cannot be"
                    + " hidden; write it as a plain string") : new Answer(200, "application/toml", text,
                    Map.of("ETag", store.tag()));
        }
    }

    /** Nobody overwrites a change that he has not seen. */
    private Answer replace(Asked asked, String body, String older) throws IOException {
        String method = asked.method();
        if (!method.equals("PUT") && older == null) {
            return notAllowed("/config", "GET or PUT /config");
        }
        String expected = asked.fields().apply("If-Match");
        if (expected == null) {
            return Answer.text(428, "write If-Match with the ETag of GET /config");
        }
        synchronized (store) {
            String next = older == null ? Secrets.of(store.inFile(store.text())).show(body) : older;
            if (!expected.equals(store.tag())) {
                return Answer.text(412, "the configuration has changed; its ETag is "
                        + store.tag());
            }
            String before = store.text();
            runtime.apply(store.check(next));
            try {
                store.keep(next);
            } catch (IOException notKept) {
                // What is not on the disk would be lost at the next start: it does not count.
                runtime.apply(store.check(before));
                throw notKept;
            }
        }
        return Answer.text(200, "snapshot " + runtime.gateway().snapshot().version())
                .with("ETag", store.tag());
    }

    private Answer address(Asked asked, String path, String body)
            throws IOException {
        String[] parts = path.split("/");
        boolean isAddress = parts.length == 5 && parts[3].equals("addresses")
                && runtime.gateway().snapshot().origins().containsKey(parts[2]);
        Address address = isAddress ? runtime.gateway().snapshot().origins().get(parts[2])
                .addresses().stream().filter(a -> a.id().equals(parts[4])).findFirst().orElse(null)
                : null;
        if (address == null) {
            return Answer.text(404, "no such address; see /origins");
        }
        String expected = asked.fields().apply("If-Match");
        if (expected != null && !expected.equals(states.tag())) {
            return Answer.text(412, "the addresses have changed; see /origins");
        }
        Administration state = address.administration();
        int weight = address.weight();
        try {
            for (String change : body.trim().split("[\\s,&]+")) {
                change(address, change);
            }
            states.keep();
        } catch (IOException | RuntimeException refused) {
            // All of it or nothing; what is not on the disk would be lost at the next start.
            address.administration(state);
            address.weight(weight);
            throw refused;
        }
        return Answer.json(200, new AdminViews(runtime).configured(address)).with("ETag", states.tag());
    }

    private static void change(Address address, String change) {
        if (change.matches("state=(up|down|drain)")) {
            address.administration(Administration.valueOf(
                    change.substring(6).toUpperCase(java.util.Locale.ROOT)));
        } else if (change.matches("weight=\\d{1,4}")) {
            address.weight(Integer.parseInt(change.substring(7)));
        } else {
            throw new IllegalArgumentException("\"" + change
                    + "\" is neither state=up|down|drain nor weight=N");
        }
    }

    private Answer purge(URI uri) {
        if (runtime.cache() == null) {
            return Answer.text(404, "cache.enabled is false");
        }
        String prefix = uri.getRawQuery();
        if (prefix == null) {
            return Answer.text(200, runtime.cache().purge("") + " responses dropped");
        }
        // Some write the URI as it is, others encode all of it.
        String decoded = uri.getQuery();
        int dropped = runtime.cache().purge(prefix)
                + (decoded.equals(prefix) ? 0 : runtime.cache().purge(decoded));
        return Answer.text(200, dropped + " responses dropped");
    }

    private Answer logLevel(String name, String body) {
        Logger logger = LogManager.getLogManager().getLogger(name);
        if (logger == null) {
            return Answer.text(404, "no logger " + name + "; see /loggers");
        }
        logger.setLevel(Level.parse(body.trim()));
        adjusted.add(logger);
        return Answer.text(200, name);
    }
}
