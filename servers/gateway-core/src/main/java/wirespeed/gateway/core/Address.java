// One address of an origin, with its health and its load.
package wirespeed.gateway.core;

import java.util.concurrent.atomic.AtomicInteger;

/**
 * Outlives snapshots: a new configuration whose origin of the same name has the same address takes
 * this object over, so that health, load and pooled connections survive a change. Another origin that
 * names it has an object of its own: weight, reserve, checks and limits are said for each. Counters
 * are written by all loops; they are touched a few times a request and read racily by balancers.
 */
public final class Address {
    /** What an operator said about an address. */
    public enum Administration { UP, DOWN, DRAIN }

    private final String host;
    private final int port;
    private final String id;
    private final AtomicInteger inFlight = new AtomicInteger();
    private final AtomicInteger connections = new AtomicInteger();
    private final Breaker breaker = new Breaker();
    private volatile int weight = 1;
    private volatile boolean isBackup;
    private volatile boolean isChecked = true;
    private volatile long healthyMillis = Long.MIN_VALUE / 2;
    private volatile Administration administration = Administration.UP;

    public Address(String host, int port) {
        this.host = host;
        this.port = port;
        this.id = (host.indexOf(':') >= 0 ? "[" + host + "]" : host) + ":" + port;
    }

    /** Reads {@code host:port}; refuses everything else with a sentence. */
    public static Address parse(String text) {
        int colon = text.lastIndexOf(':');
        boolean isBracketed = text.startsWith("[") && colon > 0 && text.charAt(colon - 1) == ']';
        boolean isPlain = colon > 0 && text.indexOf(':') == colon;
        if (!isBracketed && !isPlain) {
            throw new IllegalArgumentException("\"" + text + "\" is no host:port");
        }
        int port;
        try {
            port = Integer.parseInt(text.substring(colon + 1));
        } catch (NumberFormatException notANumber) {
            port = -1;
        }
        if (port < 0 || port > 65535) {
            throw new IllegalArgumentException("\"" + text + "\" has no port between 0 and 65535");
        }
        return new Address(isBracketed ? text.substring(1, colon - 1) : text.substring(0, colon),
                port);
    }

    public String host() {
        return host;
    }

    public int port() {
        return port;
    }

    /** {@code host:port}. */
    public String id() {
        return id;
    }

    public int weight() {
        return weight;
    }

    public void weight(int weight) {
        if (weight < 1 || weight > 1000) {
            throw new IllegalArgumentException("weight " + weight + " is not between 1 and 1000");
        }
        this.weight = weight;
    }

    /** Used only when no other address is. */
    public boolean isBackup() {
        return isBackup;
    }

    public void backup(boolean backup) {
        this.isBackup = backup;
    }

    public Administration administration() {
        return administration;
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
        return administration == Administration.UP && isChecked && breaker.isUsable(nowMillis);
    }

    /** Whether a client that is bound to this address may still come here. */
    public boolean servesBound(long nowMillis) {
        return administration != Administration.DOWN && isChecked && breaker.isUsable(nowMillis);
    }

    public AtomicInteger inFlight() {
        return inFlight;
    }

    public AtomicInteger connections() {
        return connections;
    }

    @Override
    public String toString() {
        return id;
    }
}
