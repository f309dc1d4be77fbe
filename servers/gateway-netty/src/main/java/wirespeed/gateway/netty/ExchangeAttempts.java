// The addresses that one exchange asks: one after the other, or two at a time (hedging).
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Attempts;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.ExchangeMachine;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Loss;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.runtime.ThrottledLog;

/** A class of its own and no object of its own: there is one for each request. */
abstract class ExchangeAttempts {
    final Loop loop;
    final Client client;
    final Context context;
    final RequestBody body;
    final ExchangeMachine machine;
    /** The only one, or the first of two; null when no address is asked. */
    private Attempt attempt;
    /** Another address that is asked in parallel with the first; the first answer counts. */
    private Attempt hedge;
    private ScheduledFuture<?> hedgeTimer;
    private long begunNanos;
    private boolean isBegun;

    ExchangeAttempts(Loop loop, Client client, Request request) {
        this.loop = loop;
        this.client = client;
        this.context = new Context(loop.gateway.enter(), request, loop.nowNanos());
        this.body = new RequestBody(request, loop.budget);
        this.machine = new ExchangeMachine(context, ThrottledLog::failed);
    }

    /** Whether no response is needed any more. */
    abstract boolean isOver();

    /** An attempt of this exchange, not started. */
    abstract Attempt attemptAt(Address address);

    /** Nobody can be asked. */
    abstract void noAddress();

    /** Whether an attempt is under way. */
    boolean isAsking() {
        return attempt != null;
    }

    /** Whether this is the only attempt, or the first of two. */
    boolean isFirst(Attempt one) {
        return one == attempt;
    }

    /** The attempt has ended, and no other address is asked. */
    void asksNobody() {
        countOrigin();
        attempt = null;
    }

    /** From the first of two attempts on, if there are two. */
    private void countOrigin() {
        context.originNanos(isBegun ? loop.nowNanos() - begunNanos : 0);
    }

    /** A connection is there or on its way; until then it is the gateway that lets the request wait. */
    void begun() {
        if (!isBegun) {
            isBegun = true;
            begunNanos = loop.nowNanos();
        }
    }

    /** Asks an address; false without another one than {@code not}. */
    boolean ask(Address not, boolean needsFresh) {
        Address address = context.origin().choose(context, not, loop.sharedMillis());
        if (address == null && not != null) {
            return false;
        }
        if (address == null) {
            noAddress();
            return true;
        }
        if (!body.isComplete()) {
            client.readBody(false);
        }
        context.attempt(address);
        isBegun = false;
        attempt = attemptAt(address);
        armHedge();
        attempt.start(needsFresh);
        return true;
    }

    /** Asks a second address in a while, if the whole request is there and may be sent twice. */
    void armHedge() {
        int millis = context.origin().settings().retry().hedgeMillis();
        if (millis > 0 && hedgeTimer == null && body.isComplete() && context.request().upgrade() == null) {
            hedgeTimer = loop.executor.schedule(this::hedge, millis, TimeUnit.MILLISECONDS);
        }
    }

    private void hedge() {
        loop.readClock();
        boolean isAwaited = !isOver() && attempt != null && hedge == null
                && context.response() == null;
        if (!isAwaited || !Attempts.mayHedge(context, body.isReplayable(),
                loop.sharedMillis())) {
            return;
        }
        Address other = context.origin().choose(context, attempt.address(), loop.sharedMillis());
        if (other != null) {
            loop.meters.add(Meters.Count.HEDGES, 1);
            context.attempt(other);
            hedge = attemptAt(other);
            hedge.start(false);
        }
    }

    void disarmHedge() {
        if (hedgeTimer != null) {
            hedgeTimer.cancel(false);
        }
    }

    /** The one that is under way in parallel with this; null for none. */
    private Attempt beside(Attempt one) {
        return one == attempt ? hedge : attempt;
    }

    /** Goes on with this attempt alone; another one is cancelled. */
    void settleOn(Attempt one) {
        disarmHedge();
        Attempt loser = beside(one);
        if (loser != null) {
            if (one == hedge) {
                loop.meters.add(Meters.Count.HEDGES_WON, 1);
            }
            context.address(one.address());
            attempt = one;
            hedge = null;
            loser.abandon();
        }
    }

    /** Whether this attempt came to nothing without harm, because another one is under way. */
    boolean isReplaced(Attempt lost) {
        Attempt other = beside(lost);
        if (isOver() || other == null) {
            return false;
        }
        context.address(other.address());
        attempt = other;
        hedge = null;
        return true;
    }

    /** The stream of the only attempt; null where there is none, or it waits for a connection. */
    OriginStream origin() {
        return attempt == null ? null : attempt.stream();
    }

    /** The client can take more of the response body. */
    void clientWritable() {
        if (origin() != null) {
            origin().read(true);
        }
    }

    /** The only attempt has to take something before the rest of the request goes on. */
    void stalled() {
        attempt.stalled();
    }

    /** The only attempt has the whole request now. */
    void sendEnd(Headers trailers) {
        attempt.sendEnd(attempt.stream(), trailers);
    }

    /** Judges a response head; throws a refusal of one that may not go on. */
    void judge(Attempt answered, Response response) {
        countOrigin();
        Attempts.accept(context, answered.address(), response, answered.tookNanos(), answered.waitedNanos(),
                loop.sharedMillis());
    }

    /** Whether this answer is dropped, because another address is asked for a better one. */
    boolean isTriedElsewhere(Attempt answered, int status) {
        if (isOver() || !body.isComplete()) {
            return false;
        }
        if (Attempts.isUnwanted(context, status) && isReplaced(answered)) {
            answered.abandon();
            return true;
        }
        if (!Attempts.isTriedElsewhere(context, status, body.isReplayable(), loop.sharedMillis())
                || !ask(answered.address(), false)) {
            return false;
        }
        loop.meters.add(Meters.Count.RETRIES, 1);
        answered.abandon();
        return true;
    }

    /** Addresses that have had the whole request for a while have not answered, or did not connect or take it for as long. */
    void speaksAgainstAsked() {
        speaksAgainst(attempt);
        speaksAgainst(hedge);
    }

    private void speaksAgainst(Attempt asked) {
        if (asked != null && asked.hasTime()) {
            long now = loop.sharedMillis();
            Attempts.lost(context, asked.address(), Loss.BEFORE_ANSWER,
                    now - asked.tookNanos() / 1_000_000, now);
        }
    }

    /** Takes the origin's connections away from this exchange; they cannot be used again. */
    void abandonOrigin() {
        Attempt first = attempt;
        Attempt second = hedge;
        attempt = null;
        hedge = null;
        if (first != null) {
            if (!machine.isAnswered()) {
                countOrigin();
            }
            first.abandon();
        }
        if (second != null) {
            second.abandon();
        }
    }

    void pauseOrigin() {
        if (origin() != null) {
            origin().read(false);
        }
    }

    void flushOrigin() {
        if (origin() != null) {
            origin().flush();
        }
    }

    /** Raw bytes of the client after a switch. */
    void tunnel(ByteBuf bytes) {
        OriginStream origin = origin();
        if (origin == null) {
            bytes.release();
            return;
        }
        origin.sendRaw(bytes);
        if (!origin.isWritable()) {
            client.readBody(false);
        }
    }

    /** The client sends no more raw bytes. */
    void tunnelInputEnded() {
        if (origin() != null) {
            origin().endRaw();
        }
    }
}
