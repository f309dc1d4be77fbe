// Runs the filters of one phase in order.
package wirespeed.gateway.core;

import java.util.Arrays;
import java.util.Comparator;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.function.Supplier;
import java.util.regex.Pattern;

/**
 * An index loop over an array. A stage that is complete already is taken in the loop, so no chain
 * of filters can grow the stack; one that is not costs one callback and is resumed on the
 * exchange's own executor.
 */
public final class Chain {
    /** What happens when a phase is over. */
    public interface Done {
        /** Never called with a step that is still pending. */
        void accept(Context context, Step step);

        /** Whether the decision still counts; asked, where a filter has waited, before the next one runs. */
        default boolean isAwaited() {
            return true;
        }
    }

    /** Called before and after each filter, for the watch on blocked loops. */
    public interface Watch {
        void enter(Filter filter);

        void leave();
    }

    private static final Filter[] NONE = {};
    private static final Pattern NUMBER = Pattern.compile("[0-9]+");
    private static final int NUMBER_DIGITS = 10;
    private final Map<Phase, Filter[]> filters = new EnumMap<>(Phase.class);
    private final FinishFilter[] finishers;

    /** A chain of these filters, whatever their order in the list. */
    public Chain(List<? extends Filter> all) {
        for (Phase phase : Phase.values()) {
            filters.put(phase, all.stream().filter(filter -> filter.phase() == phase)
                    .map(Filter.class::cast)
                    .sorted(Comparator.comparingInt(Filter::order).thenComparing(Chain::numbered)
                            .thenComparing(Filter::name))
                    .toArray(Filter[]::new));
        }
        finishers = all.stream().filter(FinishFilter.class::isInstance)
                .map(FinishFilter.class::cast).toArray(FinishFilter[]::new);
    }

    /** The name with numbers of one length: by default it ends in that of the filter in its table. */
    private static String numbered(Filter filter) {
        return NUMBER.matcher(filter.name()).replaceAll(number -> "0".repeat(
                Math.max(0, NUMBER_DIGITS - number.group().length())) + number.group());
    }

    /** Notifies the finish filters; exceptions that they throw no longer change anything. */
    public void finished(Context context, int status, long nowNanos) {
        for (FinishFilter filter : finishers) {
            try {
                filter.finished(context, status, nowNanos - context.startNanos());
            } catch (Exception | Error tooLate) {
                context.failure(tooLate);
            }
        }
    }

    /** The filters of a phase in the order in which they run. */
    public List<Filter> filters(Phase phase) {
        return List.of(filters.getOrDefault(phase, NONE));
    }

    /** Whether this filter, and not one that is equal to it, runs in any phase. */
    public boolean has(Filter wanted) {
        return filters.values().stream().flatMap(Arrays::stream).anyMatch(one -> one == wanted);
    }

    public boolean isEmpty(Phase phase) {
        return filters.get(phase).length == 0;
    }

    /** How much of the request body must be collected before the filters run; 0 for nothing. */
    public int requestBodyBytesMax(Context context) {
        int max = 0;
        for (Filter filter : filters.get(Phase.PRE)) {
            max = Math.max(max, wanted(filter, filter.requestBodyBytesMax(), context));
        }
        for (Filter filter : filters.get(Phase.ROUTE)) {
            max = Math.max(max, wanted(filter, filter.requestBodyBytesMax(), context));
        }
        return max;
    }

    /** How much of the response body must be collected before post filters run; 0 for nothing. */
    public int responseBodyBytesMax(Context context) {
        int max = 0;
        for (Filter filter : filters.get(Phase.POST)) {
            max = Math.max(max, wanted(filter, filter.responseBodyBytesMax(), context));
        }
        return max;
    }

    /** A filter that cannot decide throws again when its turn comes, and is answered then. */
    private static int wanted(Filter filter, int max, Context context) {
        try {
            return max > 0 && filter.shouldFilter(context) ? max : 0;
        } catch (Exception | Error failure) {
            return 0;
        }
    }

    /** Runs a phase; {@code done} is called once, at once or on {@code executor}, while it is awaited. */
    public void run(Phase phase, Context context, Executor executor, Watch watch, Done done) {
        run(filters.get(phase), 0, context, executor, watch, done);
    }

    private void run(Filter[] phase, int from, Context context, Executor executor, Watch watch,
            Done done) {
        for (int at = from; at < phase.length; at++) {
            Step step = apply(phase[at], context, watch);
            if (step.kind == Step.Kind.LATER) {
                CompletableFuture<?> future = future(phase[at], step);
                if (!future.isDone()) {
                    int next = at + 1;
                    resumeLater(phase, next, future, new Resume(context, executor, watch, done,
                            step.then));
                    return;
                }
                step = settle(phase[at], future, step.then);
            }
            if (step.kind != Step.Kind.NEXT) {
                done.accept(context, step);
                return;
            }
        }
        done.accept(context, Step.NEXT);
    }

    private record Resume(Context context, Executor executor, Watch watch, Done done,
            Supplier<Step> then) {
    }

    private void resumeLater(Filter[] phase, int next, CompletableFuture<?> future, Resume to) {
        future.whenComplete((step, failure) -> to.executor().execute(() -> {
            if (!to.done().isAwaited()) {
                return;
            }
            Step settled = settle(phase[next - 1], future, to.then());
            if (settled.kind == Step.Kind.NEXT) {
                run(phase, next, to.context(), to.executor(), to.watch(), to.done());
            } else {
                to.done().accept(to.context(), settled);
            }
        }));
    }

    /** A filter that throws has failed the request; the others of the phase do not run. */
    private static Step apply(Filter filter, Context context, Watch watch) {
        watch.enter(filter);
        try {
            if (!filter.shouldFilter(context)) {
                return Step.NEXT;
            }
            Step step = filter.apply(context);
            return step == null ? failed(filter, new NullPointerException("no step")) : step;
        } catch (Refusal refusal) {
            return Step.fail(refusal.status(), refusal);
        } catch (Exception | Error failure) {
            return failed(filter, failure);
        } finally {
            watch.leave();
        }
    }

    private static Step failed(Filter filter, Throwable failure) {
        return Step.fail(500, new FilterFailure(filter.name(), failure));
    }

    /** What a filter hands over as a stage may be none. */
    private static CompletableFuture<?> future(Filter filter, Step step) {
        try {
            return step.stage.toCompletableFuture();
        } catch (RuntimeException none) {
            return CompletableFuture.completedFuture(failed(filter, none));
        }
    }

    private static Step settle(Filter filter, CompletableFuture<?> future, Supplier<Step> then) {
        try {
            Object brought = future.join();
            Object decision = then == null ? brought : then.get();
            boolean isSettled = decision instanceof Step step && step.kind != Step.Kind.LATER;
            return isSettled ? (Step) decision : failed(filter,
                    new IllegalStateException("a stage ended without a decision"));
        } catch (RuntimeException | Error failure) {
            Throwable cause = failure.getCause() == null ? failure : failure.getCause();
            return cause instanceof Refusal refusal ? Step.fail(refusal.status(), refusal)
                    : failed(filter, cause);
        }
    }
}
