// The admin port: an address for HTTP, a Unix socket, or both.
package wirespeed.gateway.runtime;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Authority;
import wirespeed.gateway.core.OptionValues;

/**
 * Uses its own threads, so that it responds when the loops do not. Requests are read and responses
 * written in parallel.
 */
final class AdminServer implements AutoCloseable {
    static final int BODY_BYTES_MAX = 1 << 20;
    /** So many clients may be slow before others wait for them. */
    private static final int THREADS = 64;

    static {
        // The JDK's server writes head and body apart; without this each answer waits 40 ms for
        // the other side's delayed acknowledgement.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        // A client that falls silent in a request, or does not take its answer, must not keep a thread.
        System.setProperty("sun.net.httpserver.maxReqTime", "30");
        System.setProperty("sun.net.httpserver.maxRspTime", "30");
    }

    private final AdminApi api;
    /** Null where it is not configured. */
    private final HttpServer server;
    private final AdminSocket socket;
    private final ThreadPoolExecutor threads = new ThreadPoolExecutor(THREADS, THREADS, 10, TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(), task -> {
                Thread admin = new Thread(task, "admin");
                admin.setDaemon(true);
                return admin;
            });

    AdminServer(GatewayRuntime runtime, ConfigStore store, AddressStates states,
            OptionValues options) {
        threads.allowCoreThreadTimeOut(true);
        Address wanted = options.text("listen").isEmpty() ? null : Address.parse(options.text("listen"));
        api = new AdminApi(runtime, store, states, options,
                wanted == null ? "" : Authority.canonical(wanted.host()));
        server = wanted == null ? null : listening(wanted, options.text("token").isEmpty());
        socket = options.text("socket").isEmpty() ? null
                : new AdminSocket(Path.of(options.text("socket")), api, threads);
    }

    private static HttpServer listening(Address wanted, boolean isOpen) {
        try {
            InetAddress bound = InetAddress.getByName(wanted.host());
            if (!bound.isLoopbackAddress() && isOpen) {
                throw new ConfigError("admin.listen: " + wanted.id()
                        + " is not a loopback address; set admin.token");
            }
            return HttpServer.create(new InetSocketAddress(bound, wanted.port()), 16);
        } catch (IOException e) {
            throw new ConfigError("admin.listen: " + wanted.id() + ": " + e.getMessage());
        }
    }

    void start() {
        if (server != null) {
            server.setExecutor(threads);
            server.createContext("/", this::handle);
            server.start();
        }
        if (socket != null) {
            socket.start();
        }
    }

    /** The address for HTTP; null where there is a Unix socket only. */
    InetSocketAddress address() {
        return server == null ? null : server.getAddress();
    }

    private void handle(HttpExchange exchange) throws IOException {
        AdminApi.Asked asked = new AdminApi.Asked(exchange.getRequestMethod(),
                exchange.getRequestURI(), exchange.getRequestHeaders()::getFirst, false);
        AdminApi.Answer answer = api.refusal(asked);
        if (answer == null) {
            answer = answer(api, asked, exchange.getRequestBody());
        }
        byte[] body = answer.body().getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", answer.type());
        answer.fields().forEach(exchange.getResponseHeaders()::set);
        boolean isHead = asked.method().equals("HEAD");
        exchange.sendResponseHeaders(answer.status(), isHead ? -1 : body.length);
        if (!isHead) {
            exchange.getResponseBody().write(body);
        }
        exchange.close();
    }

    /** Reads the body, and does what is asked for. */
    static AdminApi.Answer answer(AdminApi api, AdminApi.Asked asked, InputStream body)
            throws IOException {
        byte[] bytes = body.readNBytes(BODY_BYTES_MAX + 1);
        return bytes.length > BODY_BYTES_MAX
                ? AdminApi.Answer.text(413, "body is longer than " + BODY_BYTES_MAX + " bytes")
                : api.answer(asked, new String(bytes, StandardCharsets.UTF_8));
    }

    @Override
    public void close() {
        if (server != null) {
            server.stop(0);
        }
        if (socket != null) {
            socket.close();
        }
        threads.shutdownNow();
    }
}
