// Lets another thread see that a filter holds an event loop.
package wirespeed.gateway.core;

import java.util.concurrent.atomic.AtomicLong;

/**
 * Entering and leaving a filter stores a number and no time: the sampler looks every few
 * milliseconds, and an odd number that it sees again means that the filter has not returned since.
 */
public final class LoopWatch implements Chain.Watch {
    private final Thread thread;
    private final AtomicLong sequence = new AtomicLong();
    private volatile boolean isReported;
    private Filter filter;

    public LoopWatch(Thread thread) {
        this.thread = thread;
    }

    @Override
    public void enter(Filter entered) {
        filter = entered;
        sequence.lazySet(sequence.getPlain() + 1);
    }

    @Override
    public void leave() {
        sequence.lazySet(sequence.getPlain() + 1);
    }

    public Thread thread() {
        return thread;
    }

    /** Odd while a filter runs. */
    public long sequence() {
        return sequence.get();
    }

    /** The filter that was entered last; exact as long as the sequence has not moved. */
    public Filter filter() {
        return filter;
    }

    /** True only for the first call during one stay in a filter. */
    public boolean report(long sequenceSeen) {
        if (isReported || sequence.get() != sequenceSeen) {
            return false;
        }
        isReported = true;
        return true;
    }

    /** The filter has returned. */
    public void reset() {
        isReported = false;
    }
}
