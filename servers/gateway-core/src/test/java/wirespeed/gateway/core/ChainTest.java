// Order, answers, failures and late decisions of filters.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.function.Function;
import org.junit.jupiter.api.Test;

class ChainTest {
    private static final Chain.Watch NO_WATCH = new Chain.Watch() {
        @Override
        public void enter(Filter filter) {
        }

        @Override
        public void leave() {
        }
    };
    private final List<String> ran = new ArrayList<>();
    private Step result;

    private Filter filter(String name, int order, Function<Context, Step> work) {
        return new Filter() {
            @Override
            public Phase phase() {
                return Phase.PRE;
            }

            @Override
            public int order() {
                return order;
            }

            @Override
            public String name() {
                return name;
            }

            @Override
            public boolean shouldFilter(Context context) {
                return !name.equals("unwanted");
            }

            @Override
            public Step apply(Context context) {
                ran.add(name);
                return work.apply(context);
            }
        };
    }

    private void run(Filter... filters) {
        run(Runnable::run, filters);
    }

    private void run(Executor executor, Filter... filters) {
        Chain chain = new Chain(List.of(filters));
        Context context = new Context(new Snapshot(1, chain, new RouteTable(List.of()), Map.of(),
                Limits.DEFAULT, new Forwarding("gw-1", Networks.NONE)), HeadCheckTest.parse("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 0);
        chain.run(Phase.PRE, context, executor, NO_WATCH, (done, step) -> result = step);
    }

    @Test
    void the_tenth_of_a_type_runs_after_the_ninth() {
        run(filter("rewrite-10", 0, c -> Step.NEXT), filter("rewrite-9", 0, c -> Step.NEXT),
                filter("a-2-b", 0, c -> Step.NEXT), filter("a-010-b", 0, c -> Step.NEXT),
                filter("a-10-b", 0, c -> Step.NEXT), filter("a-10-a", 0, c -> Step.NEXT));
        assertEquals(List.of("a-2-b", "a-10-a", "a-010-b", "a-10-b", "rewrite-9", "rewrite-10"), ran);
    }

    @Test
    void runs_by_order_then_name_and_only_what_wants_to() {
        run(filter("c", 2, c -> Step.NEXT), filter("b", 1, c -> Step.NEXT),
                filter("a", 2, c -> Step.NEXT), filter("unwanted", 0, c -> Step.NEXT));
        assertEquals(List.of("b", "a", "c"), ran);
        assertTrue(result.isNext());
    }

    @Test
    void an_answer_ends_the_phase() {
        run(filter("a", 1, c -> Step.respond(Response.of(403, "text/plain", "no"))),
                filter("b", 2, c -> Step.NEXT));
        assertEquals(List.of("a"), ran);
        assertEquals(403, result.response().status());
    }

    @Test
    void a_filter_that_throws_fails_the_request_and_is_named() {
        run(filter("bad", 1, c -> {
            throw new IllegalStateException("broken");
        }));
        assertEquals(500, result.status());
        assertInstanceOf(FilterFailure.class, result.cause());
        assertTrue(result.cause().getMessage().contains("bad"));
    }

    @Test
    void a_late_decision_is_waited_for() {
        CompletableFuture<Step> later = new CompletableFuture<>();
        run(filter("a", 1, c -> Step.later(later)), filter("b", 2, c -> Step.NEXT));
        assertNull(result);
        later.complete(Step.NEXT);
        assertEquals(List.of("a", "b"), ran);
        assertTrue(result.isNext());
    }

    @Test
    void a_decision_behind_a_stage_is_made_by_the_exchanges_own_thread() {
        List<Runnable> loop = new ArrayList<>();
        CompletableFuture<String> answer = new CompletableFuture<>();
        run(loop::add, filter("a", 1, c -> Step.later(answer, () -> {
            ran.add(answer.join());
            return Step.NEXT;
        })), filter("b", 2, c -> Step.NEXT));
        answer.complete("decided");
        assertEquals(List.of("a"), ran);
        loop.remove(0).run();
        assertEquals(List.of("a", "decided", "b"), ran);
        assertTrue(result.isNext());
    }

    @Test
    void a_late_failure_is_a_failure() {
        run(filter("a", 1, c -> Step.later(
                CompletableFuture.failedFuture(new Refusal(429, "enough")))));
        assertEquals(429, result.status());
    }

    @Test
    void many_settled_stages_do_not_grow_the_stack() {
        Filter[] filters = new Filter[20_000];
        for (int i = 0; i < filters.length; i++) {
            filters[i] = filter("f" + i, i,
                    c -> Step.later(CompletableFuture.completedFuture(Step.NEXT)));
        }
        run(filters);
        assertEquals(filters.length, ran.size());
    }
}
