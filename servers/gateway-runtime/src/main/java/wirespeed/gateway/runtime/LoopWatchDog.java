// Finds filters that hold an event loop, and says which.
package wirespeed.gateway.runtime;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import wirespeed.gateway.core.Filter;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.core.LoopWatch;

/**
 * A stay that is seen in two samples in a row has lasted 20 ms or longer. Sampling more often costs
 * a gateway on one core more than it is worth: each sample takes the core from the loop.
 */
final class LoopWatchDog implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger("wirespeed.gateway");
    private static final long SAMPLE_MILLIS = 20;
    private static final int REGULARLY_SAMPLES = 50;
    private static final int SAMPLES = 2;
    private static final long SILENCE_NANOS = 60_000_000_000L;

    private final Gateway gateway;
    private final AtomicLong blocked = new AtomicLong();
    private final Runnable regularly;
    private final Map<LoopWatch, long[]> seen = new HashMap<>();
    private final Map<String, Long> logged = new HashMap<>();
    private volatile boolean isClosed;
    private Thread thread;

    /**
     * A watch that does not run yet.
     *
     * @param regularly done about once a second, too
     */
    LoopWatchDog(Gateway gateway, Runnable regularly) {
        this.gateway = gateway;
        this.regularly = regularly;
    }

    void start() {
        thread = new Thread(this::run, "loop-watch");
        thread.setDaemon(true);
        thread.start();
    }

    /** How often a filter held a loop for too long. */
    long blocked() {
        return blocked.get();
    }

    private void run() {
        try {
            for (long turn = 0; !isClosed; turn++) {
                Thread.sleep(SAMPLE_MILLIS);
                gateway.watches().forEach(this::sample);
                if (turn % REGULARLY_SAMPLES == 0) {
                    regularly.run();
                }
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private void sample(LoopWatch watch) {
        long sequence = watch.sequence();
        long[] last = seen.computeIfAbsent(watch, fresh -> new long[2]);
        if (sequence % 2 == 0 || sequence != last[0]) {
            last[0] = sequence;
            last[1] = 0;
            watch.reset();
            return;
        }
        if (++last[1] >= SAMPLES && watch.report(sequence)) {
            blocked.incrementAndGet();
            report(watch);
        }
    }

    private void report(LoopWatch watch) {
        Filter filter = watch.filter();
        String name = filter == null ? "unknown" : filter.name();
        long now = System.nanoTime();
        Long before = logged.get(name);
        if (before != null && now - before < SILENCE_NANOS) {
            return;
        }
        logged.put(name, now);
        StringBuilder stack = new StringBuilder();
        for (StackTraceElement frame : watch.thread().getStackTrace()) {
            stack.append("\n    at ").append(frame);
        }
        LOG.log(System.Logger.Level.WARNING, "filter " + name + " holds " + watch.thread().getName()
                + " for more than " + SAMPLE_MILLIS * (SAMPLES - 1)
                + " ms; return Step.later for what takes time" + stack);
    }

    @Override
    public void close() {
        isClosed = true;
        if (thread != null) {
            thread.interrupt();
        }
    }
}
