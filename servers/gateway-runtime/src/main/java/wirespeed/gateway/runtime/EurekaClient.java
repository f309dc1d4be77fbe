// Asks a Eureka server for the instances of a service.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.math.BigDecimal;
import java.net.URI;
import java.net.UnknownHostException;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/** Polled, as Eureka's own clients do: its API has no way to wait for a change. Blocks. */
final class EurekaClient {
    private static final int BYTES_MAX = 4 << 20;
    /** How often to ask. */
    static final int POLL_SECONDS = 5;
    /**
     * How long a service must be unknown before its instances count as gone: after a restart Eureka knows
     * only what has sent a heartbeat since, which instances do every 30 seconds, and caches its answers. It
     * keeps an instance that sends none for as long.
     */
    static final int ABSENT_SECONDS = 90;
    private static final int NOT_FOUND = 404;
    private static final Duration PATIENCE = Duration.ofSeconds(5);

    private final URI server;
    private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1)
            .connectTimeout(PATIENCE).build();
    private final RegisteredInstances instances = new RegisteredInstances("eureka", List.of("instanceId"));

    /**
     * Asks nothing yet.
     *
     * @param server as {@link #server} reads it
     */
    EurekaClient(String server) {
        this.server = server(server);
    }

    /** The address of a server in the configuration. */
    static URI server(String text) {
        try {
            URI server = URI.create(text.endsWith("/") ? text : text + "/");
            HttpRequest.newBuilder(server);
            if (server.getRawQuery() == null && server.getRawUserInfo() == null) {
                return server;
            }
        } catch (IllegalArgumentException bad) {
            // Refused below.
        }
        throw new IllegalArgumentException("server.eureka: \"" + text + "\" is not the http address of a"
                + " Eureka server, such as http://127.0.0.1:8761/eureka");
    }

    /**
     * The instances of a service that are up; {@link UnknownHostException} where Eureka knows none.
     *
     * @param isEncrypted whether to prefer their ports for TLS
     */
    List<EndpointResolver.Target> find(String service, boolean isEncrypted) throws IOException {
        HttpRequest question = HttpRequest.newBuilder(server.resolve("apps/" + service)).timeout(PATIENCE)
                .header("Accept", "application/json").build();
        try {
            HttpResponse<InputStream> answer = http.send(question,
                    HttpResponse.BodyHandlers.ofInputStream());
            if (answer.statusCode() == NOT_FOUND) {
                answer.body().close();
                throw new UnknownHostException("Eureka knows no service " + service);
            }
            return instances(BoundedBody.read(answer, BYTES_MAX, PATIENCE), isEncrypted);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("the gateway stops");
        }
    }

    /** Reads the answer of /apps/NAME; an instance that is malformed is left out while there are others. */
    List<EndpointResolver.Target> instances(String text, boolean isEncrypted) {
        Object all = member(member(Json.parse(text), "application"), "instance");
        // A server with XML at heart writes a single one without a list.
        List<?> list = all instanceof List<?> several ? several : List.of(all);
        return instances.read(list, one -> instance(one, isEncrypted));
    }

    private static EndpointResolver.Target instance(Object one, boolean isEncrypted) {
        return "UP".equals(member(one, "status"))
                ? new EndpointResolver.Target(text(member(one, "ipAddr")), port(one, isEncrypted), 0, 1,
                        POLL_SECONDS) : null;
    }

    private static Object member(Object of, String name) {
        Object member = of instanceof Map<?, ?> fields ? fields.get(name) : null;
        if (member == null) {
            throw new IllegalArgumentException("there is no " + name);
        }
        return member;
    }

    private static String text(Object value) {
        if (value instanceof String text && !text.isEmpty()) {
            return text;
        }
        throw new IllegalArgumentException("it has no address");
    }

    private static boolean isEnabled(Object instance, String port) {
        return instance instanceof Map<?, ?> fields && fields.get(port) instanceof Map<?, ?> one
                && "true".equals(String.valueOf(one.get("@enabled")));
    }

    /** The one that suits the origin where it is enabled, else the other. */
    private static int port(Object instance, boolean isEncrypted) {
        String wanted = isEncrypted ? "securePort" : "port";
        String other = isEncrypted ? "port" : "securePort";
        Object number = member(member(instance, isEnabled(instance, wanted) ? wanted : other), "$");
        return number instanceof BigDecimal given ? given.intValue() : 0;
    }
}
