// Passes requests through filters without a gateway: for the tests of filters.
package wirespeed.gateway.core;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import wirespeed.gateway.core.ExchangeMachine.Command;

/**
 * Each call is an exchange as the gateway has it: phases in their order, bodies collected only where a
 * filter asks for that, answers that come later waited for, failures answered. Nothing is sent; the
 * origin is a function of the test.
 *
 * <pre>{@code
 * FilterTest.Result result = FilterTest.of(new Tenant()).run("GET /?tenant=acme HTTP/1.1\nHost: a.example");
 * assertEquals("gold", result.forwarded().headers().get("X-Plan"));
 * }</pre>
 */
public final class FilterTest {
    /** What a test waits for a {@link Step#later}. */
    private static final int PATIENCE_SECONDS = 30;
    /** A streamed body comes in so many pieces: a transform must not rely on one. */
    private static final int PIECES = 3;
    private static final Chain.Watch UNWATCHED = new Chain.Watch() {
        @Override
        public void enter(Filter filter) {
            // No loop is held up here.
        }

        @Override
        public void leave() {
            // As above.
        }
    };

    /**
     * The outcome of a request.
     *
     * @param context as the filters left it
     * @param forwarded what the origin got; null where it was not asked
     * @param status of the response to the client
     * @param headers of the response to the client
     * @param body that the client gets
     */
    public record Result(Context context, Request forwarded, int status, Headers headers, byte[] body) {
        /** The body as text. */
        public String text() {
            return new String(body, StandardCharsets.UTF_8);
        }

        /** The cause of a {@link Step#fail}, or the exception of a filter; null for a request that did not fail. */
        public Throwable failure() {
            Throwable failure = context.failure();
            return failure instanceof FilterFailure thrown ? thrown.getCause() : failure;
        }
    }

    private final Chain chain;
    private final Function<Request, Response> origin;

    private FilterTest(Chain chain, Function<Request, Response> origin) {
        this.chain = chain;
        this.origin = origin;
    }

    /** These filters, in front of an origin that answers 200 with an empty body. */
    public static FilterTest of(Filter... filters) {
        return new FilterTest(new Chain(List.of(filters)),
                request -> Response.of(200, "text/plain", ""));
    }

    /** The same filters in front of another origin. */
    public FilterTest origin(Function<Request, Response> answer) {
        return new FilterTest(chain, answer);
    }

    /**
     * A request without a body.
     *
     * @param head its lines; it must be one that the gateway takes, with a Host
     */
    public Result run(String head) {
        return run(head, new byte[0]);
    }

    /**
     * A request with this body, whose length need not be among the fields.
     *
     * @param head as above
     */
    public Result run(String head, String body) {
        return run(head, body.getBytes(StandardCharsets.UTF_8));
    }

    private Result run(String head, byte[] body) {
        String length = body.length == 0 ? "" : "\nContent-Length: " + body.length;
        byte[] lines = (String.join("\r\n", (head.strip() + length).split("\r?\n")) + "\r\n\r\n")
                .getBytes(StandardCharsets.ISO_8859_1);
        Request request = HeadCheck.request(lines, 0, lines.length, Limits.DEFAULT);
        request.clientAddress("192.0.2.1");
        Origin asked = new Origin("origin", List.of(new Address("origin.example", 80)),
                Balancer.Method.RANDOM_TWO, Origin.Settings.DEFAULT);
        Route route = Route.toAll("all", asked);
        Snapshot snapshot = new Snapshot(1, chain, new RouteTable(List.of(route)),
                Map.of(asked.name(), asked), Limits.DEFAULT, new Forwarding("filter-test", Networks.NONE));
        return new Run(new Context(snapshot, request, System.nanoTime()), body).run();
    }

    /** One exchange. */
    private final class Run {
        private final Context context;
        private final ExchangeMachine machine;
        private final byte[] body;
        private final ByteArrayOutputStream sent = new ByteArrayOutputStream();
        private Request forwarded;
        /** Of the origin's response, while it is not in memory. */
        private byte[] streamed = {};

        Run(Context context, byte[] body) {
            this.context = context;
            this.body = body;
            // A test reads the failure from its result.
            this.machine = new ExchangeMachine(context, (same, category, cause) -> { });
        }

        Result run() {
            Command next = machine.begin(null);
            if (context.failure() instanceof Refusal refused) {
                throw refused;
            }
            while (next != Command.WAIT) {
                next = execute(next);
            }
            Response response = context.response();
            machine.end(new Meters(false), System.nanoTime());
            return new Result(context, forwarded, response.status(), response.headers(), sent.toByteArray());
        }

        private Command execute(Command command) {
            return switch (command) {
                case COLLECT_REQUEST -> collectRequest();
                case RUN_FILTERS -> machine.decided(phase(machine.phase()), body.length);
                case ASK -> ask();
                case COLLECT_RESPONSE -> collectResponse();
                case SEND_WHOLE -> sendWhole();
                case RELAY -> relay();
                case SEND_HEAD -> Command.WAIT;
                default -> throw new IllegalStateException("nothing of this can happen here: " + command);
            };
        }

        private Command collectRequest() {
            if (body.length > machine.bodyBytesMax()) {
                return machine.refused(ExchangeMachine.tooLong(machine.bodyBytesMax()));
            }
            context.request().body(ByteBuffer.wrap(body));
            return machine.collected();
        }

        /** Its body is streamed, as that of an origin is. */
        private Command ask() {
            forwarded = context.request();
            Response answer = origin.apply(forwarded);
            ByteBuffer whole = answer.body();
            streamed = new byte[whole.remaining()];
            whole.get(streamed);
            Headers headers = answer.headers().copy();
            headers.set("Content-Length", String.valueOf(streamed.length));
            Response received = Response.received(answer.status(), headers, Framing.length(streamed.length));
            received.answers(forwarded.method());
            return machine.responded(received);
        }

        private Command collectResponse() {
            Command next = machine.responseHeld(streamed.length, false);
            if (next != Command.WAIT) {
                return next;
            }
            context.response().body(ByteBuffer.wrap(streamed));
            return machine.collected();
        }

        private Step phase(Phase phase) {
            CompletableFuture<Step> decided = new CompletableFuture<>();
            chain.run(phase, context, Runnable::run, UNWATCHED, (same, step) -> decided.complete(step));
            try {
                return decided.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
            } catch (TimeoutException late) {
                throw new AssertionError("no decision in the phase " + phase + " within "
                        + PATIENCE_SECONDS + " seconds", late);
            } catch (InterruptedException | ExecutionException ended) {
                throw new AssertionError("the phase " + phase + " did not end", ended);
            }
        }

        private Command sendWhole() {
            if (!machine.framing().isEmpty()) {
                write(context.response().body());
            }
            return Command.WAIT;
        }

        private Command relay() {
            Response response = context.response();
            byte[] passing = machine.framing().isEmpty() ? new byte[0] : streamed;
            int length = (passing.length + PIECES - 1) / PIECES;
            for (int from = 0; from < passing.length; from += length) {
                ByteBuffer piece = ByteBuffer.wrap(passing, from, Math.min(length, passing.length - from))
                        .slice().asReadOnlyBuffer();
                if (context.tap() != null) {
                    context.tap().chunk(piece.duplicate());
                }
                write(response.transform() == null ? piece : response.transform().chunk(piece));
            }
            if (response.transform() != null) {
                write(response.transform().end());
            }
            machine.relayed();
            return Command.WAIT;
        }

        private void write(ByteBuffer bytes) {
            byte[] copy = new byte[bytes.remaining()];
            bytes.get(copy);
            sent.write(copy, 0, copy.length);
        }
    }
}
