// One address of an origin, or one endpoint that its name leads to, with its health and its load.
package wirespeed.gateway.core;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.LongAdder;

/**
 * Outlives snapshots: a new configuration whose origin of the same name has the same address takes
 * this object over, so that health, load and pooled connections survive a change. Another origin that
 * names it has an object of its own: weight, reserve, checks and limits are said for each. Counters
 * are written by all loops; they are touched a few times a request and read racily by balancers.
 */
public final class Address {
    /** What an operator said about an address. */
    public enum Administration { UP, DOWN, DRAIN }

    /** More endpoints of a name than this are forgotten when they leave it, with their health. */
    private static final int KNOWN_MAX = 256;

    private final String host;
    private final int port;
    private final String id;
    /** The configured address: this one, or the name that led here. */
    private final Address configured;
    /** All endpoints that the name has led to: one that comes back is the same. */
    private final Map<String, Address> known = new LinkedHashMap<>();
    private volatile Address[] endpoints;
    private volatile int moves;
    private final AtomicInteger inFlight = new AtomicInteger();
    private final AtomicInteger connections = new AtomicInteger();
    private final LongAdder answered = new LongAdder();
    private final LongAdder failed = new LongAdder();
    private final Breaker breaker = new Breaker();
    private volatile int weight = 1;
    private volatile boolean isBackup;
    private volatile boolean isChecked = true;
    private volatile long healthyMillis = Long.MIN_VALUE / 2;
    private volatile Administration administration = Administration.UP;

    public Address(String host, int port) {
        this(host, port, null);
    }

    private Address(String host, int port, Address configured) {
        this.host = host;
        this.port = port;
        this.id = (host.indexOf(':') >= 0 ? "[" + host + "]" : host) + ":" + port;
        this.configured = configured == null ? this : configured;
        this.endpoints = new Address[] {this};
    }

    /**
     * Sets where the name leads. Each literal address is an endpoint with a breaker, checks, load and
     * connections of its own; weight, reserve and state are those of the name.
     *
     * @param literals none when it leads nowhere, or is unknown
     * @param nowMillis on the clock of the exchanges
     * @return whether it led elsewhere before
     */
    public synchronized boolean lead(Collection<String> literals, long nowMillis) {
        Set<String> next = new TreeSet<>(literals);
        Set<String> now = new TreeSet<>();
        for (Address one : endpoints) {
            if (one != this) {
                now.add(one.host);
            }
        }
        if (next.equals(now)) {
            return false;
        }
        List<Address> all = new ArrayList<>();
        for (String literal : next) {
            Address one = known.computeIfAbsent(literal, fresh -> new Address(fresh, port, this));
            if (!now.isEmpty() && !now.contains(literal)) {
                // It has no caches and no connections yet: its share comes slowly.
                one.healthyMillis = nowMillis;
            }
            all.add(one);
        }
        if (known.size() > KNOWN_MAX) {
            known.keySet().retainAll(next);
        }
        endpoints = all.isEmpty() ? new Address[] {this} : all.toArray(Address[]::new);
        moves++;
        return true;
    }

    /** Where the name leads; this address itself while that is not known, and for a literal. */
    public List<Address> endpoints() {
        return List.of(endpoints);
    }

    /** How often {@link #endpoints} has changed. */
    int moves() {
        return moves;
    }

    /** The new address of an origin that serves already gets its share slowly. */
    public void startSlowly(long nowMillis) {
        healthyMillis = nowMillis;
    }

    /** Reads {@code host:port}; refuses everything else with a sentence. */
    public static Address parse(String text) {
        int colon = text.lastIndexOf(':');
        boolean isBracketed = text.startsWith("[") && colon > 0 && text.charAt(colon - 1) == ']';
        boolean isPlain = colon > 0 && text.indexOf(':') == colon;
        if (!isBracketed && !isPlain) {
            throw new IllegalArgumentException("\"" + text + "\" is not host:port");
        }
        int port;
        try {
            port = Integer.parseInt(text.substring(colon + 1));
        } catch (NumberFormatException notANumber) {
            port = -1;
        }
        if (port < 0 || port > 65535) {
            throw new IllegalArgumentException("\"" + text + "\": port out of range (0 to 65535)");
        }
        return new Address(isBracketed ? text.substring(1, colon - 1) : text.substring(0, colon),
                port);
    }

    /** What is connected to: a literal address where the name's are known. */
    public String host() {
        return host;
    }

    /** The host as it is configured: what certificates and virtual hosts are named for. */
    public String name() {
        return configured.host;
    }

    /** {@code name:port}, for Host. */
    public String authority() {
        return configured.id;
    }

    public int port() {
        return port;
    }

    /** {@code host:port}. */
    public String id() {
        return id;
    }

    public int weight() {
        return configured.weight;
    }

    public void weight(int weight) {
        if (weight < 1 || weight > 1000) {
            throw new IllegalArgumentException("weight " + weight + " is out of range (1 to 1000)");
        }
        this.weight = weight;
    }

    /** Used only when no other address is. */
    public boolean isBackup() {
        return configured.isBackup;
    }

    public void backup(boolean backup) {
        this.isBackup = backup;
    }

    public Administration administration() {
        return configured.administration;
    }

    public void administration(Administration administration) {
        this.administration = administration;
    }

    /** What the last active checks found; true while nothing is checked. */
    public boolean isChecked() {
        return isChecked;
    }

    public void checked(boolean isHealthy) {
        if (isHealthy && !isChecked) {
            healthyMillis = System.nanoTime() / 1_000_000;
        }
        this.isChecked = isHealthy;
    }

    /** When it last came back into use, on the clock of the exchanges. */
    long returnedMillis() {
        return Math.max(healthyMillis, breaker.closedMillis());
    }

    public Breaker breaker() {
        return breaker;
    }

    /** Whether new exchanges may be sent here; not free of effects: a breaker hands out a probe. */
    public boolean isUsable(long nowMillis) {
        return administration() == Administration.UP && isChecked && breaker.isUsable(nowMillis);
    }

    /** Whether a client that is bound to this address may still come here. */
    public boolean servesBound(long nowMillis) {
        return administration() != Administration.DOWN && isChecked && breaker.isUsable(nowMillis);
    }

    public AtomicInteger inFlight() {
        return inFlight;
    }

    public AtomicInteger connections() {
        return connections;
    }

    /** An attempt brought a good answer. */
    public void succeeded(long askedMillis) {
        answered.increment();
        breaker.succeeded(askedMillis);
    }

    /**
     * No connection, a reset, a time-out, a malformed or an unwanted answer.
     *
     * @param askedMillis when the attempt began, on the clock of the exchanges
     */
    public void failed(long askedMillis, long nowMillis) {
        failed.increment();
        breaker.failed(askedMillis, nowMillis);
    }

    /** How many attempts brought a good answer. */
    public long answers() {
        return answered.sum();
    }

    /** How many attempts failed by its fault. */
    public long failures() {
        return failed.sum();
    }

    @Override
    public String toString() {
        return id;
    }
}
