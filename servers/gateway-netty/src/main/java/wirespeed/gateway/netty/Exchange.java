// The life of one request on its loop: carries out what its state machine decides.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Attempts;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Chain;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.ExchangeMachine;
import wirespeed.gateway.core.ExchangeMachine.Command;
import wirespeed.gateway.core.Forwarding;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Loss;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.core.Origin;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.core.Snapshot;
import wirespeed.gateway.core.Step;
import wirespeed.gateway.core.Trailers;
import wirespeed.gateway.runtime.ThrottledLog;

/** Everything here happens on one loop; the client and the origin connection call in. */
final class Exchange extends ExchangeAttempts implements Chain.Done {
    private final Snapshot snapshot;
    private final Request request;
    private final ResponseRelay relay;
    /** Whose decision of filters counts: another object once filters that waited were interrupted. */
    private Chain.Done decider = this;
    private boolean isRunning;

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
        execute(machine.begin(shed));
    }

    void execute(Command command) {
        switch (command) {
            case COLLECT_REQUEST -> awaitBody();
            case RUN_FILTERS -> runFilters();
            case ASK -> proxy();
            case COLLECT_RESPONSE -> relay.collect();
            case SEND_WHOLE -> relay.sendWhole();
            case SEND_HEAD -> relay.sendWithoutBody();
            case RELAY -> relay.relay();
            case SWITCH -> switchProtocol();
            case CUT -> cut();
            default -> { }
        }
    }

    private void awaitBody() {
        if (request.expectsContinue()) {
            client.sendContinue();
        }
    }

    private void runFilters() {
        Phase phase = machine.phase();
        if (phase == Phase.ROUTE && context.route().bounds().exchangeMillis() > 0) {
            client.exchangeWithin(context.route().bounds().exchangeMillis());
        } else if (phase == Phase.ERROR) {
            body.release();
            relay.reset();
        }
        boolean isOutermost = !isRunning;
        isRunning = true;
        snapshot.chain().run(phase, context, loop.executor, loop.watch, decider);
        if (isOutermost) {
            isRunning = false;
        }
    }

    @Override
    public void accept(Context same, Step step) {
        decided(this, step);
    }

    @Override
    public boolean isAwaited() {
        return isAwaited(this);
    }

    private boolean isAwaited(Chain.Done by) {
        return by == decider && !isOver();
    }

    private void decided(Chain.Done by, Step step) {
        if (!isAwaited(by)) {
            return;
        }
        if (!isRunning) {
            loop.readClock();
        }
        execute(machine.decided(step, body.bytes()));
        if (!isRunning) {
            // Resumed later, outside of a read: no other code flushes. Within a read, flushing here
            // would tear head and body apart.
            client.flush();
            flushOrigin();
        }
    }

    /** In place of the exchange, for filters that run after others were interrupted. */
    private final class Decider implements Chain.Done {
        @Override
        public void accept(Context same, Step step) {
            decided(this, step);
        }

        @Override
        public boolean isAwaited() {
            return Exchange.this.isAwaited(this);
        }
    }

    /** To be called before the exchange fails for another reason: what filters decide counts no more. */
    private void interruptFilters() {
        if (machine.isDeciding()) {
            decider = new Decider();
        }
    }

    private void proxy() {
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
        ask(null, false);
    }

    @Override
    Attempt attemptAt(Address address) {
        return new Attempt(this, address);
    }

    @Override
    void noAddress() {
        execute(machine.noAddress());
    }

    /** An attempt has a connection. */
    void connected(Attempt connected, OriginStream origin) {
        body.replay(origin);
        if (body.isComplete()) {
            connected.sendEnd(origin, requestTrailers());
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
        execute(machine.later(Category.LIMIT, reason));
    }

    /** A piece of the request body; taken over. */
    void requestBody(ByteBuf slice) {
        loop.meters.add(Meters.Count.REQUEST_BODY_BYTES, slice.readableBytes());
        OriginStream origin = origin();
        if (isOver() || machine.isHeadSent() && origin == null) {
            slice.release();
            return;
        }
        if (body.isComplete() || machine.isFailing()) {
            slice.release();
            client.readBody(false);
            return;
        }
        long max = machine.bodyBytesMax();
        if (max >= 0 && body.bytes() + slice.readableBytes() > max) {
            slice.release();
            badBody(ExchangeMachine.tooLong(max));
        } else if (origin == null) {
            hold(slice);
        } else {
            body.pass(slice, origin);
            if (!origin.isWritable()) {
                client.readBody(false);
                stalled();
            }
        }
    }

    /** Without anybody to send it to, no more is read than what filters want to see. */
    private void hold(ByteBuf slice) {
        body.hold(slice);
        if (machine.isCollecting()) {
            execute(machine.requestHeld(loop.budget.isUsedUp()));
        } else {
            client.readBody(false);
        }
    }

    /** The request body is complete. */
    void requestEnd(Headers trailers) {
        if (body.isComplete()) {
            // Another body ends than the one that is sent: a filter has replaced it.
            return;
        }
        body.complete(Trailers.fit(trailers));
        if (isOver()) {
            return;
        }
        if (machine.isCollecting()) {
            loop.meters.add(Meters.Count.BODIES_COLLECTED, 1);
            body.collectInto(request);
            execute(machine.collected());
        } else if (isAsking()) {
            armHedge();
            if (origin() != null) {
                sendEnd(requestTrailers());
            }
        }
    }

    /** The origin can take more of the request body. */
    void originWritable() {
        if (!body.isComplete() || machine.isSwitched()) {
            client.readBody(true);
        }
    }

    /** An interim response came; it goes on at once or it is of no use. */
    void interim(Attempt from, Response response) {
        if (isFirst(from) && machine.isAsking() && context.origin().settings().passesInterim()) {
            Forwarding.acceptResponse(response);
            client.sendInterim(response);
            client.flush();
        }
    }

    /** A final response head came from an origin. */
    void responseHead(Attempt answered, Response response) {
        try {
            judge(answered, response);
        } catch (Refusal refusal) {
            answered.abandon();
            originFailed(answered, Category.ORIGIN_MALFORMED, refusal, Loss.AFTER_ANSWER);
            return;
        }
        if (isTriedElsewhere(answered, response.status())) {
            return;
        }
        settleOn(answered);
        body.release();
        execute(machine.responded(response));
    }

    void responseBody(ByteBuf slice) {
        relay.body(slice);
    }

    /** The origin's response is complete; the connection is no longer ours. */
    void responseEnd(Headers trailers) {
        asksNobody();
        relay.end(request.takesTrailers() ? Trailers.fit(trailers) : null);
    }

    /** The origin speaks another protocol from here on, as the client asked. */
    void switched(Attempt answered, Response response) {
        judge(answered, response);
        execute(machine.responded(response));
    }

    private void switchProtocol() {
        client.sendSwitch(context.response(), request.upgrade());
        client.flush();
    }

    /** The other side of a switched connection has closed. */
    void tunnelClosed() {
        asksNobody();
        completed(null);
        client.flush();
    }

    /** No response of this attempt, or no more of it. */
    void originFailed(Attempt lost, Category category, Throwable cause, Loss far) {
        Address failed = lost.address();
        long now = loop.sharedMillis();
        Loss loss = Attempts.lost(context, failed, far, now - lost.tookNanos() / 1_000_000, now);
        ThrottledLog.failed(context, category, cause);
        if (isReplaced(lost)) {
            return;
        }
        asksNobody();
        interruptFilters();
        Command next = machine.lost(category, loss, cause, body.isReplayable(), now);
        if (next != Command.ASK_AGAIN) {
            execute(next);
        } else if (ask(Attempts.isNoFault(context, loss) ? null : failed, true)) {
            loop.meters.add(Meters.Count.RETRIES, 1);
        } else {
            execute(machine.originFailed(category, cause));
        }
        client.flush();
    }

    /** The origin takes no head of this size, which no other address would change. */
    void tooLarge(Attempt lost) {
        if (isReplaced(lost)) {
            return;
        }
        asksNobody();
        execute(machine.refused(new Refusal(431, "the origin takes no head of this size")));
        client.flush();
    }

    /** The exchange has taken too long altogether. */
    void timedOut() {
        if (machine.isAsking()) {
            speaksAgainstAsked();
        }
        abandonOrigin();
        interruptFilters();
        execute(machine.timedOut());
        while (machine.isFiltering()) {
            // The filters that run on a failure, or on an answer to it, have no time left to wait in.
            decider = new Decider();
            execute(machine.timedOut());
        }
        client.flush();
    }

    /** The client has stopped in the middle of its request body. */
    void clientTooSlow() {
        abandonOrigin();
        interruptFilters();
        endBody(machine.clientTooSlow());
        client.flush();
    }

    /** The body of an accepted head is not accepted. */
    void badBody(Refusal refusal) {
        abandonOrigin();
        interruptFilters();
        endBody(machine.refused(refusal));
    }

    private void endBody(Command next) {
        execute(next);
        if (machine.isFiltering()) {
            // Filters wait, for no longer than the exchange may take.
            client.readBody(false);
        }
    }

    /** A filter has failed on a piece of the body. */
    void fail(Throwable cause) {
        abandonOrigin();
        execute(machine.failed(500, Category.FILTER_ERROR, cause));
    }

    private void cut() {
        loop.meters.add(Meters.Count.LATE_FAILURES, 1);
        client.cut();
        over();
    }

    /** The client's connection is gone. */
    void clientGone() {
        if (!isOver()) {
            machine.clientGone(null);
            abandonOrigin();
            over();
        }
    }

    boolean mustClose() {
        return machine.isLast() || loop.gateway.isDraining();
    }

    @Override
    boolean isOver() {
        return machine.isOver();
    }

    /** The client has everything. */
    void completed(Headers trailers) {
        over();
        client.sendEnd(trailers);
    }

    private void over() {
        if (isOver()) {
            return;
        }
        try {
            machine.end(loop.meters, loop.nowNanos());
            disarmHedge();
            body.over();
            relay.over();
        } finally {
            loop.gateway.inFlight().decrementAndGet();
            snapshot.end();
        }
    }
}
