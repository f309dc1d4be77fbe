// The body of a request: read from the client, kept for a second attempt while it is small.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.function.Supplier;
import wirespeed.gateway.core.BodyPace;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.ExchangeMachine;
import wirespeed.gateway.core.ExchangeMachine.Command;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Trailers;

/** Nothing is kept for the requests without a body, which are most. */
final class RequestBody {
    /** A body up to this size can be sent a second time. */
    private static final int KEPT_BYTES_MAX = 64 * 1024;

    /** The origin's side of an upload. */
    interface Taker {
        /** Asked between two pieces: does it answer before it has everything? */
        boolean hasAnswered() throws IOException;

        /** Whose turn it is now. */
        void waits(boolean forClient);
    }

    private final Context context;
    private final ExchangeMachine machine;
    private final Request request;
    private final InputStream in;
    private final Plant plant;
    private final Supplier<Headers> received;
    private BodyPace pace;
    private final HeldBytes collected;
    private final HeldBytes kept;
    private boolean isReplayable;
    private boolean isComplete;
    private long completeNanos;
    private boolean isAsked;
    private boolean isBroken;
    private long bytes;

    RequestBody(Context context, ExchangeMachine machine, InputStream in, Plant plant,
            Supplier<Headers> received) {
        this.received = received;
        this.context = context;
        this.machine = machine;
        this.request = context.request();
        this.in = in;
        this.plant = plant;
        completeNanos = System.nanoTime();
        isComplete = request.framing().isEmpty();
        isReplayable = request.isIdempotent();
        collected = new HeldBytes(plant.budget(), request.framing());
        kept = new HeldBytes(plant.budget(), request.framing());
    }

    /** Whether everything was read from the client. */
    boolean isComplete() {
        return isComplete;
    }

    /** Whether nothing that the origin is to get is waited for; filters may have made another body. */
    boolean isReady() {
        return isComplete || request.body() != null;
    }

    /** Since when it is ready, as System.nanoTime; earlier for a body that filters have made. */
    long readyNanos() {
        return completeNanos;
    }

    /** Whether the client has failed on it, so that the rest cannot be read. */
    boolean isBroken() {
        return isBroken;
    }

    /**
     * RFC 9110 §10.1.1: whether a client that was never asked to go on may send its body or the next
     * request now, and the gateway could not know which.
     */
    boolean isInDoubt() {
        return request.expectsContinue() && !isAsked;
    }

    /** Whether everything that was read can be sent again. */
    boolean isReplayable() {
        return isReplayable || bytes == 0;
    }

    /** The trailers to forward behind a body that was read to its end; null for none. */
    Headers trailers() {
        return context.origin().settings().requestTrailers() ? Trailers.fit(received.get()) : null;
    }

    /** How much of it was read. */
    long bytes() {
        return bytes;
    }

    /** Reads the whole body for filters. */
    Command collect(byte[] buffer, long deadlineNanos) throws ClientFailure {
        for (int count = read(buffer); count >= 0; count = read(buffer)) {
            collected.add(buffer, count);
            Command next = machine.requestHeld(plant.budget().isUsedUp());
            if (next != Command.WAIT) {
                collected.release();
                return next;
            }
            if (System.nanoTime() >= deadlineNanos) {
                throw new ClientFailure(408, "request body did not arrive in time", null);
            }
        }
        plant.meters().add(Meters.Count.BODIES_COLLECTED, 1);
        request.body(collected.whole());
        return machine.collected();
    }

    /** Nothing is sent again, and no filter gets what came of a body in part. */
    void forget() {
        kept.release();
        if (request.body() == null) {
            collected.release();
        }
    }

    /** The exchange is over. */
    void over() {
        kept.release();
        collected.release();
    }

    /** Time in which the origin takes what was read is none of the client's. */
    private int readInTime(byte[] buffer) throws ClientFailure {
        if (pace == null) {
            pace = new BodyPace(plant.timeouts().bodyBytesPerSecond(),
                    plant.timeouts().bodyIdleMillis());
            pace.begin(nowMillis());
        }
        pace.reading(true, nowMillis());
        // By its first read Tomcat asks a client that waits to go on.
        isAsked = true;
        int count = ClientFailure.read(in, buffer);
        long now = nowMillis();
        if (count >= 0 && pace.isTooSlow(count, now)) {
            throw new ClientFailure(408, "request body comes too slowly", null);
        }
        pace.reading(false, now);
        return count;
    }

    private static long nowMillis() {
        return System.nanoTime() / 1_000_000;
    }

    private int read(byte[] buffer) throws ClientFailure {
        isBroken = true;
        int count = readInTime(buffer);
        isBroken = false;
        if (count < 0) {
            complete();
            return count;
        }
        bytes += count;
        plant.meters().add(Meters.Count.REQUEST_BODY_BYTES, count);
        Framing framing = request.framing();
        if (framing.kind() == Framing.Kind.LENGTH && bytes == framing.length()) {
            complete();
        }
        long max = machine.bodyBytesMax();
        if (max >= 0 && bytes > max) {
            throw ClientFailure.of(ExchangeMachine.tooLong(max));
        }
        return count;
    }

    private void complete() {
        isComplete = true;
        completeNanos = System.nanoTime();
    }

    /** Writes the body, again from its beginning; whether all of it was written. */
    boolean writeTo(OutputStream out, byte[] buffer, Taker origin) throws IOException {
        if (request.body() != null) {
            writeCollected(out, buffer, origin);
            return true;
        }
        kept.writeTo(out);
        while (!isComplete) {
            origin.waits(true);
            int count = read(buffer);
            origin.waits(false);
            if (count < 0) {
                break;
            }
            keep(buffer, count);
            out.write(buffer, 0, count);
            if (ClientFailure.available(in) == 0) {
                out.flush();
            }
            if (origin.hasAnswered()) {
                return isComplete;
            }
        }
        return true;
    }

    private void writeCollected(OutputStream out, byte[] buffer, Taker origin)
            throws IOException {
        ByteBuffer body = request.body();
        while (body.hasRemaining()) {
            int count = Math.min(buffer.length, body.remaining());
            body.get(buffer, 0, count);
            origin.waits(false);
            out.write(buffer, 0, count);
        }
    }

    private void keep(byte[] buffer, int count) {
        if (!isReplayable || bytes > KEPT_BYTES_MAX || plant.budget().isUsedUp()) {
            isReplayable = false;
            kept.release();
            return;
        }
        kept.add(buffer, count);
    }
}
