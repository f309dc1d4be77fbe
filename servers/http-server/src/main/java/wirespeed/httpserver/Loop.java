/** State that the connections of one event loop share: clock, date, scratch memory, content. */
package wirespeed.httpserver;

import io.netty.channel.EventLoop;
import io.netty.util.concurrent.Promise;
import java.time.Instant;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** State of one event loop; used by its thread only. */
final class Loop {
    /** How long connections without a request stay open when the server stops. */
    private static final long STOP_IDLE_MS = 200;
    /** When responses in progress are cut. */
    private static final long STOP_MS_MAX = 5000;
    private static final int SCRATCH_BYTES = 64 * 1024;

    final EventLoop executor;
    final Content content;
    final RequestHead head = new RequestHead();
    final Responses responses = new Responses();
    final Responder responder;
    /** A counter of seconds without relation to the wall clock. */
    long nowS;
    boolean isStopping;

    private byte[] scratch = new byte[SCRATCH_BYTES];
    private Connection first;
    private Promise<Void> stopped;

    Loop(EventLoop executor, Content content, Settings settings) {
        this.executor = executor;
        this.content = content;
        responder = new Responder(this, settings);
    }

    /** Sets date and clock, now and at the start of each second. */
    void tick() {
        Instant now = Instant.now();
        responses.date(now);
        advance(System.nanoTime() / 1_000_000_000);
        long left = 1000 - now.toEpochMilli() % 1000;
        if (!executor.isShuttingDown()) {
            executor.schedule(this::tick, left, TimeUnit.MILLISECONDS);
        }
    }

    /** Sets the clock and closes connections that took too long by it. */
    void advance(long toS) {
        nowS = toS;
        each(connection -> {
            if (connection.deadlineS <= nowS) {
                connection.expire();
            }
        });
    }

    /** When the next connection would end without further events. */
    long soonestDeadlineS() {
        long soonest = Long.MAX_VALUE;
        for (Connection each = first; each != null; each = each.next) {
            soonest = Math.min(soonest, each.deadlineS);
        }
        return soonest;
    }

    /** Memory for the bytes of one read, valid until the next call. */
    byte[] scratch(int bytes) {
        if (bytes > scratch.length) {
            scratch = Arrays.copyOf(scratch, Integer.highestOneBit(bytes) * 2);
        }
        return scratch;
    }

    void add(Connection connection) {
        connection.next = first;
        if (first != null) {
            first.previous = connection;
        }
        first = connection;
    }

    void remove(Connection connection) {
        if (connection.previous != null) {
            connection.previous.next = connection.next;
        } else {
            first = connection.next;
        }
        if (connection.next != null) {
            connection.next.previous = connection.previous;
        }
        connection.next = null;
        connection.previous = null;
        if (first == null && stopped != null) {
            stopped.trySuccess(null);
        }
    }

    /** From now on each response closes its connection; completes when none is left. */
    Promise<Void> stop() {
        Promise<Void> done = executor.newPromise();
        executor.execute(() -> {
            isStopping = true;
            stopped = done;
            if (first == null) {
                done.trySuccess(null);
                return;
            }
            executor.schedule(() -> each(Connection::closeIfIdle), STOP_IDLE_MS,
                    TimeUnit.MILLISECONDS);
            executor.schedule(() -> each(Connection::cut), STOP_MS_MAX, TimeUnit.MILLISECONDS);
        });
        return done;
    }

    private void each(Consumer<Connection> action) {
        for (Connection each = first; each != null;) {
            Connection next = each.next;
            action.accept(each);
            each = next;
        }
    }
}
