// The life of one request on its thread: filters, address, attempts, response.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.io.InputStream;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Attempts;
import wirespeed.gateway.core.BodyTap;
import wirespeed.gateway.core.BodyTransform;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Forwarding;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Loss;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.core.Route;
import wirespeed.gateway.core.Snapshot;
import wirespeed.gateway.core.Step;
import wirespeed.gateway.core.StrippedPrefix;
import wirespeed.gateway.core.Trailers;
import wirespeed.gateway.runtime.ThrottledLog;

/** Everything blocks, so the order of the text is the order of events. */
final class Exchange {
    private final Plant plant;
    private final Snapshot snapshot;
    private final Request request;
    private final Context context;
    private final RequestBody body;
    private final Reply reply;
    private final Scratch scratch;
    private long deadlineNanos;
    private Call call;
    /** The body of a response that a filter reads whole; null for most. */
    private HeldBytes collected;
    /** Whether a permit to switch protocols is this exchange's. */
    private boolean hasTunnel;
    private boolean mustClose;
    private boolean isPostRun;
    private boolean isTapComplete;
    private boolean isSettled;

    Exchange(Plant plant, Snapshot snapshot, Request request, InputStream in, Reply reply,
            Scratch scratch) {
        this.plant = plant;
        this.snapshot = snapshot;
        this.request = request;
        this.reply = reply;
        this.scratch = scratch;
        long now = System.nanoTime();
        this.context = new Context(snapshot, request, now);
        this.body = new RequestBody(context, in, plant, reply::requestTrailers);
        this.deadlineNanos = now + plant.timeouts().exchangeMillis() * 1_000_000L;
    }

    /** To be called once; when it returns, the client has its response or is cut off. */
    void run() {
        plant.meters().add(Meters.Count.REQUESTS_BEGUN, 1);
        int inFlight = plant.gateway().inFlight().incrementAndGet();
        try {
            serve(inFlight);
        } catch (ClientFailure gone) {
            context.category(Category.CLIENT_GONE);
            context.failure(gone);
            reply.cut();
        } finally {
            over();
        }
    }

    private void serve(int inFlight) throws ClientFailure {
        try {
            if (inFlight > plant.inFlightMax()) {
                throw Failed.later(Category.SHED, "too many exchanges");
            }
            respond();
        } catch (Failed failed) {
            fail(failed);
        } catch (ClientFailure broken) {
            if (broken.status() == 0 || reply.isCommitted()) {
                throw broken;
            }
            mustClose = true;
            fail(Failed.of(broken.status(), Category.CLIENT_BAD, broken));
            if (broken.status() == 408) {
                reply.leaveRest();
            }
        }
    }

    private void respond() throws Failed, ClientFailure {
        Response own = decide();
        if (own != null) {
            context.response(own);
        } else {
            askOrigin();
            body.forget();
            if (context.response().status() == 101) {
                tunnel();
                return;
            }
            collectResponse();
        }
        post();
        send();
    }

    private void post() throws Failed {
        isPostRun = true;
        Response other = filter(Phase.POST);
        if (other != null) {
            context.response(other);
        }
    }

