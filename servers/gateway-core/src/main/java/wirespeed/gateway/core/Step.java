// What a filter decided.
package wirespeed.gateway.core;

import java.util.concurrent.CompletionStage;
import java.util.function.Supplier;

/** {@link #NEXT} is a constant, so a filter that only looks at a message allocates nothing. */
public final class Step {
    enum Kind { NEXT, RESPOND, FAIL, LATER }

    /** Go on with the next filter. */
    public static final Step NEXT = new Step(Kind.NEXT, null, 0, null, null, null);

    final Kind kind;
    final Response response;
    final int status;
    final Throwable cause;
    final CompletionStage<?> stage;
    /** Makes the decision when the stage is complete; null where the stage brings it. */
    final Supplier<Step> then;

    private Step(Kind kind, Response response, int status, Throwable cause,
            CompletionStage<?> stage, Supplier<Step> then) {
        this.then = then;
        this.kind = kind;
        this.response = response;
        this.status = status;
        this.cause = cause;
        this.stage = stage;
    }

    /** Answer with this; in the phase post: replace the response by it. */
    public static Step respond(Response response) {
        return new Step(Kind.RESPOND, response, 0, null, null, null);
    }

    /** Give up with this status; the cause goes to the log and not to the client. */
    public static Step fail(int status, Throwable cause) {
        return new Step(Kind.FAIL, null, status, cause, null, null);
    }

    /**
     * The decision comes later; the exchange goes on when the stage completes. Code of the stage runs on
     * another thread and must not touch the {@link Context}: see {@link #later(CompletionStage, Supplier)}.
     */
    public static Step later(CompletionStage<Step> stage) {
        return new Step(Kind.LATER, null, 0, null, stage, null);
    }

    /**
     * The decision comes when the stage is complete, and is made by the exchange's own thread: only there
     * may a filter touch the {@link Context}.
     *
     * @param then asked once; its answer is a decision and not another wait
     */
    public static Step later(CompletionStage<?> stage, Supplier<Step> then) {
        return new Step(Kind.LATER, null, 0, null, stage, then);
    }

    public boolean isNext() {
        return kind == Kind.NEXT;
    }

    /** The answer, or null. */
    public Response response() {
        return response;
    }

    public boolean isFailure() {
        return kind == Kind.FAIL;
    }

    public int status() {
        return status;
    }

    public Throwable cause() {
        return cause;
    }
}
