// Runs one phase of filters on the request thread and waits for what they do elsewhere.
package wirespeed.gateway.tomcat;

import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import wirespeed.gateway.core.Chain;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Filter;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Step;

/**
 * The chain resumes on an executor; here that is the thread which waits. One object per phase, so
 * that a stage which completes after its time-out finds no waiting thread and changes nothing.
 */
final class Turn implements Chain.Done, Executor {
    private static final Runnable OVER = () -> { };
    /** Filters may block their own request; without loops there is nothing to watch. */
    private static final Chain.Watch NO_WATCH = new Chain.Watch() {
        @Override
        public void enter(Filter filter) {
        }

        @Override
        public void leave() {
        }
    };

    private final Thread thread = Thread.currentThread();
    private final AtomicReference<Runnable> pending = new AtomicReference<>();
    private Step decided;

    private Turn() {
    }

    /**
     * The decision of a phase's filters.
     *
     * @param deadlineNanos System.nanoTime at which a stage that is not complete is given up: 504
     */
    static Step run(Phase phase, Context context, long deadlineNanos) {
        Chain chain = context.snapshot().chain();
        if (chain.isEmpty(phase)) {
            return Step.NEXT;
        }
        Turn turn = new Turn();
        chain.run(phase, context, turn, NO_WATCH, turn);
        return turn.decided == null ? turn.await(deadlineNanos) : turn.decided;
    }

    private Step await(long deadlineNanos) {
        while (decided == null) {
            Runnable next = pending.getAndSet(null);
            if (next != null) {
                next.run();
                continue;
            }
            long left = deadlineNanos - System.nanoTime();
            if (left <= 0 || Thread.interrupted()) {
                pending.set(OVER);
                return Step.fail(504, new IllegalStateException(
                        "a filter's stage was not complete in time"));
            }
            LockSupport.parkNanos(this, left);
        }
        return decided;
    }

    @Override
    public void execute(Runnable resume) {
        if (pending.compareAndSet(null, resume)) {
            LockSupport.unpark(thread);
        }
    }

    @Override
    public void accept(Context context, Step step) {
        decided = step;
    }
}
