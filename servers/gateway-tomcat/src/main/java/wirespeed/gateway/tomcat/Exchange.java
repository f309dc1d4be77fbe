// The life of one request on its thread: carries out what its state machine decides.
package wirespeed.gateway.tomcat;

import jakarta.servlet.ServletException;
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
import wirespeed.gateway.core.ExchangeMachine;
import wirespeed.gateway.core.ExchangeMachine.Command;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Loss;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.core.Snapshot;
import wirespeed.gateway.core.Trailers;
import wirespeed.gateway.runtime.ThrottledLog;

/** Everything blocks, so each command returns with the event that its end is. */
final class Exchange {
    private static final int REQUEST_TIMEOUT = 408;

    private final Plant plant;
    private final Request request;
    private final Context context;
    private final ExchangeMachine machine;
    private final RequestBody body;
    private final Reply reply;
    private final Scratch scratch;
    private long deadlineNanos;
    private Call call;
    /** The body of a response that a filter reads whole; null for most. */
    private HeldBytes collected;
    /** Whether a permit to switch protocols is this exchange's. */
    private boolean hasTunnel;
    private boolean leavesRest;

    Exchange(Plant plant, Snapshot snapshot, Request request, InputStream in, Reply reply,
            Scratch scratch) {
        this.plant = plant;
        this.request = request;
        this.reply = reply;
        this.scratch = scratch;
        long now = System.nanoTime();
        this.context = new Context(snapshot, request, now);
        this.machine = new ExchangeMachine(context, ThrottledLog::failed);
        this.body = new RequestBody(context, machine, in, plant, reply::requestTrailers);
        this.deadlineNanos = now + plant.timeouts().exchangeMillis() * 1_000_000L;
    }

    /** To be called once; when it returns, the client has its response or is cut off. */
    void run() {
        plant.meters().add(Meters.Count.REQUESTS_BEGUN, 1);
        int inFlight = plant.gateway().inFlight().incrementAndGet();
        try {
            Command next = machine.begin(inFlight > plant.inFlightMax() ? "too many exchanges" : null);
            while (next != Command.WAIT) {
                next = execute(next);
            }
            if (leavesRest || body.isBroken() || body.isInDoubt()) {
                reply.leaveRest();
            } else if (!body.isComplete()) {
                reply.dropRest(System.nanoTime() + plant.timeouts().bodyIdleMillis() * 1_000_000L);
            }
        } catch (ClientFailure gone) {
            machine.clientGone(gone);
            reply.cut();
        } finally {
            over();
        }
    }

    private Command execute(Command command) throws ClientFailure {
        try {
            return switch (command) {
                case COLLECT_REQUEST -> body.collect(scratch.body, deadlineNanos);
                case RUN_FILTERS -> runFilters();
                case ASK -> askOrigin();
                case COLLECT_RESPONSE -> collectResponse();
                case SEND_WHOLE, SEND_HEAD, RELAY -> send(command);
                case SWITCH -> tunnel();
                case CUT -> cut();
                default -> throw new IllegalStateException("no command for a thread: " + command);
            };
        } catch (OriginFailure failure) {
            return machine.originFailed(failure.category(), failure);
        } catch (ClientFailure broken) {
            if (broken.status() == 0 || reply.isCommitted()) {
                throw broken;
            }
            leavesRest = broken.status() == REQUEST_TIMEOUT;
            return leavesRest ? machine.clientTooSlow()
                    : machine.refused(new Refusal(broken.status(), broken.getMessage()));
        }
    }

    private Command runFilters() {
        Phase phase = machine.phase();
        if (phase == Phase.ROUTE && context.route().bounds().exchangeMillis() > 0) {
            deadlineNanos = context.startNanos() + context.route().bounds().exchangeMillis() * 1_000_000L;
        } else if (phase == Phase.ERROR) {
            body.forget();
            if (call != null) {
                call.abandon();
                call = null;
            }
        }
        return machine.decided(Turn.run(phase, context, deadlineNanos), body.bytes());
    }

