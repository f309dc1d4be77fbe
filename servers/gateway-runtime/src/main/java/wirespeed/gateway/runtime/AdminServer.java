// The admin port: what the gateway is doing, and changes to it.
package wirespeed.gateway.runtime;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.logging.Level;
import java.util.logging.LogManager;
import java.util.logging.Logger;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Address.Administration;
import wirespeed.gateway.core.Authority;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Refusal;

/**
 * On its own address and threads, so that it answers when the loops do not. Requests are read and
 * answers written side by side, and what they ask for is done one after the other.
 */
final class AdminServer implements AutoCloseable {
    private static final int BODY_BYTES_MAX = 1 << 20;
    /** So many clients may be slow before others wait for them. */
    private static final int THREADS = 8;

    static {
        // The JDK's server writes head and body apart; without this each answer waits 40 ms for
        // the other side's delayed acknowledgement.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        // A client that falls silent in a request, or does not take its answer, must not keep a thread.
        System.setProperty("sun.net.httpserver.maxReqTime", "30");
        System.setProperty("sun.net.httpserver.maxRspTime", "30");
    }

    /** An answer of the admin port. */
    private record Answer(int status, String type, String body, String tag) {
        static Answer json(int status, String body) {
            return new Answer(status, "application/json", body + "\n", null);
        }

        static Answer text(int status, String body) {
            return new Answer(status, "text/plain; charset=utf-8", body + "\n", null);
        }
    }

    private final GatewayRuntime runtime;
    private final ConfigStore store;
    private final AddressStates states;
    private final MetricsPage metrics;
    private final String token;
    private final String host;
    private final HttpServer server;
    /** Kept, because the platform forgets levels of loggers that nobody holds. */
    private final Set<Logger> adjusted = new HashSet<>();
    private final ExecutorService threads = Executors.newFixedThreadPool(THREADS, task -> {
        Thread admin = new Thread(task, "admin");
        admin.setDaemon(true);
        return admin;
    });

    AdminServer(GatewayRuntime runtime, ConfigStore store, AddressStates states,
            OptionValues options) {
        this.runtime = runtime;
        this.states = states;
        this.store = store;
        this.metrics = new MetricsPage(runtime);
        this.token = options.text("token");
        Address wanted = Address.parse(options.text("listen"));
        this.host = Authority.canonical(wanted.host());
        try {
            InetAddress bound = InetAddress.getByName(wanted.host());
            if (!bound.isLoopbackAddress() && token.isEmpty()) {
                throw new ConfigError("admin.listen: " + wanted.id()
                        + " is no loopback address; set admin.token");
            }
            server = HttpServer.create(new InetSocketAddress(bound, wanted.port()), 16);
        } catch (IOException e) {
            throw new ConfigError("admin.listen: " + wanted.id() + ": " + e.getMessage());
        }
        server.setExecutor(threads);
        server.createContext("/", this::handle);
    }

    void start() {
        server.start();
    }

    InetSocketAddress address() {
        return server.getAddress();
    }

    private void handle(HttpExchange exchange) throws IOException {
        Answer answer;
        try {
            answer = refusal(exchange);
            if (answer == null) {
                String body = body(exchange);
                synchronized (this) {
                    answer = answer(exchange, body);
                }
            }
        } catch (NotReloadable refused) {
            answer = Answer.text(409, refused.getMessage());
        } catch (ConfigError | IllegalArgumentException refused) {
            answer = Answer.text(422, refused.getMessage());
        } catch (java.nio.file.NoSuchFileException missing) {
            answer = Answer.text(404, missing.getMessage());
        } catch (IOException | RuntimeException failed) {
            answer = Answer.text(500, failed.toString());
        }
        byte[] body = answer.body().getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", answer.type());
        if (answer.tag() != null) {
            exchange.getResponseHeaders().set("ETag", answer.tag());
        }
        boolean isHead = exchange.getRequestMethod().equals("HEAD");
        exchange.sendResponseHeaders(answer.status(), isHead ? -1 : body.length);
        if (!isHead) {
            exchange.getResponseBody().write(body);
        }
        exchange.close();
    }

