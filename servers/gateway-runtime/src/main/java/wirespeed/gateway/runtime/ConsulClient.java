// Asks Consul's HTTP API for the instances of a service, and waits there for a change.
package wirespeed.gateway.runtime;

import java.io.InputStream;
import java.math.BigDecimal;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;

/**
 * Blocking queries: a question with the index of the last answer is answered when something has changed,
 * or after half a minute. No thread waits meanwhile.
 */
class ConsulClient {
    private static final int BYTES_MAX = 4 << 20;
    /** Of ports and weights. */
    private static final BigDecimal NUMBER_MAX = BigDecimal.valueOf(65_535);
    /** How long Consul holds a question; it adds up to a sixteenth of it. */
    private static final int WAIT_SECONDS = 30;
    private static final Duration PATIENCE = Duration.ofSeconds(5);

    /**
     * Where a service is.
     *
     * @param index of this state; the next question says it, 0 for the first
     */
    record Answer(List<EndpointResolver.Target> instances, long index) {
    }

    private final URI agent;
    private final String token;
    private final Executor readers;
    private final HttpClient http;
    private final RegisteredInstances instances = new RegisteredInstances("consul", List.of("Service", "ID"));

    /**
     * Asks nothing yet.
     *
     * @param agent as {@link #agent} reads it
     * @param token of an access list; empty for none
     * @param readers threads that read answers
     */
    ConsulClient(String agent, String token, Executor readers) {
        this.agent = agent(agent);
        this.token = token;
        this.readers = readers;
        http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(PATIENCE).build();
    }

    /** The address of an agent in the configuration. */
    static URI agent(String text) {
        try {
            URI agent = URI.create(text);
            HttpRequest.newBuilder(agent);
            if (agent.getRawQuery() == null && (agent.getRawPath() + "/").length() <= 2) {
                return agent;
            }
        } catch (IllegalArgumentException bad) {
            // Refused below.
        }
        throw new IllegalArgumentException("server.consul: \"" + text + "\" is not the http address of a"
                + " Consul agent, such as http://127.0.0.1:8500");
    }

    /**
     * The instances that pass their checks.
     *
     * @param index of the last answer: this one comes when something has changed since
     */
    CompletableFuture<Answer> ask(String service, long index) {
        HttpRequest.Builder question = HttpRequest.newBuilder(agent.resolve("/v1/health/service/" + service
                + "?passing=1&wait=" + WAIT_SECONDS + "s&index=" + index))
                .timeout(PATIENCE.plusSeconds(index == 0 ? 0 : 2 * WAIT_SECONDS));
        if (!token.isEmpty()) {
            question.setHeader("X-Consul-Token", token);
        }
        return http.sendAsync(question.build(), HttpResponse.BodyHandlers.ofInputStream())
                .thenApplyAsync(answer -> read(answer, index), readers);
    }

    private Answer read(HttpResponse<InputStream> answer, long last) {
        String text = BoundedBody.read(answer, BYTES_MAX, PATIENCE);
        long index = answer.headers().firstValueAsLong("X-Consul-Index").orElse(0);
        // As Consul asks for: after an index that falls, or is none, begin again with 0.
        return new Answer(instances(text), index < last || index < 1 ? 0 : index);
    }

    /** Reads the answer of /v1/health/service; a malformed instance is left out while there are others. */
    List<EndpointResolver.Target> instances(String text) {
        if (!(Json.parse(text) instanceof List<?> all)) {
            throw new IllegalArgumentException("the answer is not a list");
        }
        return instances.read(all, ConsulClient::instance);
    }

    private static EndpointResolver.Target instance(Object one) {
        Map<?, ?> service = member(one, "Service");
        Object host = service.get("Address");
        if (host == null || host.equals("")) {
            // The instance is at its node.
            host = member(one, "Node").get("Address");
        }
        Object weight = service.get("Weights") instanceof Map<?, ?> weights ? weights.get("Passing") : null;
        return new EndpointResolver.Target(text(host), number("Port", service.get("Port")),
                0, weight == null ? 1 : number("weight", weight), 0);
    }

    private static Map<?, ?> member(Object instance, String name) {
        if (instance instanceof Map<?, ?> fields && fields.get(name) instanceof Map<?, ?> member) {
            return member;
        }
        throw new IllegalArgumentException("it has no " + name);
    }

    private static String text(Object value) {
        if (value instanceof String text && !text.isEmpty()) {
            return text;
        }
        throw new IllegalArgumentException("it has no address");
    }

    private static int number(String what, Object value) {
        if (value instanceof BigDecimal number && number.signum() >= 0
                && number.compareTo(NUMBER_MAX) <= 0) {
            return number.intValue();
        }
        throw new IllegalArgumentException("its " + what + " is not a number from 0 to " + NUMBER_MAX);
    }
}
