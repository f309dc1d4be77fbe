// One attempt of an exchange at one address: it waits for a connection, is sent, and is answered.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Loss;
import wirespeed.gateway.core.Response;

/** The state of an exchange for pools and origin streams; two may be under way (hedging). */
final class Attempt {
    final Context context;
    final Client client;
    private final Exchange exchange;
    private final Address address;
    private final long askedNanos;
    private Pool waitingIn;
    private OriginConnection promised;
    private OriginStream stream;
    private long sentNanos;
    private boolean isSent;
    private boolean isStalled;
    private boolean hasTime;
    private boolean isCounted = true;
    private boolean isAbandoned;

    Attempt(Exchange exchange, Address address) {
        this.exchange = exchange;
        this.context = exchange.context;
        this.client = exchange.client;
        this.address = address;
        this.askedNanos = exchange.loop.nowNanos();
        address.inFlight().incrementAndGet();
    }

    void start(boolean needsFresh) {
        waitingIn = exchange.loop.pool(context.origin(), address);
        waitingIn.acquire(this, needsFresh);
    }

    Address address() {
        return address;
    }

    /** The stream that carries it; null before there is a connection, and when it is over. */
    OriginStream stream() {
        return stream;
    }

    long tookNanos() {
        return exchange.loop.nowNanos() - askedNanos;
    }

    /** For how long the origin has had the whole request; 0 while it has not. */
    long waitedNanos() {
        return isSent ? exchange.loop.nowNanos() - sentNanos : 0;
    }

    /** Whether the end of the exchange speaks against the address, which is asked or connected to. */
    boolean hasTime() {
        return hasTime && (stream != null || promised != null);
    }

    /** The request is complete. */
    void sendEnd(OriginStream to, Headers trailers) {
        isSent = true;
        sentNanos = exchange.loop.nowNanos();
        hasTime = client.hasFairTime();
        to.sendEnd(trailers);
    }

    /** The origin has to take something before the rest of the request goes on. */
    void stalled() {
        if (!isStalled) {
            isStalled = true;
            hasTime = client.hasFairTime();
        }
        stream.stalled();
    }

    /** A connection is on its way, for this attempt first. */
    void promised(OriginConnection connection) {
        promised = connection;
        exchange.begun();
        hasTime = client.hasFairTime();
    }

    /** The pool has a connection. */
    void connected(OriginStream connection) {
        endWaiting();
        exchange.begun();
        hasTime = false;
        stream = connection;
        stream.begin(this);
        exchange.connected(this, connection);
    }

    /** The pool has no connection. */
    void refusedByPool(String reason) {
        end();
        exchange.refusedByPool(this, reason);
    }

    /** No response, or no more of it. */
    void originFailed(Category category, Throwable cause, Loss loss) {
        end();
        if (!isAbandoned) {
            exchange.originFailed(this, category, cause, loss);
        }
    }

    /** The origin says that it takes no head of this size. */
    void tooLarge() {
        end();
        if (!isAbandoned) {
            exchange.tooLarge(this);
        }
    }

    /** An interim response came. */
    void interim(Response response) {
        exchange.interim(this, response);
    }

    /** A final response head came. */
    void responseHead(Response response) {
        exchange.responseHead(this, response);
    }

    /** A piece of the response's body; taken over. */
    void responseBody(ByteBuf slice) {
        exchange.responseBody(slice);
    }

    /** The response is complete; the connection is no longer ours. */
    void responseEnd(Headers trailers) {
        end();
        exchange.responseEnd(trailers);
    }

    /** The origin can take more of the request body. */
    void originWritable() {
        isStalled = false;
        hasTime &= isSent;
        exchange.originWritable();
    }

    /** The origin speaks another protocol from here on. */
    void switched(Response response) {
        exchange.switched(this, response);
    }

    /** The other side of a switched connection has closed. */
    void tunnelClosed() {
        end();
        exchange.tunnelClosed();
    }

    /** Whether its response is no longer needed. */
    boolean isOver() {
        return isAbandoned || exchange.isOver();
    }

    /** Takes the connection away, which cannot be used again unless its response is complete. */
    void abandon() {
        isAbandoned = true;
        Pool pool = waitingIn;
        OriginConnection mine = promised;
        OriginStream abandoned = stream;
        end();
        if (pool != null) {
            pool.cancel(this, mine);
        }
        if (abandoned != null) {
            abandoned.abandon();
        }
    }

    private void end() {
        endWaiting();
        stream = null;
        if (isCounted) {
            isCounted = false;
            address.inFlight().decrementAndGet();
        }
    }

    private void endWaiting() {
        waitingIn = null;
        promised = null;
    }
}
