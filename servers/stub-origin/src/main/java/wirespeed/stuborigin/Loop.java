/** State that the connections of one event loop share: wheel, random numbers, responses, totals. */
package wirespeed.stuborigin;

import io.netty.channel.EventLoop;
import io.netty.util.concurrent.Promise;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** State of one event loop; used by its thread only. */
final class Loop {
    private static final long STOP_MS_MAX = 5000;

    final EventLoop executor;
    final Settings settings;
    final SplittableRandom random;
    final Responses responses;
    final Recorder recorder;
    boolean isStopping;
    long answered;
    long delaySumNs;
    long delayMaxNs;

    private final AtomicLong connectionNumbers;
    private final Wheel wheel = new Wheel(System.nanoTime());
    private final Set<Connection> connections = new HashSet<>();
    private long armedNs = Wheel.NEVER;
    private byte[] scratch = new byte[64 * 1024];
    private Promise<Void> stopped;

    Loop(EventLoop executor, Settings settings, Payloads payloads, Recorder recorder,
         AtomicLong connectionNumbers, SplittableRandom random) {
        this.executor = executor;
        this.settings = settings;
        this.recorder = recorder;
        this.connectionNumbers = connectionNumbers;
        this.random = random;
        responses = new Responses(payloads, random.split());
    }

    /** Sets the date, now and at the start of each second. */
    void tick() {
        Instant now = Instant.now();
        responses.date(now);
        if (!executor.isShuttingDown()) {
            executor.schedule(this::tick, 1000 - now.toEpochMilli() % 1000, TimeUnit.MILLISECONDS);
        }
    }

    /** Lets an entry become due; one timer of the loop serves all entries of a tick. */
    void after(long delayNs, Wheel.Entry entry) {
        long now = System.nanoTime();
        if (wheel.size() == 0) {
            wheel.advance(now);
        }
        wheel.add(entry, now + delayNs);
        arm(now);
    }

    void cancel(Wheel.Entry entry) {
        wheel.remove(entry);
    }

    private void arm(long nowNs) {
        long due = wheel.nextDueNs();
        if (due < armedNs) {
            armedNs = due;
            executor.schedule(() -> turn(due), due - nowNs, TimeUnit.NANOSECONDS);
        }
    }

    private void turn(long dueNs) {
        // An earlier timer may have replaced this one; then there is nothing to do here.
        if (dueNs == armedNs) {
            armedNs = Wheel.NEVER;
            wheel.advance(System.nanoTime());
            arm(System.nanoTime());
        }
    }

    void answered(long delayNs) {
        answered++;
        delaySumNs += delayNs;
        delayMaxNs = Math.max(delayMaxNs, delayNs);
    }

    /** Memory for the bytes of one read, valid until the next call. */
    byte[] scratch(int bytes) {
        if (bytes > scratch.length) {
            scratch = Arrays.copyOf(scratch, Integer.highestOneBit(bytes) * 2);
        }
        return scratch;
    }

    long add(Connection connection) {
        connections.add(connection);
        return connectionNumbers.incrementAndGet();
    }

    void remove(Connection connection) {
        connections.remove(connection);
        if (connections.isEmpty() && stopped != null) {
            stopped.trySuccess(null);
        }
    }

    /** Closes idle connections, lets the others finish; completes when none is left. */
    Promise<Void> stop() {
        Promise<Void> done = executor.newPromise();
        executor.execute(() -> {
            isStopping = true;
            stopped = done;
            connections.stream().toList().forEach(Connection::closeIfIdle);
            if (connections.isEmpty()) {
                done.trySuccess(null);
            }
            executor.schedule(() -> connections.stream().toList().forEach(Connection::cut),
                    STOP_MS_MAX, TimeUnit.MILLISECONDS);
        });
        return done;
    }
}
