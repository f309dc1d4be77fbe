// One exchange: a request, what was decided about it, and its response.
package wirespeed.gateway.core;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Never pooled: a late completion of an old exchange must not write into another request. Used by
 * one thread at a time.
 */
public final class Context {
    private final Snapshot snapshot;
    private final Request request;
    private final long startNanos;
    private Response response;
    private Route route;
    private Origin origin;
    private Address address;
    private Category category = Category.OK;
    private Throwable failure;
    private BodyTap tap;
    private String id;
    private int attempts;
    private long originNanos;
    private long earlierNanos;
    private long responseBytes;
    private Map<String, Object> attributes;

    public Context(Snapshot snapshot, Request request, long startNanos) {
        this.snapshot = snapshot;
        this.request = request;
        this.startNanos = startNanos;
    }

    /** The configuration on which this exchange began and will end. */
    public Snapshot snapshot() {
        return snapshot;
    }

    public Request request() {
        return request;
    }

    /** The response; null until there is one. */
    public Response response() {
        return response;
    }

    public void response(Response response) {
        this.response = response;
    }

    /** System.nanoTime when the request head was complete. */
    public long startNanos() {
        return startNanos;
    }

    /** The chosen route; null before the phase route and when none matched. */
    public Route route() {
        return route;
    }

    public void route(Route route) {
        this.route = route;
        this.origin = route == null ? null : route.origin(request, ThreadLocalRandom.current());
    }

    /** The chosen origin; a route filter may choose another one. */
    public Origin origin() {
        return origin;
    }

    public void origin(Origin origin) {
        this.origin = origin;
    }

    /** The address that answers, or was asked last; null before one was asked. */
    public Address address() {
        return address;
    }

    /** Counts an attempt at this address. */
    public void attempt(Address address) {
        this.address = address;
        earlierNanos = originNanos;
        attempts++;
    }

    /** Of several that were asked, this one counts; no attempt of its own. */
    public void address(Address address) {
        this.address = address;
    }

    /** How many addresses were asked so far. */
    public int attempts() {
        return attempts;
    }

    /** How long a request body may be, by its route if that says so; negative for any length. */
    public long bodyBytesMax() {
        long own = route == null ? 0 : route.bounds().bodyBytesMax();
        return own > 0 ? own : snapshot.limits().bodyBytesMax();
    }

    /** How long an attempt may take to the response head, by its route or its origin. */
    public int responseMillis() {
        int own = route == null ? 0 : route.bounds().responseMillis();
        return own > 0 ? own : origin.settings().responseMillis();
    }

    public Category category() {
        return category;
    }

    public void category(Category category) {
        this.category = category;
    }

    /** The exception that failed the exchange, for error filters and the log; null for none. */
    public Throwable failure() {
        return failure;
    }

    public void failure(Throwable failure) {
        this.failure = failure;
    }

    /**
     * Nanoseconds for which an address was connected to or asked, to the end of its response or to its loss, of all
     * attempts; not the wait for a connection that other requests use.
     */
    public long originNanos() {
        return originNanos;
    }

    /** Of the present attempt, so far. */
    public void originNanos(long nanos) {
        originNanos = earlierNanos + nanos;
    }

    /** Body bytes sent to the client so far. */
    public long responseBytes() {
        return responseBytes;
    }

    public void countResponseBytes(long count) {
        responseBytes += count;
    }

    /** Sees the response body on its way to the client; null when none is set. */
    public BodyTap tap() {
        return tap;
    }

    /**
     * Sets who sees the response body; one a response, set in the phase post. It does not see a body
     * that is in memory then: {@link Response#body()}.
     */
    public void tap(BodyTap tap) {
        this.tap = tap;
    }

    /** A random id of this exchange, made when first asked for. */
    public String id() {
        if (id == null) {
            id = Long.toHexString(ThreadLocalRandom.current().nextLong() | Long.MIN_VALUE);
        }
        return id;
    }

    /** Something that a filter left for a later one. */
    public Object attribute(String name) {
        return attributes == null ? null : attributes.get(name);
    }

    public void attribute(String name, Object value) {
        if (attributes == null) {
            attributes = new HashMap<>(4);
        }
        attributes.put(name, value);
    }
}
