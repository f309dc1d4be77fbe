// A test of a filter sees the exchange that the gateway would have.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import org.junit.jupiter.api.Test;

class FilterTestTest {
    private record Made(Phase phase, int order, int requestBodyBytesMax, int responseBodyBytesMax,
            Function<Context, Step> work) implements Filter {
        @Override
        public String name() {
            return phase + "-" + order;
        }

        @Override
        public Step apply(Context context) {
            return work.apply(context);
        }
    }

    private static Filter at(Phase phase, Function<Context, Step> work) {
        return new Made(phase, 1, 0, 0, work);
    }

    private static Filter does(Phase phase, int order, List<String> seen) {
        return new Made(phase, order, 0, 0, context -> {
            seen.add(phase + " " + order);
            return Step.NEXT;
        });
    }

    private static final String GET = "GET /a?b=c HTTP/1.1\nHost: shop.example";

    @Test
    void phases_run_in_their_order_and_the_origin_gets_what_filters_made() {
        List<String> seen = new ArrayList<>();
        FilterTest test = FilterTest.of(does(Phase.POST, 1, seen), does(Phase.PRE, 2, seen),
                does(Phase.PRE, 1, seen), does(Phase.ROUTE, 1, seen), does(Phase.ERROR, 1, seen),
                at(Phase.PRE, context -> {
                    context.request().headers().set("X-Plan", context.request().query());
                    return Step.later(CompletableFuture.supplyAsync(() -> Step.NEXT));
                })).origin(request -> {
                    seen.add("origin " + request.headers().get("X-Plan"));
                    return Response.of(201, "text/plain", "made");
                });
        FilterTest.Result result = test.run(GET);
        assertEquals(List.of("PRE 1", "PRE 2", "ROUTE 1", "origin b=c", "POST 1"), seen);
        assertEquals(201, result.status());
        assertEquals("made", result.text());
        assertEquals("text/plain", result.headers().get("Content-Type"));
        assertEquals("b=c", result.forwarded().headers().get("X-Plan"));
        assertNull(result.failure());
    }

    @Test
    void an_answer_of_a_filter_asks_no_origin_and_passes_the_filters_of_responses() {
        FilterTest.Result result = FilterTest.of(
                at(Phase.PRE, context -> Step.respond(Response.of(403, "text/plain", "no"))),
                at(Phase.POST, context -> {
                    context.response().headers().set("X-Seen", "yes");
                    return Step.NEXT;
                })).run(GET);
        assertNull(result.forwarded());
        assertEquals("403 no yes", result.status() + " " + result.text() + " "
                + result.headers().get("X-Seen"));
    }

    @Test
    void what_a_filter_throws_is_a_500_that_filters_of_errors_see() {
        RuntimeException mine = new IllegalStateException("mine");
        FilterTest.Result result = FilterTest.of(at(Phase.ROUTE, context -> {
            throw mine;
        }), at(Phase.ERROR, context -> {
            context.response().headers().set("X-Error", "seen");
            return Step.NEXT;
        })).run(GET);
        assertEquals(500, result.status());
        assertSame(mine, result.failure());
        assertEquals("seen", result.headers().get("X-Error"));
        assertTrue(result.text().startsWith("500 Internal Server Error"), result.text());
    }

    @Test
    void a_body_is_collected_for_a_filter_that_asks_for_it_and_for_no_other() {
        List<Object> seen = new ArrayList<>();
        Filter looks = new Made(Phase.PRE, 1, 5, 0, context -> {
            seen.add(StandardCharsets.UTF_8.decode(context.request().body()).toString());
            return Step.NEXT;
        });
        Filter looksNot = at(Phase.PRE, context -> {
            seen.add(String.valueOf(context.request().body()));
            return Step.NEXT;
        });
        String post = "POST / HTTP/1.1\nHost: shop.example";
        assertEquals(200, FilterTest.of(looks).run(post, "hello").status());
        assertEquals(413, FilterTest.of(looks).run(post, "longer").status());
        assertEquals(200, FilterTest.of(looksNot).run(post, "hello").status());
        assertEquals(List.of("hello", "null"), seen);
    }

    @Test
    void a_response_is_collected_or_comes_in_pieces() {
        Function<Request, Response> origin = request -> Response.of(200, "text/plain", "0123456789");
        List<String> pieces = new ArrayList<>();
        FilterTest.Result streamed = FilterTest.of(at(Phase.POST, context -> {
            assertNull(context.response().body());
            context.response().transform(new BodyTransform() {
                @Override
                public ByteBuffer chunk(ByteBuffer piece) {
                    pieces.add(StandardCharsets.UTF_8.decode(piece).toString());
                    return StandardCharsets.UTF_8.encode("<" + pieces.get(pieces.size() - 1) + ">");
                }

                @Override
                public ByteBuffer end() {
                    return StandardCharsets.UTF_8.encode("!");
                }
            });
            return Step.NEXT;
        })).origin(origin).run(GET);
        assertEquals("<0123><4567><89>!", streamed.text());
        assertNull(streamed.headers().get("Content-Length"));
        Filter reads = new Made(Phase.POST, 1, 0, 10, context -> Step.respond(Response.of(200, "text/plain",
                "[" + StandardCharsets.UTF_8.decode(context.response().body()) + "]")));
        assertEquals("[0123456789]", FilterTest.of(reads).origin(origin).run(GET).text());
        assertEquals(502, FilterTest.of(reads).origin(request -> Response.of(200, "text/plain",
                "01234567890")).run(GET).status());
        assertEquals("", FilterTest.of().origin(origin).run("HEAD / HTTP/1.1\nHost: a").text());
    }

    @Test
    void a_request_that_the_gateway_refuses_fails_the_test() {
        assertEquals(400, assertThrows(Refusal.class, () -> FilterTest.of().run("GET / HTTP/1.1")).status());
    }
}