    /** Asks addresses until one answers. */
    private Command askOrigin() throws ClientFailure {
        if (request.upgrade() != null && context.route().allowsUpgrade()) {
            hasTunnel = plant.tunnels().tryAcquire();
            if (!hasTunnel) {
                return machine.later(Category.LIMIT, "too many connections have switched protocols");
            }
        }
        Address address = other(null);
        boolean needsFresh = false;
        while (address != null) {
            long askedMillis = nowMillis();
            try {
                Response response = ask(address, needsFresh);
                Address other = insteadOf(address, response);
                if (other == null) {
                    return responded(response);
                }
                call.dismiss();
                address = other;
                needsFresh = false;
            } catch (OriginPool.Full full) {
                return machine.later(Category.LIMIT, full.getMessage());
            } catch (OriginFailure failure) {
                Loss loss = Attempts.lost(context, address, failure.loss(), askedMillis, nowMillis());
                ThrottledLog.failed(context, failure.category(), failure.getCause());
                Command next = isLate() ? machine.originFailed(failure.category(), failure)
                        : machine.lost(failure.category(), loss, failure, body.isReplayable(),
                                nowMillis());
                if (next != Command.ASK_AGAIN) {
                    return next;
                }
                Address avoided = Attempts.isNoFault(context, loss) ? null : address;
                address = other(avoided);
                needsFresh = true;
                if (address == null && avoided != null) {
                    return machine.originFailed(failure.category(), failure);
                }
            }
            plant.meters().add(Meters.Count.RETRIES, 1);
        }
        return machine.noAddress();
    }

    private Address other(Address not) {
        return context.origin().choose(context, not, nowMillis());
    }

    private static long nowMillis() {
        return System.nanoTime() / 1_000_000;
    }

    private boolean isLate() {
        return System.nanoTime() >= deadlineNanos;
    }

    private Response ask(Address address, boolean needsFresh) throws ClientFailure, OriginFailure,
            OriginPool.Full {
        context.attempt(address);
        call = new Call(plant, context, address, body, scratch, deadlineNanos);
        try {
            Response response = call.ask(needsFresh);
            Attempts.accept(context, address, response, call.tookNanos(), call.waitedNanos(), nowMillis());
            return response;
        } catch (Refusal malformed) {
            call.abandon();
            throw new OriginFailure(Category.ORIGIN_MALFORMED, Loss.AFTER_ANSWER,
                    malformed.getMessage(), malformed);
        }
    }

    /** Who is asked for a better answer; null when this one stands. */
    private Address insteadOf(Address answered, Response response) {
        boolean isTriedElsewhere = call.isRequestSent() && !isLate()
                && Attempts.isTriedElsewhere(context, response.status(), body.isReplayable(),
                        nowMillis());
        return isTriedElsewhere ? other(answered) : null;
    }

    private Command responded(Response response) {
        body.forget();
        return machine.responded(response);
    }

    /** The connections of both sides are the tunnel's when this exchange has ended. */
    private Command tunnel() {
        try {
            call.switched();
            reply.tunnel(context.response(), request.upgrade()).connect(call, plant);
            call = null;
            hasTunnel = false;
            return Command.WAIT;
        } catch (IOException | ServletException failed) {
            return machine.originFailed(Category.ORIGIN_RESET, failed);
        }
    }

    private Command collectResponse() throws OriginFailure {
        Response response = context.response();
        collected = new HeldBytes(plant.budget(), response.received());
        for (int count = read(); count >= 0; count = read()) {
            collected.add(scratch.body, count);
            Command next = machine.responseHeld(collected.length(), plant.budget().isUsedUp());
            if (next != Command.WAIT) {
                // Before the client learns of it, who may ask again.
                collected.release();
                return next;
            }
        }
        plant.meters().add(Meters.Count.BODIES_COLLECTED, 1);
        response.body(collected.whole());
        return machine.collected();
    }

