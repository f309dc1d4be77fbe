// What a filter decided.
package wirespeed.gateway.core;

import java.util.concurrent.CompletionStage;

/** {@link #NEXT} is a constant, so a filter that only looks at a message allocates nothing. */
public final class Step {
    enum Kind { NEXT, RESPOND, FAIL, LATER }

    /** Go on with the next filter. */
    public static final Step NEXT = new Step(Kind.NEXT, null, 0, null, null);

    final Kind kind;
    final Response response;
    final int status;
    final Throwable cause;
    final CompletionStage<Step> stage;

    private Step(Kind kind, Response response, int status, Throwable cause,
            CompletionStage<Step> stage) {
        this.kind = kind;
        this.response = response;
        this.status = status;
        this.cause = cause;
        this.stage = stage;
    }

    /** Answer with this; in the phase post: replace the response by it. */
    public static Step respond(Response response) {
        return new Step(Kind.RESPOND, response, 0, null, null);
    }

    /** Give up with this status; the cause goes to the log and not to the client. */
    public static Step fail(int status, Throwable cause) {
        return new Step(Kind.FAIL, null, status, cause, null);
    }

    /** The decision comes later; the exchange goes on when the stage completes. */
    public static Step later(CompletionStage<Step> stage) {
        return new Step(Kind.LATER, null, 0, null, stage);
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
