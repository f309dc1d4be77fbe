// One attempt at one address: request out, response in.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.SocketTimeoutException;
import wirespeed.gateway.core.Loss;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Attempts;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Forwarding;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.core.Origin;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Response;

/** Ends by {@link #complete} or {@link #abandon}; the second of two calls does nothing. */
final class Call {
    private static final int INTERIM_MAX = 8;
    /** "1", CRLF, one byte. */
    private static final int CHUNK_BYTES_MIN = 4;
    private static final int REQUEST_TIMEOUT = 408;
    /** For a response that is here already: TLS does not show it before it is read. */
    private static final long EARLY_NANOS = 100_000_000;

    private final Plant plant;
    private final Context context;
    private final Address address;
    private final RequestBody requestBody;
    private final Scratch scratch;
    private OriginPool.Lease lease;
    private InputStream in;
    private Response response;
    private Headers trailers;
    private boolean isRequestSent;
    private boolean isCounted;
    /** Since when there is a place for the connection; 0 before that. */
    private long connectNanos;
    private long askedNanos;
    private final long deadlineNanos;

    /**
     * Not asked yet.
     *
     * @param deadlineNanos of the exchange, as System.nanoTime
     */
    Call(Plant plant, Context context, Address address, RequestBody requestBody,
            Scratch scratch, long deadlineNanos) {
        this.deadlineNanos = deadlineNanos;
        this.plant = plant;
        this.context = context;
        this.address = address;
        this.requestBody = requestBody;
        this.scratch = scratch;
    }

    /** The head of the origin's final response. */
    Response ask(boolean needsFresh) throws OriginFailure, ClientFailure, OriginPool.Full {
        Origin origin = context.origin();
        isCounted = true;
        address.inFlight().incrementAndGet();
        askedNanos = System.nanoTime();
        try {
            lease = lease(origin, needsFresh);
            askedNanos = System.nanoTime();
            send();
            if (response == null) {
                long wait = context.responseMillis() * 1_000_000L;
                response = readFinal(Math.min(deadlineNanos, System.nanoTime() + wait));
            }
            response.answers(context.request().method());
            return response;
        } catch (ClientFailure client) {
            abandon();
            throw client;
        } catch (OriginFailure failed) {
            abandon();
            throw failed;
        } catch (IOException failed) {
            OriginFailure failure = failure(failed);
            abandon();
            throw failure;
        } finally {
            countOrigin();
            if (lease == null) {
                uncount();
            }
        }
    }

    /** Since it was asked; without a connection, since one was asked for. */
    long tookNanos() {
        return System.nanoTime() - askedNanos;
    }

    /** The wait for a place in the pool is the gateway's own. */
    private void countOrigin() {
        context.originNanos(connectNanos == 0 ? 0 : System.nanoTime() - connectNanos);
    }

    private OriginPool.Lease lease(Origin origin, boolean needsFresh) throws OriginFailure, OriginPool.Full {
        try {
            return plant.pool().lease(origin, address, needsFresh, deadlineNanos,
                    () -> connectNanos = System.nanoTime());
        } catch (OriginFailure failed) {
            if (System.nanoTime() < deadlineNanos) {
                throw failed;
            }
            throw new OriginFailure(Category.ORIGIN_TIMEOUT, isFair(connectNanos) ? failed.loss() : Loss.UNFINISHED,
                    failed.getMessage(), failed.getCause());
        }
    }

    /** Since when the origin has, or could have, the whole request. */
    private long wholeNanos() {
        return Math.max(askedNanos, requestBody.readyNanos());
    }

    /** For how long the origin has had the whole request; 0 while it has not. */
    long waitedNanos() {
        return requestBody.isReady() ? System.nanoTime() - wholeNanos() : 0;
    }

    /** Whether the exchange is over before this address has had a fair part of its time. */
    private boolean isAskedLate() {
        return System.nanoTime() >= deadlineNanos && !(requestBody.isReady() && isFair(wholeNanos()));
    }

    /** Whether the end of the exchange speaks against an address that is waited for since then. */
    private boolean isFair(long sinceNanos) {
        return Attempts.hadTime(deadlineNanos - sinceNanos, deadlineNanos - context.startNanos());
    }

