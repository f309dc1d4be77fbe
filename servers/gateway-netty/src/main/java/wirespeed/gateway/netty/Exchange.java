// The life of one request: filters, address, attempts, response.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Attempts;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Chain;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Failure;
import wirespeed.gateway.core.Forwarding;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Loss;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.core.Origin;
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

/** Everything here happens on one loop; the client and the origin connection call in. */
final class Exchange extends ExchangeAttempts implements Chain.Done {
    private final Snapshot snapshot;
    private final Request request;
    private final ResponseRelay relay;
    private Phase phase = Phase.PRE;
    private int collectMax;
    private boolean isPrepared;
    private boolean isRunning;
    private boolean isPostRun;
    private boolean isOver;
    private boolean mustClose;
    private boolean isSwitched;

    Exchange(Loop loop, Client client, Request request) {
        super(loop, client, request);
        this.request = request;
        this.snapshot = context.snapshot();
        this.relay = new ResponseRelay(this);
    }

    void start() {
        loop.meters.add(Meters.Count.REQUESTS_BEGUN, 1);
        String shed = loop.shedder.reason();
        loop.gateway.inFlight().incrementAndGet();
        if (shed != null) {
            context.category(Category.SHED);
            answer(retryLater(503, shed));
            return;
        }
        try {
            snapshot.accept(request);
        } catch (Refusal refusal) {
            refuse(refusal);
            return;
        }
        if (request.path().equals("*")) {
            Response options = Response.of(204, java.nio.ByteBuffer.allocate(0));
            options.headers().add("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
            answer(options);
            return;
        }
        collectMax = request.framing().isEmpty() ? 0 : snapshot.chain().requestBodyBytesMax(context);
        if (collectMax == 0) {
            run(Phase.PRE);
        } else if (request.expectsContinue()) {
            client.sendContinue();
        }
    }

    /** A response of the gateway that asks the client to come back. */
    private Response retryLater(int status, String reason) {
        return Failure.retryLater(request, status, reason);
    }

    private void checkBodySize(long bytes) {
        long max = context.bodyBytesMax();
        if (max >= 0 && bytes > max) {
            throw new Refusal(413, "request body is longer than " + max + " bytes");
        }
    }

    private void run(Phase next) {
        phase = next;
        isPostRun |= next == Phase.POST;
        boolean isOutermost = !isRunning;
        isRunning = true;
        snapshot.chain().run(next, context, loop.executor, loop.watch, this);
        if (isOutermost) {
            isRunning = false;
        }
    }

    @Override
    public void accept(Context same, Step step) {
        if (isOver) {
            return;
        }
        if (!isRunning) {
            loop.readClock();
        }
        if (step.isFailure()) {
            filterFailed(step);
        } else if (step.response() != null) {
            answered(step.response());
        } else {
            passed();
        }
        if (!isRunning) {
            // Resumed later, outside of a read: no other code flushes. Within a read, flushing here
            // would tear head and body apart.
            client.flush();
            flushOrigin();
        }
    }

    private void passed() {
        switch (phase) {
            case PRE -> route();
            case ROUTE -> proxy();
            default -> relay.sendResponse();
        }
    }

    private void answered(Response response) {
        if (phase == Phase.POST || phase == Phase.ERROR && isPostRun) {
            context.response(response);
            relay.sendResponse();
        } else {
            answer(response);
        }
    }

    private void filterFailed(Step step) {
        boolean isOurs = step.status() >= 500;
        if (phase == Phase.ERROR) {
            ThrottledLog.failed(context, Category.FILTER_ERROR, step.cause());
            relay.sendResponse();
            return;
        }
        fail(step.status(), isOurs ? Category.FILTER_ERROR : Category.LIMIT, step.cause());
    }

    /** A response that the gateway made; post filters see it too. */
    private void answer(Response response) {
        context.response(response);
        run(Phase.POST);
    }

    private void route() {
        Route route = snapshot.routes().find(request);
        if (route == null) {
            fail(404, Category.NO_ROUTE, null);
            return;
        }
        context.route(route);
        if (route.bounds().exchangeMillis() > 0) {
            client.exchangeWithin(route.bounds().exchangeMillis());
        }
        try {
            route.checkPath(request);
            checkBodySize(Math.max(body.bytes(), request.framing().length()));
        } catch (Refusal refusal) {
            refuse(refusal);
            return;
        }
        run(Phase.ROUTE);
    }

    private void proxy() {
        if (!isPrepared) {
            isPrepared = true;
            snapshot.forwarding().prepare(request);
            StrippedPrefix.tell(context);
            context.origin().countRequest();
            if (context.origin().settings().http2() != Origin.Http2.OFF) {
                body.keepForRefusal();
            }
            if (request.body() != null) {
                if (!body.isComplete()) {
                    // A filter made another one: the client's is dropped, after the answer.
                    client.readBody(false);
                }
                body.holdCollected(request);
            }
        }
        ask(null, false);
    }

    @Override
    Attempt attemptAt(Address address) {
        return new Attempt(this, address);
    }

    @Override
    void noAddress() {
        context.category(Category.NO_ADDRESS);
        context.response(retryLater(503, "no address of the origin is usable"));
        run(Phase.ERROR);
    }

    /** An attempt has a connection. */
    void connected(OriginStream origin) {
        body.replay(origin);
        if (body.isComplete()) {
            origin.sendEnd(requestTrailers());
            return;
        }
        if (request.expectsContinue() && body.bytes() == 0) {
            client.sendContinue();
            client.flush();
        }
        client.readBody(true);
    }

    private Headers requestTrailers() {
        return context.origin().settings().requestTrailers() ? body.trailers() : null;
    }

    /** The pool has no connection. */
    void refusedByPool(Attempt refused, String reason) {
        if (isReplaced(refused)) {
            return;
        }
        asksNobody();
        context.category(Category.LIMIT);
        context.response(retryLater(503, reason));
        run(Phase.ERROR);
    }

    /** A piece of the request body; taken over. */
    void requestBody(ByteBuf slice) {
        loop.meters.add(Meters.Count.REQUEST_BODY_BYTES, slice.readableBytes());
        OriginStream origin = origin();
        if (isOver || relay.isHeadSent() && origin == null) {
            slice.release();
            return;
        }
        if (body.isComplete()) {
            slice.release();
            client.readBody(false);
            return;
        }
        long total = body.bytes() + slice.readableBytes();
        // Before there is a route, its limit is not known; and little is read.
        long max = collectMax > 0 ? collectMax : context.route() == null ? -1
                : context.bodyBytesMax();
        if (max >= 0 && total > max) {
            slice.release();
            abandonOrigin();
            refuse(new Refusal(413, "request body is longer than " + max + " bytes"));
        } else if (origin == null) {
            hold(slice);
        } else {
            body.pass(slice, origin);
            if (!origin.isWritable()) {
                client.readBody(false);
                origin.stalled();
            }
        }
    }

    /** Without anybody to send it to, no more is read than what filters want to see. */
    private void hold(ByteBuf slice) {
        body.hold(slice);
        if (collectMax == 0 || context.response() != null) {
            client.readBody(false);
        } else if (loop.budget.isUsedUp()) {
            mustClose = true;
            collectMax = 0;
            context.category(Category.SHED);
            answer(retryLater(503, "bodies that wait take too much memory"));
        }
    }

    /** The request body is complete. */
    void requestEnd(Headers trailers) {
        if (body.isComplete()) {
            // Another body ends than the one that is sent: a filter has replaced it.
            return;
        }
        body.complete(Trailers.fit(trailers));
        if (isOver) {
            return;
        }
        if (collectMax > 0 && context.response() == null) {
            loop.meters.add(Meters.Count.BODIES_COLLECTED, 1);
            body.collectInto(request);
            run(Phase.PRE);
        } else if (isAsking()) {
            armHedge();
            if (origin() != null) {
                origin().sendEnd(requestTrailers());
            }
        }
    }

    boolean isRequestSent() {
        return body.isComplete();
    }

    /** The origin can take more of the request body. */
    void originWritable() {
        if (!body.isComplete() || isSwitched) {
            client.readBody(true);
        }
    }

    /** An interim response came; it goes on at once or it is of no use. */
    void interim(Attempt from, Response response) {
        if (isFirst(from) && context.origin().settings().passesInterim() && !relay.isHeadSent() && !isOver) {
            Forwarding.acceptResponse(response);
            client.sendInterim(response);
            client.flush();
        }
    }

    /** A final response head came from an origin. */
    void responseHead(Attempt answered, Response response) {
        context.origin().judge(answered.address(), response.status(),
                answered.tookNanos() / 1_000_000, loop.sharedMillis());
        context.originNanos(answered.tookNanos());
        if (isTriedElsewhere(answered, response.status())) {
            return;
        }
        settleOn(answered);
        try {
            Forwarding.acceptResponse(response);
        } catch (Refusal refusal) {
            abandonOrigin();
            originFailed(answered, Category.ORIGIN_MALFORMED, refusal, Loss.AFTER_ANSWER);
            return;
        }
        context.response(response);
        StrippedPrefix.restore(context);
        context.origin().settings().persistence().bind(context);
        body.release();
        relay.head(response);
    }

    /** All that post filters need is there. */
    void runPost() {
        run(Phase.POST);
    }

    void responseBody(ByteBuf slice) {
        relay.body(slice);
    }

    /** The origin's response is complete; the connection is no longer ours. */
    void responseEnd(Attempt ended, boolean wasRequestSent, Headers trailers) {
        asksNobody();
        context.originNanos(ended.tookNanos());
        // A final response before the request was sent: the rest of it has nowhere to go.
        mustClose |= !wasRequestSent;
        relay.end(request.takesTrailers() ? Trailers.fit(trailers) : null);
    }

    /** The origin wants to speak another protocol, as the client asked. */
    boolean mayUpgrade() {
        Route route = context.route();
        return request.upgrade() != null && route != null && route.allowsUpgrade();
    }

    void switched(Response response) {
        Forwarding.acceptResponse(response);
        context.response(response);
        isSwitched = true;
        client.sendSwitch(response, request.upgrade());
        client.flush();
    }

    /** The other side of a switched connection has closed. */
    void tunnelClosed() {
        asksNobody();
        over(101);
        client.sendEnd(null);
        client.flush();
    }

    /** No response of this attempt, or no more of it. */
    void originFailed(Attempt lost, Category category, Throwable cause, Loss far) {
        Address failed = lost.address();
        Loss loss = Attempts.judged(context, far);
        boolean isNoFault = Attempts.isNoFault(context, loss);
        ThrottledLog.failed(context, category, cause);
        if (!isNoFault) {
            long now = loop.sharedMillis();
            failed.failed(now - lost.tookNanos() / 1_000_000, now);
        }
        if (isReplaced(lost)) {
            return;
        }
        asksNobody();
        boolean isUntouched = category == Category.CONNECT;
        if (!isOver && Attempts.mayFollow(context, loss, isUntouched, body.isReplayable(),
                loop.sharedMillis()) && ask(isNoFault ? null : failed, true)) {
            loop.meters.add(Meters.Count.RETRIES, 1);
            client.flush();
            return;
        }
        fail(Attempts.status(category), category, cause);
        client.flush();
    }

    /** The origin takes no head of this size, which no other address would change. */
    void tooLarge(Attempt lost) {
        if (isReplaced(lost)) {
            return;
        }
        asksNobody();
        refuse(new Refusal(431, "the origin takes no head of this size"));
        client.flush();
    }

    private void refuse(Refusal refusal) {
        mustClose = true;
        fail(refusal.status(), Category.CLIENT_BAD, refusal);
    }

    /** The exchange has taken too long altogether. */
    void timedOut() {
        abandonOrigin();
        fail(504, context.attempts() == 0 ? Category.FILTER_ERROR : Category.ORIGIN_TIMEOUT, null);
        client.flush();
    }

    /** The client has stopped in the middle of its request body. */
    void clientTooSlow() {
        abandonOrigin();
        mustClose = true;
        fail(408, Category.CLIENT_BAD, null);
        client.flush();
    }

    /** The body of an accepted head is malformed. */
    void badBody(Refusal refusal) {
        refuse(refusal);
    }

    void fail(int status, Category category, Throwable cause) {
        context.category(category);
        context.failure(cause);
        if (category == Category.FILTER_ERROR) {
            ThrottledLog.failed(context, category, cause);
        }
        if (relay.isHeadSent()) {
            loop.meters.add(Meters.Count.LATE_FAILURES, 1);
            client.cut();
            over(context.response().status());
            return;
        }
        relay.reset();
        context.response(Failure.of(request, status, cause instanceof Refusal
                ? cause.getMessage() : ""));
        run(Phase.ERROR);
    }

    /** The client's connection is gone. */
    void clientGone() {
        if (isOver) {
            return;
        }
        if (isSwitched) {
            // Either side ends a tunnel, and it ends in no other way.
            abandonOrigin();
            over(101);
            return;
        }
        context.category(Category.CLIENT_GONE);
        abandonOrigin();
        over(relay.isHeadSent() ? context.response().status() : 0);
    }

    boolean mustClose() {
        return mustClose || loop.gateway.isDraining();
    }

    @Override
    boolean isOver() {
        return isOver;
    }

    /** The client has everything. */
    void completed(int status, Headers trailers) {
        over(status);
        client.sendEnd(trailers);
    }

    private void over(int status) {
        if (isOver) {
            return;
        }
        isOver = true;
        disarmHedge();
        try {
            body.over();
            relay.over(context.category() == Category.OK);
            long now = loop.nowNanos();
            loop.meters.ended(context, status, now);
            snapshot.chain().finished(context, status, now);
        } finally {
            loop.gateway.inFlight().decrementAndGet();
            snapshot.end();
        }
    }
}
