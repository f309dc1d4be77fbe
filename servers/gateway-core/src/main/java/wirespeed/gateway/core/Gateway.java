// What a carrier needs to know while it runs.
package wirespeed.gateway.core;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/** The meeting point of carrier, configuration and admin port; one a process (or a test). */
public final class Gateway {
    /** State of one carrier thread for the admin port. */
    public interface Pools {
        /** Unused, used and waiting, per address, as a JSON object; may be slightly out of date. */
        String describe();
    }

    private volatile Map<String, OptionValues> options;
    private final List<Listener> listeners;
    private final List<Meters> meters = new CopyOnWriteArrayList<>();
    private final List<LoopWatch> watches = new CopyOnWriteArrayList<>();
    private final List<Pools> pools = new CopyOnWriteArrayList<>();
    private final Map<String, LongSupplier> gauges = new ConcurrentHashMap<>();
    private final AtomicInteger inFlight = new AtomicInteger();
    private volatile Runnable certificates;
    private volatile Snapshot snapshot;
    private final Supplier<Snapshot> current = this::snapshot;
    private volatile boolean isLeaving;
    private volatile boolean isDraining;

    /**
     * A gateway that begins with this snapshot.
     *
     * @param options the tables that occur once, by section
     * @param listeners where clients connect, as long as the process lives
     */
    public Gateway(Map<String, OptionValues> options, List<Listener> listeners,
            Snapshot snapshot) {
        this.options = Map.copyOf(options);
        this.listeners = List.copyOf(listeners);
        this.snapshot = snapshot;
    }

    /** The options of a table that occurs once; defaults when it was not given. */
    public OptionValues options(String section) {
        OptionValues values = options.get(section);
        return values == null ? new OptionValues(section) : values;
    }

    /** Where clients connect; the one of {@code server.listen} first. */
    public List<Listener> listeners() {
        return listeners;
    }

    /** The snapshot that new exchanges use. */
    public Snapshot snapshot() {
        return snapshot;
    }

    /**
     * Begins an exchange on the current snapshot. Looks twice: a swap in between could otherwise find
     * the old snapshot unused and close its filters under the exchange.
     */
    public Snapshot enter() {
        return enter(current);
    }

    /** As {@link #enter()}; the supplier lets a test swap between the two looks. */
    static Snapshot enter(Supplier<Snapshot> current) {
        while (true) {
            Snapshot entered = current.get();
            entered.begin();
            if (entered == current.get()) {
                return entered;
            }
            entered.end();
        }
    }

    /** The tables of a new configuration; what a carrier read at its start stays as it was. */
    public void options(Map<String, OptionValues> newest) {
        options = Map.copyOf(newest);
    }

    /** One volatile write: every exchange sees the old configuration or the new one. */
    public void swap(Snapshot next) {
        snapshot = next;
    }

    public List<Meters> meters() {
        return meters;
    }

    public List<LoopWatch> watches() {
        return watches;
    }

    public List<Pools> pools() {
        return pools;
    }

    /** Gauges that only the carrier can measure, by metric name; set before the admin starts. */
    public Map<String, LongSupplier> gauges() {
        return gauges;
    }

    /** Sets the code that reads certificates again; called by a carrier that serves TLS. */
    public void certificates(Runnable reader) {
        certificates = reader;
    }

    /**
     * Reads certificates again for new connections; refuses invalid files, and keeps the old. By one thread
     * at a time: the one that began with older files must not be the last to end.
     */
    public synchronized void readCertificates() {
        if (certificates != null) {
            certificates.run();
        }
    }

    /** Exchanges that are going on. */
    public AtomicInteger inFlight() {
        return inFlight;
    }

    /** Whether /ready asks balancers to send nothing more; until the listener closes all goes on. */
    public boolean isLeaving() {
        return isLeaving;
    }

    public void leave() {
        isLeaving = true;
    }

    /** Whether the listener closes: answers are the last ones of their connections. */
    public boolean isDraining() {
        return isDraining;
    }

    public void drain() {
        isLeaving = true;
        isDraining = true;
    }
}