    /** Sends what the filters agreed on. */
    private Command send(Command how) throws ClientFailure {
        Response response = context.response();
        Framing framing = machine.framing();
        boolean keepAlive = request.keepAlive() && !machine.isLast() && !body.isBroken()
                && !body.isInDoubt() && !plant.gateway().isDraining();
        reply.head(response, request.isHeadAsked(), framing, keepAlive);
        if (how == Command.RELAY) {
            Command broken = framing.isEmpty() ? complete() : stream(framing);
            if (broken != Command.WAIT) {
                return broken;
            }
        } else {
            if (call != null) {
                // Bytes that the origin still sends do not belong to this response.
                call.dismiss();
            }
            if (how == Command.SEND_WHOLE && !framing.isEmpty()) {
                sendWhole(response.body());
            }
        }
        machine.end(plant.meters(), System.nanoTime());
        if (request.isHeadAsked() || request.takesTrailers()) {
            // Otherwise Tomcat would count the bytes, also the ones that were not written.
            reply.flush();
        }
        reply.end();
        return Command.WAIT;
    }

    private void sendWhole(ByteBuffer whole) throws ClientFailure {
        context.countResponseBytes(whole.remaining());
        while (whole.hasRemaining()) {
            int count = Math.min(scratch.body.length, whole.remaining());
            whole.get(scratch.body, 0, count);
            reply.write(scratch.body, count);
        }
    }

    private Command complete() {
        call.complete();
        machine.relayed();
        return Command.WAIT;
    }

    private Command stream(Framing framing) throws ClientFailure {
        if (request.takesTrailers() && framing.isChunked()) {
            Call streamed = call;
            reply.trailers(() -> Trailers.fit(streamed.trailers()));
        }
        try {
            pass();
            machine.relayed();
            return Command.WAIT;
        } catch (OriginFailure failure) {
            takeBack();
            return machine.originFailed(failure.category(), failure);
        } catch (RuntimeException | Error failed) {
            // A filter's, and not the fault of the origin.
            call.abandon();
            takeBack();
            return machine.failed(500, Category.FILTER_ERROR, failed);
        }
    }

    /** While nothing has left, the client can still get another response. */
    private void takeBack() {
        if (!reply.isCommitted()) {
            reply.reset();
            machine.takenBack();
        }
    }

    private void pass() throws OriginFailure, ClientFailure {
        BodyTap tap = context.tap();
        BodyTransform transform = context.response().transform();
        Framing received = context.response().received();
        long left = received.kind() == Framing.Kind.LENGTH ? received.length() : Long.MAX_VALUE;
        for (int count = read(); count >= 0; count = read()) {
            context.countResponseBytes(count);
            plant.meters().add(Meters.Count.RESPONSE_BODY_BYTES, count);
            if (tap != null) {
                tap.chunk(ByteBuffer.wrap(scratch.body, 0, count).asReadOnlyBuffer());
            }
            pass(transform == null ? null
                    : transform.chunk(ByteBuffer.wrap(scratch.body, 0, count)), count);
            left -= count;
            // The end leaves after the exchange has ended: who has the answer finds it stored.
            if (left > 0 && call.wouldWait()) {
                reply.flush();
            }
        }
        if (transform != null) {
            pass(transform.end(), 0);
        }
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

    /** A piece of the origin's body, within the time of the exchange. */
    private int read() throws OriginFailure {
        if (isLate()) {
            throw call.lost(Category.ORIGIN_TIMEOUT, new SocketTimeoutException("the exchange took too long"));
        }
        return call.read();
    }

    private Command cut() {
        plant.meters().add(Meters.Count.LATE_FAILURES, 1);
        reply.cut();
        return Command.WAIT;
    }

    private void over() {
        if (call != null) {
            call.abandon();
        }
        machine.end(plant.meters(), System.nanoTime());
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
