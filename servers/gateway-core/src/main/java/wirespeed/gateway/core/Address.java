// One address of an origin, or one endpoint that its name leads to, with its health and its load.
package wirespeed.gateway.core;

import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.LongAdder;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Outlives snapshots: a new configuration whose origin of the same name has the same address takes
 * this object over, so that health, load and pooled connections survive a change. Another origin that
 * names it has an object of its own: weight, reserve, checks and limits are said for each. Counters
 * are written by all loops; they are touched a few times a request and read racily by balancers.
 */
public final class Address {
    /** An operator's setting for an address. */
    public enum Administration { UP, DOWN, DRAIN }

    /**
     * Where a name leads.
     *
     * @param literal address as text
     * @param weight share relative to the other endpoints of the name
     * @param isReserve whether it is used only when no other endpoint is
     */
    public record Endpoint(String literal, int port, int weight, boolean isReserve) {
    }

    /** The form of the names of services (RFC 2782). */
    private static final Pattern SERVICE = Pattern.compile("_[A-Za-z0-9-]+\\._(?:tcp|udp)\\.([^:]+)");
    /** A service as a registry knows it; a port would be a number. */
    private static final Pattern REGISTERED = Pattern.compile("(consul|eureka|file):([A-Za-z][A-Za-z0-9._-]*)");
    /** More endpoints of a name than this are forgotten when they leave it, with their health. */
    private static final int KNOWN_MAX = 256;

    private final String host;
    private final int port;
    private final String id;
    /** The domain part of a service name, or its name in a registry; null for other names. */
    private final String domain;
    private final String registry;
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
        Matcher registered = REGISTERED.matcher(host);
        Matcher service = SERVICE.matcher(host);
        this.registry = registered.matches() ? registered.group(1) : null;
        this.domain = registry != null ? registered.group(2)
                : service.matches() ? service.group(1) : null;
        this.id = domain != null ? host
                : (host.indexOf(':') >= 0 ? "[" + host + "]" : host) + ":" + port;
        this.configured = configured == null ? this : configured;
        this.endpoints = new Address[] {this};
    }

    /** As {@link #leadTo}, with the port of this address and equal shares. */
    public boolean lead(Collection<String> literals, long nowMillis) {
        return leadTo(literals.stream().map(one -> new Endpoint(one, port, 1, false)).toList(), nowMillis);
    }

    /**
     * Sets where the name leads. Each literal address is an endpoint with a breaker, checks, load and
     * connections of its own; weight, reserve and state of the name hold for each of them.
     *
     * @param wanted none when it leads nowhere, or is unknown
     * @param nowMillis on the clock of the exchanges
     * @return whether it led elsewhere before
     */
    public synchronized boolean leadTo(Collection<Endpoint> wanted, long nowMillis) {
        Set<String> now = new TreeSet<>();
        for (Address one : endpoints) {
            if (one != this) {
                now.add(one.id);
            }
        }
        Map<String, Address> next = new TreeMap<>();
        for (Endpoint endpoint : wanted) {
            Address fresh = new Address(endpoint.literal(), endpoint.port(), this);
            Address one = known.computeIfAbsent(fresh.id, first -> fresh);
            one.weight = endpoint.weight();
            one.isBackup = endpoint.isReserve();
            next.put(one.id, one);
            if (!now.isEmpty() && !now.contains(one.id)) {
                // It has no caches and no connections yet: its share comes slowly.
                one.healthyMillis = nowMillis;
            }
        }
        if (next.keySet().equals(now)) {
            return false;
        }
        if (known.size() > KNOWN_MAX) {
            known.keySet().retainAll(next.keySet());
        }
        endpoints = next.isEmpty() ? new Address[] {this} : next.values().toArray(Address[]::new);
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

    /** Reads {@code host:port}, or the name of a service; refuses everything else with a sentence. */
    public static Address parse(String text) {
        if (SERVICE.matcher(text).matches() || REGISTERED.matcher(text).matches()) {
            return new Address(text, 0);
        }
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

    /** Whether this is the name of a service, whose endpoints have ports of their own. */
    public boolean isService() {
        return domain != null;
    }

    /** Where this service is registered: "consul", "eureka" or "file"; null for a service of DNS. */
    public String registry() {
        return registry;
    }

    /** The host as it is configured, or the domain of a service: what certificates are named for. */
    public String name() {
        return configured.isService() ? configured.domain : configured.host;
    }

    /** {@code name:port} for Host; the domain of a service. */
    public String authority() {
        return configured.isService() ? configured.domain : configured.id;
    }

    /** The address of the configuration that led here. */
    public Address configured() {
        return configured;
    }

    public int port() {
        return port;
    }

    /** {@code host:port}, or the name of a service. */
    public String id() {
        return id;
    }

    public int weight() {
        return configured == this ? weight : configured.weight * weight;
    }

    public void weight(int weight) {
        if (weight < 1 || weight > 1000) {
            throw new IllegalArgumentException("weight " + weight + " is out of range (1 to 1000)");
        }
        this.weight = weight;
    }

    /** Used only when no other address is. */
    public boolean isBackup() {
        return configured.isBackup || isBackup;
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

    /** The result of the last active checks; true while nothing is checked. */
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
        return isWhole() && administration() == Administration.UP && isChecked
                && breaker.isUsable(nowMillis);
    }

    /** Whether a client that is bound to this address may still come here. */
    public boolean servesBound(long nowMillis) {
        return isWhole() && administration() != Administration.DOWN && isChecked
                && breaker.isUsable(nowMillis);
    }

    /** False for a service whose endpoints are not known: their ports are not known either. */
    boolean isWhole() {
        return !isService();
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
