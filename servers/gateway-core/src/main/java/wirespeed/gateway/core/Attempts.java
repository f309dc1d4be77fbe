// Judges attempts at addresses, and decides whether another one may follow.
package wirespeed.gateway.core;

import java.util.List;

/** One place for both carriers: whoever retries by other rules than the other one surprises users. */
public final class Attempts {
    private Attempts() {
    }

    /**
     * Whether another attempt may follow one that was lost; takes it from the retry budget.
     *
     * @param isUntouched whether nothing was sent, for want of a connection: then any method may be
     *     tried again
     * @param isReplayable whether all of the body that was read can be sent again
     * @param nowMillis the time that {@link Origin#choose} is asked with
     */
    public static boolean mayFollow(Context context, Loss loss, boolean isUntouched,
            boolean isReplayable, long nowMillis) {
        boolean isSafe = isUntouched || (loss == Loss.UNPROCESSED ? isReplayable
                : isRepeatable(context, isReplayable));
        if (loss == Loss.AFTER_ANSWER || loss == Loss.UNFINISHED || !isSafe) {
            return false;
        }
        return isNoFault(context, loss) || mayAskAnother(context, nowMillis);
    }

    /**
     * An origin that closed a connection before it got the request says so within a round trip and about
     * this; a connect that took longer than the other had lost a packet.
     */
    private static final long CROSSING_NANOS = 250_000_000;
    private static final long ROUND_TRIP_NANOS_MAX = 1_000_000_000;

    /**
     * How far an attempt had come whose connection ended without a byte of an answer.
     *
     * @param wasUsed whether the connection had served another request before
     * @param nanos since the request was sent
     * @param connectNanos which the connection took to be established: about a round trip
     */
    public static Loss withoutAnswer(boolean wasUsed, long nanos, long connectNanos) {
        // Later it is the origin's own end: it has worked on the request, and may have died of it.
        long crossing = CROSSING_NANOS + Math.min(connectNanos, ROUND_TRIP_NANOS_MAX);
        return wasUsed && nanos < crossing ? Loss.STALE : Loss.BEFORE_ANSWER;
    }

    /**
     * Judges a response head before anything else is done with it: one that may not go on speaks for no
     * address.
     *
     * @param tookNanos from asking the address to this head
     * @param waitedNanos from the end of the request to this head; 0 for an earlier one
     * @throws Refusal with 502; the attempt is lost then
     */
    public static void accept(Context context, Address address, Response response, long tookNanos,
            long waitedNanos, long nowMillis) {
        Forwarding.acceptResponse(response);
        context.origin().judge(address, response.status(), waitedNanos / 1_000_000,
                nowMillis - tookNanos / 1_000_000, nowMillis);
    }

    /**
     * Whether the end of an exchange speaks against an address that has not answered: not where the address
     * got the whole request so late that hardly any time was left for its answer.
     *
     * @param left of the exchange when the request was complete, in any unit
     * @param whole the exchange may take, in the same unit
     */
    public static boolean hadTime(long left, long whole) {
        return left >= whole / 2;
    }

    /**
     * Judges an attempt that was lost: an origin whose used connections end again and again, each
     * without an answer, is failing and does not merely close what is unused. To be called once a loss.
     *
     * @param askedMillis when the attempt began
     * @return what is to be made of the loss
     */
    public static Loss lost(Context context, Address address, Loss far, long askedMillis,
            long nowMillis) {
        boolean isOften = far == Loss.STALE && !context.origin().takesStale();
        Loss loss = isOften ? Loss.BEFORE_ANSWER : far;
        if (loss != Loss.UNFINISHED && !isNoFault(context, loss)) {
            address.failed(askedMillis, nowMillis);
        }
        return loss;
    }

    /**
     * Whether the address may be asked again at once: the connection was closed while unused, or the
     * request not looked at, and that for the first time.
     */
    public static boolean isNoFault(Context context, Loss loss) {
        return (loss == Loss.STALE || loss == Loss.UNPROCESSED) && context.attempts() == 1;
    }

    /**
     * Whether an answer is dropped, because another address may have a better one; takes the attempt
     * from the retry budget.
     *
     * @param isReplayable as above; the whole body was read
     */
    public static boolean isTriedElsewhere(Context context, int status, boolean isReplayable,
            long nowMillis) {
        return isUnwanted(context, status) && isRepeatable(context, isReplayable)
                && mayAskAnother(context, nowMillis);
    }

    /** Whether a better answer than one with this status is looked for. */
    public static boolean isUnwanted(Context context, int status) {
        List<Integer> unwanted = context.origin().settings().retry().statuses();
        return !unwanted.isEmpty() && unwanted.contains(status);
    }

    /**
     * Whether a second address may be asked before the first has failed; takes it from the retry
     * budget.
     *
     * @param isReplayable as above; the whole body was read
     */
    public static boolean mayHedge(Context context, boolean isReplayable, long nowMillis) {
        return isRepeatable(context, isReplayable) && mayAskAnother(context, nowMillis);
    }

    private static boolean isRepeatable(Context context, boolean isReplayable) {
        return context.request().isIdempotent() && isReplayable;
    }

    /** Checks the budget last: a retry for which no address is left spends none of it. */
    private static boolean mayAskAnother(Context context, long nowMillis) {
        Origin origin = context.origin();
        return context.attempts() <= origin.settings().retries()
                && origin.hasOther(context, context.address(), nowMillis) && origin.takesRetry();
    }
}