    /** The gateway's own response; null when the origin is to be asked. */
    private Response decide() throws Failed, ClientFailure {
        try {
            snapshot.accept(request);
        } catch (Refusal refusal) {
            mustClose = true;
            throw Failed.of(refusal.status(), Category.CLIENT_BAD, refusal);
        }
        if (request.path().equals("*")) {
            Response options = Response.of(204, ByteBuffer.allocate(0));
            options.headers().add("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
            return options;
        }
        int collectMax = request.framing().isEmpty() ? 0
                : snapshot.chain().requestBodyBytesMax(context);
        if (collectMax > 0) {
            collectRequest(collectMax);
        }
        Response own = filter(Phase.PRE);
        if (own != null) {
            return own;
        }
        Route route = snapshot.routes().find(request);
        if (route == null) {
            throw Failed.of(404, Category.NO_ROUTE, null);
        }
        context.route(route);
        try {
            route.checkPath(request);
        } catch (Refusal refusal) {
            throw Failed.of(refusal.status(), Category.CLIENT_BAD, refusal);
        }
        bound(route.bounds());
        return filter(Phase.ROUTE);
    }

    private void collectRequest(int max) throws Failed, ClientFailure {
        try {
            body.collect(max, scratch.body);
        } catch (Failed shed) {
            mustClose = true;
            throw shed;
        }
    }

    private void bound(Route.Bounds bounds) throws Failed {
        if (bounds.exchangeMillis() > 0) {
            deadlineNanos = context.startNanos() + bounds.exchangeMillis() * 1_000_000L;
        }
        long max = context.bodyBytesMax();
        if (max >= 0 && request.framing().length() > max) {
            mustClose = true;
            throw Failed.of(413, Category.CLIENT_BAD, new Refusal(413,
                    "request body is longer than " + max + " bytes"));
        }
    }

    private Response filter(Phase phase) throws Failed {
        Step step = Turn.run(phase, context, deadlineNanos);
        if (step.isFailure()) {
            throw filterFailed(step);
        }
        return step.response();
    }

    private static Failed filterFailed(Step step) {
        return Failed.of(step.status(), step.status() >= 500 ? Category.FILTER_ERROR
                : Category.LIMIT, step.cause());
    }

    /** Asks addresses until one answers; afterwards the context has the response's head. */
    private void askOrigin() throws Failed, ClientFailure {
        if (request.upgrade() != null && context.route().allowsUpgrade()) {
            hasTunnel = plant.tunnels().tryAcquire();
            if (!hasTunnel) {
                throw Failed.later(Category.LIMIT, "too many connections have switched protocols");
            }
        }
        snapshot.forwarding().prepare(request);
        StrippedPrefix.tell(context);
        context.origin().countRequest();
        Address address = usable(null);
        boolean needsFresh = false;
        while (true) {
            long askedMillis = nowMillis();
            try {
                ask(address, needsFresh);
                Address other = insteadOf(address);
                if (other == null) {
                    return;
                }
                call.dismiss();
                plant.meters().add(Meters.Count.RETRIES, 1);
                address = other;
                needsFresh = false;
            } catch (OriginFailure failure) {
                Loss loss = Attempts.judged(context, failure.loss());
                boolean isNoFault = Attempts.isNoFault(context, loss);
                ThrottledLog.failed(context, failure.category(), failure.getCause());
                if (!isNoFault) {
                    address.failed(askedMillis, nowMillis());
                }
                if (!mayRetry(failure.category(), loss)) {
                    throw originFailed(failure);
                }
                plant.meters().add(Meters.Count.RETRIES, 1);
                address = usable(isNoFault ? null : address);
                needsFresh = true;
            }
        }
    }

    private Address usable(Address not) throws Failed {
        Address address = context.origin().choose(context, not, nowMillis());
        if (address == null) {
            throw Failed.later(Category.NO_ADDRESS, "no address of the origin is usable");
        }
        return address;
    }

    private static long nowMillis() {
        return System.nanoTime() / 1_000_000;
    }

    private void ask(Address address, boolean needsFresh) throws Failed, ClientFailure,
            OriginFailure {
        context.attempt(address);
        call = new Call(plant, context, address, body, scratch);
        try {
            context.response(call.ask(needsFresh, deadlineNanos));
        } catch (OriginPool.Full full) {
            throw Failed.later(Category.LIMIT, full.getMessage());
        } catch (Refusal malformed) {
            call.abandon();
            throw new OriginFailure(Category.ORIGIN_MALFORMED, Loss.AFTER_ANSWER,
                    malformed.getMessage(), malformed);
        }
        context.origin().judge(address, context.response().status(),
                context.originNanos() / 1_000_000, nowMillis());
        // A final response before the request was sent: the rest of it has nowhere to go.
        mustClose |= !call.isRequestSent();
        StrippedPrefix.restore(context);
        context.origin().settings().persistence().bind(context);
    }

    /** Who is asked for a better answer; null when this one stands. */
    private Address insteadOf(Address answered) {
        boolean isTriedElsewhere = call.isRequestSent() && System.nanoTime() < deadlineNanos
                && Attempts.isTriedElsewhere(context, context.response().status(),
                        body.isReplayable(), nowMillis());
        return isTriedElsewhere ? context.origin().choose(context, answered, nowMillis()) : null;
    }

    private boolean mayRetry(Category category, Loss loss) {
        return System.nanoTime() < deadlineNanos && Attempts.mayFollow(context, loss,
                category == Category.CONNECT, body.isReplayable(), nowMillis());
    }

    private static Failed originFailed(OriginFailure failure) {
        return Failed.of(Attempts.status(failure.category()), failure.category(), failure);
    }

    /** The connections of both sides are the tunnel's when this exchange has ended. */
    private void tunnel() throws ClientFailure {
        Response response = context.response();
        try {
            call.switched();
            reply.tunnel(response, request.upgrade()).connect(call, plant);
            call = null;
            hasTunnel = false;
        } catch (IOException | jakarta.servlet.ServletException failed) {
            throw new ClientFailure(0, "the protocol cannot be switched", failed);
        }
    }

    /** Reads the body into memory when a post filter wants to see it. */
    private void collectResponse() throws Failed {
        Response response = context.response();
        if (response.received().isEmpty()) {
            return;
        }
        int max = snapshot.chain().responseBodyBytesMax(context);
        if (max == 0) {
            return;
        }
        collected = new HeldBytes(plant.budget(), response.received());
        try {
            for (int count = call.read(); count >= 0; count = call.read()) {
                collected.add(scratch.body, count);
                checkCollected(max);
            }
        } catch (OriginFailure failure) {
            throw originFailed(failure);
        }
        plant.meters().add(Meters.Count.BODIES_COLLECTED, 1);
        response.body(collected.whole());
    }

    private void checkCollected(int max) throws Failed {
        boolean isTooLong = collected.length() > max;
        if (isTooLong || plant.budget().isUsedUp()) {
            // Before the client learns of it, who may ask again.
            collected.release();
            throw Failed.of(isTooLong ? 502 : 503, Category.LIMIT, new IllegalStateException(isTooLong
                    ? "response body is longer than the " + max + " bytes a filter reads"
                    : "bodies that wait take too much memory"));
        }
    }

    /** Sends what the filters agreed on. */
    private void send() throws Failed, ClientFailure {
        Response response = context.response();
        try {
            response.transformBody();
        } catch (RuntimeException | Error failed) {
            response.endTransform();
            throw Failed.of(500, Category.FILTER_ERROR, failed);
        }
        Framing framing = response.framingFor(request);
        reply.head(response, request.isHeadAsked(), framing, keepAlive());
        if (response.body() != null) {
            if (call != null) {
                // Bytes that the origin still sends do not belong to this response.
                call.dismiss();
            }
            if (!framing.isEmpty()) {
                sendWhole(response.body());
            }
        } else if (!response.received().isEmpty() && framing.isEmpty()) {
            // A body that the client cannot have, because of what it asked or of a filter's status.
            call.dismiss();
        } else if (framing.isEmpty()) {
            call.complete();
            isTapComplete = true;
        } else {
            if (request.takesTrailers() && framing.isChunked()) {
                Call streamed = call;
                reply.trailers(() -> Trailers.fit(streamed.trailers()));
            }
            stream();
        }
        if (request.isHeadAsked() || request.takesTrailers()) {
            // Otherwise Tomcat would count the bytes, also the ones that were not written.
            reply.flush();
        }
        settle();
        reply.end();
    }

    private boolean keepAlive() {
        return request.keepAlive() && !mustClose && !plant.gateway().isDraining();
    }

    private void sendWhole(ByteBuffer whole) throws ClientFailure {
        context.countResponseBytes(whole.remaining());
        while (whole.hasRemaining()) {
            int count = Math.min(scratch.body.length, whole.remaining());
            whole.get(scratch.body, 0, count);
            reply.write(scratch.body, count);
        }
    }

    /** A body that a filter has changed is not the fault of the origin. */
    private void stream() throws Failed, ClientFailure {
        try {
            pass();
        } catch (RuntimeException | Error failed) {
            call.abandon();
            context.response().endTransform();
            if (!reply.isCommitted()) {
                reply.reset();
                throw Failed.of(500, Category.FILTER_ERROR, failed);
            }
            cut(Category.FILTER_ERROR, failed);
        }
    }

    private void pass() throws Failed, ClientFailure {
        BodyTap tap = context.tap();
        BodyTransform transform = context.response().transform();
        Framing received = context.response().received();
        long left = received.kind() == Framing.Kind.LENGTH ? received.length() : Long.MAX_VALUE;
        int count = read();
        while (count >= 0) {
            context.countResponseBytes(count);
            plant.meters().add(Meters.Count.RESPONSE_BODY_BYTES, count);
            if (tap != null) {
                tap.chunk(ByteBuffer.wrap(scratch.body, 0, count).asReadOnlyBuffer());
            }
            pass(transform == null ? null
                    : transform.chunk(ByteBuffer.wrap(scratch.body, 0, count)), count);
            left -= count;
            // The end leaves after the exchange was settled: who has the answer finds it stored.
            if (left > 0 && call.wouldWait()) {
                reply.flush();
            }
            count = read();
        }
        if (transform != null && context.category() == Category.OK) {
            pass(transform.end(), 0);
        }
        isTapComplete = true;
    }

    /**
     * Sends a piece.
     *
     * @param changed in place of what was read; null for that itself
     */
    private void pass(ByteBuffer changed, int count) throws ClientFailure {
        if (changed == null) {
            reply.write(scratch.body, count);
            return;
        }
        byte[] bytes = new byte[changed.remaining()];
        changed.get(bytes);
        reply.write(bytes, bytes.length);
    }

    /** A piece of the origin's body; when that fails the client gets an error, or is cut off. */
    private int read() throws Failed, ClientFailure {
        try {
            if (System.nanoTime() > deadlineNanos) {
                throw new OriginFailure(Category.ORIGIN_TIMEOUT,
                        Loss.AFTER_ANSWER, "the exchange took too long",
                        new SocketTimeoutException());
            }
            return call.read();
        } catch (OriginFailure failure) {
            if (!reply.isCommitted()) {
                reply.reset();
                throw originFailed(failure);
            }
            cut(failure.category(), failure);
            return -1;
        }
    }

    private void cut(Category category, Throwable cause) {
        plant.meters().add(Meters.Count.LATE_FAILURES, 1);
        fails(category, cause);
        reply.cut();
    }

    private void fails(Category category, Throwable cause) {
        context.category(category);
        context.failure(cause);
        if (category == Category.FILTER_ERROR) {
            ThrottledLog.failed(context, category, cause);
        }
    }

    /** The phase error runs once, while no head was sent. */
    private void fail(Failed failed) throws ClientFailure {
        if (call != null) {
            call.abandon();
        }
        fails(failed.category(), failed.getCause());
        context.response(failed.response());
        Step step = Turn.run(Phase.ERROR, context, deadlineNanos);
        if (step.isFailure()) {
            ThrottledLog.failed(context, Category.FILTER_ERROR, step.cause());
        }
        if (step.response() != null) {
            context.response(step.response());
            if (!isPostRun) {
                try {
                    post();
                } catch (Failed again) {
                    fail(again);
                    return;
                }
            }
        }
        Response response = context.response();
        response.transformBody();
        reply.head(response, request.isHeadAsked(), response.framingFor(request), keepAlive());
        if (response.body() != null && !response.framingFor(request).isEmpty()) {
            sendWhole(response.body());
        }
        settle();
        reply.end();
    }

    /** Counts and logs once, before the last byte leaves: who has the answer can see the count. */
    private void settle() {
        if (isSettled) {
            return;
        }
        isSettled = true;
        if (context.response() != null) {
            context.response().endTransform();
        }
        if (context.tap() != null) {
            context.tap().end(isTapComplete && context.category() == Category.OK);
        }
        long now = System.nanoTime();
        int status = reply.status();
        plant.meters().ended(context, status, now);
        snapshot.chain().finished(context, status, now);
    }

    private void over() {
        if (call != null) {
            call.abandon();
        }
        settle();
        body.over();
        if (hasTunnel) {
            plant.tunnels().release();
        }
        if (collected != null) {
            collected.release();
        }
        plant.gateway().inFlight().decrementAndGet();
    }
}