    private Loss unanswered() {
        return lease.connection.hasReadAny() ? Loss.AFTER_ANSWER : Loss.BEFORE_ANSWER;
    }

    private OriginFailure failure(IOException failed) {
        if (failed instanceof SocketTimeoutException) {
            return new OriginFailure(Category.ORIGIN_TIMEOUT, isAskedLate() ? Loss.UNFINISHED : unanswered(),
                    failed.getMessage(), failed);
        }
        OriginConnection connection = lease.connection;
        Loss loss = connection.hasReadAny() ? Loss.AFTER_ANSWER
                : Attempts.withoutAnswer(connection.wasUsed(), System.nanoTime() - askedNanos,
                connection.connectNanos());
        return new OriginFailure(Category.ORIGIN_RESET, loss, failed.getMessage(), failed);
    }

    private void send() throws IOException {
        OriginConnection connection = lease.connection;
        if (connection.wasUsed() && connection.hasUnasked()) {
            plant.meters().add(Meters.Count.UNSOLICITED, 1);
            // Nothing was sent: most often the origin has closed what it did not use.
            throw new OriginFailure(Category.ORIGIN_RESET, Loss.UNPROCESSED,
                    "the origin sent an unrequested response", null);
        }
        connection.begin();
        Request request = context.request();
        scratch.sink.clear();
        Forwarding.writeRequest(context, address, scratch.sink);
        Framing framing = request.framing();
        connection.sendHead(request.method(), scratch.sink, framing);
        isRequestSent = framing.isEmpty();
        if (!isRequestSent) {
            sendBody(connection);
        }
    }

    private void sendBody(OriginConnection connection) throws IOException {
        Request request = context.request();
        try (SendWatch.Send sending = plant.pool().sends().begin(connection,
                context.responseMillis(), context.startNanos(), deadlineNanos)) {
            try {
                connection.sendBody(request.method(), request.framing(),
                        body(connection, sending));
            } catch (ClientFailure client) {
                if (client.status() != REQUEST_TIMEOUT) {
                    throw client;
                }
                response = early(client);
            } catch (IOException broken) {
                // An origin that refuses a body may answer and close before it has read all of it.
                if (!hasAnswer(connection)) {
                    throw sending.isLate() ? late(broken, sending.isStalled()) : broken;
                }
            }
        }
    }

    /** A client may wait for a response that is here, before it sends the rest. */
    private Response early(ClientFailure client) throws ClientFailure {
        try {
            return readFinal(System.nanoTime() + EARLY_NANOS);
        } catch (IOException none) {
            throw client;
        }
    }

    private IOException late(IOException broken, boolean isStalled) {
        if (isStalled) {
            return new OriginFailure(Category.ORIGIN_TIMEOUT, unanswered(),
                    "the origin takes no more of the request", broken);
        }
        IOException late = new SocketTimeoutException("the request was not complete in time");
        late.initCause(broken);
        return late;
    }

    private OriginConnection.BodyWriter body(OriginConnection connection,
            SendWatch.Send sending) {
        RequestBody.Taker origin = new RequestBody.Taker() {
            @Override
            public boolean hasAnswered() throws IOException {
                response = readArrived();
                return response != null;
            }

            @Override
            public void waits(boolean forClient) {
                if (forClient) {
                    sending.awaitClient();
                } else {
                    sending.awaitOrigin();
                }
            }
        };
        return new OriginConnection.BodyWriter() {
            @Override
            public boolean writeTo(OutputStream out) throws IOException {
                isRequestSent = requestBody.writeTo(out, scratch.body, origin);
                return isRequestSent;
            }

            @Override
            public Headers trailers() {
                return requestBody.trailers();
            }
        };
    }

    /** The trailers of the response, which was read to its end; null for none. */
    Headers trailers() {
        return trailers;
    }

    private static boolean hasAnswer(OriginConnection connection) {
        try {
            return connection.hasUnasked();
        } catch (IOException gone) {
            return false;
        }
    }