    /** Null for who may come in. */
    private Answer refusal(HttpExchange exchange) {
        if (isOpen(exchange)) {
            return null;
        }
        if (token.isEmpty()) {
            return isOwnName(exchange.getRequestHeaders().getFirst("Host")) ? null
                    : Answer.text(403, "without admin.token, ask for localhost, a loopback address"
                            + " or the host of admin.listen");
        }
        return isAllowed(exchange) ? null
                : Answer.text(401, "write Authorization: Bearer and the token");
    }

    /** Balancers ask without a token, and by whatever name; nothing else is in the answers. */
    private static boolean isOpen(HttpExchange exchange) {
        String path = exchange.getRequestURI().getPath();
        String method = exchange.getRequestMethod();
        return (method.equals("GET") || method.equals("HEAD"))
                && (path.equals("/ready") || path.equals("/health"));
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

    private boolean isAllowed(HttpExchange exchange) {
        String given = exchange.getRequestHeaders().getFirst("Authorization");
        return given != null && MessageDigest.isEqual(given.getBytes(StandardCharsets.UTF_8),
                ("Bearer " + token).getBytes(StandardCharsets.UTF_8));
    }

    private Answer answer(HttpExchange exchange, String body) throws IOException {
        String path = exchange.getRequestURI().getPath();
        String method = exchange.getRequestMethod();
        boolean isRead = method.equals("GET") || method.equals("HEAD");
        if (path.equals("/config")) {
            return isRead ? config() : replace(exchange, body, null);
        }
        if (path.startsWith("/config/rollback/") && method.equals("POST")) {
            return replace(exchange, body, store.older(path.substring(17)));
        }
        if (path.startsWith("/origins/")) {
            return method.equals("PATCH") ? address(exchange, path, body)
                    : Answer.text(405, "PATCH /origins/NAME/addresses/HOST:PORT");
        }
        if (path.equals("/cache") && method.equals("DELETE")) {
            return purge(exchange);
        }
        if (path.startsWith("/loggers/") && method.equals("PUT")) {
            return logLevel(path.substring(9), body);
        }
        return isRead ? view(path) : Answer.text(405, method + " is not for " + path);
    }

    private Answer view(String path) {
        AdminViews views = new AdminViews(runtime);
        return switch (path) {
            case "/metrics" -> new Answer(200, "text/plain; version=0.0.4; charset=utf-8",
                    metrics.scrape() + runtime.routeMetrics().scrape()
                            + EndpointMetrics.scrape(runtime.gateway().snapshot()), null);
            case "/health" -> Answer.json(200, views.health());
            case "/ready" -> runtime.gateway().isLeaving() ? Answer.text(503, "draining")
                    : Answer.text(200, "ready");
            case "/routes" -> Answer.json(200, views.routes());
            case "/origins" -> new Answer(200, "application/json", views.origins() + "\n",
                    states.tag());
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
                    store.tag());
        }
    }

    /** Nobody overwrites a change that he has not seen. */
    private Answer replace(HttpExchange exchange, String body, String older) throws IOException {
        String method = exchange.getRequestMethod();
        if (!method.equals("PUT") && older == null) {
            return Answer.text(405, "GET or PUT /config");
        }
        String expected = exchange.getRequestHeaders().getFirst("If-Match");
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
        return new Answer(200, "text/plain; charset=utf-8", "snapshot "
                + runtime.gateway().snapshot().version() + "\n", store.tag());
    }

    private static String body(HttpExchange exchange) throws IOException {
        byte[] bytes = exchange.getRequestBody().readNBytes(BODY_BYTES_MAX + 1);
        if (bytes.length > BODY_BYTES_MAX) {
            throw new IllegalArgumentException("body is longer than " + BODY_BYTES_MAX + " bytes");
        }
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private Answer address(HttpExchange exchange, String path, String body)
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
        String expected = exchange.getRequestHeaders().getFirst("If-Match");
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
        return new Answer(200, "application/json", new AdminViews(runtime).configured(address) + "\n",
                states.tag());
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

    private Answer purge(HttpExchange exchange) {
        if (runtime.cache() == null) {
            return Answer.text(404, "cache.enabled is false");
        }
        String prefix = exchange.getRequestURI().getRawQuery();
        if (prefix == null) {
            return Answer.text(200, runtime.cache().purge("") + " responses dropped");
        }
        // Some write the URI as it is, others encode all of it.
        String decoded = exchange.getRequestURI().getQuery();
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

    @Override
    public void close() {
        server.stop(0);
        threads.shutdownNow();
    }
}