    /**
     * The final response that has begun to arrive during an upload; null for none. Behind an interim response the origin
     * still waits for the rest.
     */
    private Response readArrived() throws IOException {
        long deadlineNanos = System.nanoTime() + context.responseMillis() * 1_000_000L;
        for (int i = 0; i <= INTERIM_MAX && lease.connection.hasUnasked(); i++) {
            Response head = readHead(deadlineNanos);
            if (isFinal(head)) {
                return head;
            }
        }
        return null;
    }

    private Response readHead(long deadlineNanos) throws IOException {
        Response head = lease.connection.readHead(context.snapshot().answerLimits(), deadlineNanos);
        if (head.status() == 101) {
            Forwarding.checkSwitch(context, head);
        }
        return head;
    }

    private static boolean isFinal(Response head) {
        return head.status() >= 200 || head.status() == 101;
    }

    /** Skips interim responses, but not endlessly. */
    private Response readFinal(long deadlineNanos) throws IOException {
        for (int i = 0; i <= INTERIM_MAX; i++) {
            Response head = readHead(deadlineNanos);
            if (isFinal(head)) {
                return head;
            }
        }
        throw new Refusal(502, "more than " + INTERIM_MAX + " interim responses");
    }

    /** The connection of a switched exchange. */
    OriginConnection switched() throws IOException {
        lease.connection.readTimeout(context.origin().settings().idleBodyMillis());
        return lease.connection;
    }

    OriginConnection connection() {
        return lease.connection;
    }

    /** Whether the origin has the whole request. */
    boolean isRequestSent() {
        return isRequestSent;
    }

    /** A piece of the body in the scratch buffer; -1 at its end, when the connection is given back. */
    int read() throws OriginFailure {
        try {
            if (in == null) {
                lease.connection.readTimeout(context.origin().settings().idleBodyMillis());
                in = lease.connection.body(response);
            }
            int count = in.read(scratch.body, 0, scratch.body.length);
            if (count < 0) {
                trailers = lease.connection.trailers();
                complete();
            }
            return count;
        } catch (Refusal malformed) {
            throw lost(Category.ORIGIN_MALFORMED, malformed);
        } catch (SocketTimeoutException late) {
            throw lost(Category.ORIGIN_TIMEOUT, late);
        } catch (IOException broken) {
            throw lost(Category.ORIGIN_RESET, broken);
        }
    }

    /** The response ends here; afterwards the connection is no longer used. */
    OriginFailure lost(Category category, Exception cause) {
        countOrigin();
        abandon();
        return new OriginFailure(category, Loss.AFTER_ANSWER, cause.getMessage(),
                cause);
    }

    /** Whether the next read would wait for the origin; fewer bytes than this cannot be a chunk. */
    boolean wouldWait() {
        return lease.connection.buffered() < CHUNK_BYTES_MIN;
    }

    /** The response is complete: the connection may serve others when nothing speaks against it. */
    void complete() {
        if (lease == null) {
            return;
        }
        countOrigin();
        boolean isReusable = isRequestSent && response.keepAlive()
                && response.received().kind() != Framing.Kind.UNTIL_CLOSE
                && lease.connection.buffered() == 0
                && lease.connection.requests()
                < context.origin().settings().connectionRequestsMax();
        if (isReusable) {
            lease.release();
        } else {
            lease.discard();
        }
        uncount();
    }

    /** The response is not wanted; others can use the connection where all of it is here already. */
    void dismiss() {
        try {
            int count = isAllHere() ? 0 : -1;
            while (count >= 0) {
                count = read();
            }
        } catch (OriginFailure unreadable) {
            // Then no other code reads from it either.
        }
        abandon();
    }

    private boolean isAllHere() {
        Framing framing = response.received();
        return lease != null && in == null && (framing.isEmpty()
                || framing.kind() == Framing.Kind.LENGTH
                && framing.length() <= lease.connection.buffered());
    }

    /** Takes no more from the origin. */
    void abandon() {
        if (lease != null) {
            lease.discard();
        }
        uncount();
    }

    private synchronized void uncount() {
        if (isCounted) {
            isCounted = false;
            address.inFlight().decrementAndGet();
        }
    }
}
