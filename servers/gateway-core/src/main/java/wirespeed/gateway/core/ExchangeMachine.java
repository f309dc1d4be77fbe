// The course of one exchange: what is done next, who is to blame, and what the client gets.
package wirespeed.gateway.core;

/**
 * A state machine that both carriers execute, without I/O, clock and threads of its own. Each method is
 * an event; what it returns is the command that the carrier carries out next. Commands are constants:
 * an event allocates nothing unless the exchange fails. Used by one thread at a time.
 */
public final class ExchangeMachine {
    /** What a carrier does next. */
    public enum Command {
        /** Nothing: go on with what is under way. */
        WAIT,
        /** Read the whole request body and report it: {@link #requestHeld}, {@link #collected}. */
        COLLECT_REQUEST,
        /** Run the filters of {@link #phase} and report their decision: {@link #decided}. */
        RUN_FILTERS,
        /** Ask an address of the context's origin. */
        ASK,
        /** Ask an address once more; the one before has given no response. */
        ASK_AGAIN,
        /** Read the origin's whole body and report it: {@link #responseHeld}, {@link #collected}. */
        COLLECT_RESPONSE,
        /** Send the context's response, whose body is in memory; nothing more of the origin's counts. */
        SEND_WHOLE,
        /** Send the context's response without the body that the origin sends. */
        SEND_HEAD,
        /** Send the context's response, and its body as the origin sends it; report {@link #relayed}. */
        RELAY,
        /** Send the 101 of the context's response and pass raw bytes both ways. */
        SWITCH,
        /** End the client's connection or stream, so that it does not take what it has for complete. */
        CUT
    }

    private enum State {
        /** The request body is read for filters. */
        COLLECTING,
        /** Filters run, or one of them waits. */
        PRE, ROUTE, POST, ERROR,
        /** The filters of the phase error run, after those of the phase post: nothing runs after them. */
        LAST_ERROR,
        /** An address is asked; no final response head has come. */
        ASKING,
        /** The origin's body is read for filters. */
        RECEIVING,
        /** The client gets a response that needs nothing more of the origin. */
        SENDING,
        /** The client gets a response whose body the origin still sends. */
        RELAYING,
        /** The whole body has passed. */
        RELAYED,
        SWITCHED,
        OVER
    }

    /** Where failures are logged. */
    public interface Log {
        /** The exchange fails because of this. */
        void failed(Context context, Category category, Throwable cause);
    }

    private static final String MEMORY_FULL = "bodies that wait take too much memory";

    private final Context context;
    private final Log log;
    private State state = State.PRE;
    private int collectMax;
    private Framing framing;
    private boolean isLast;

    /** An exchange that {@link #begin begins} next. */
    public ExchangeMachine(Context context, Log log) {
        this.context = context;
        this.log = log;
    }

    /** Whose filters run. */
    public Phase phase() {
        return switch (state) {
            case PRE -> Phase.PRE;
            case ROUTE -> Phase.ROUTE;
            case POST -> Phase.POST;
            case ERROR, LAST_ERROR -> Phase.ERROR;
            default -> throw new IllegalStateException("no filters run in state " + state);
        };
    }

    /** Whether filters run, or one of them waits. */
    public boolean isFiltering() {
        return switch (state) {
            case PRE, ROUTE, POST, ERROR, LAST_ERROR -> true;
            default -> false;
        };
    }

    /** Whether filters run of a phase other than error: a failure that comes meanwhile ends it. */
    public boolean isDeciding() {
        return isFiltering() && !isFailing();
    }

    /** Whether the exchange has failed, and the filters of the phase error run. */
    public boolean isFailing() {
        return state == State.ERROR || state == State.LAST_ERROR;
    }

    /** Whether the request body is read for filters. */
    public boolean isCollecting() {
        return state == State.COLLECTING;
    }

    /** Whether an address is asked that has not sent a final response head. */
    public boolean isAsking() {
        return state == State.ASKING;
    }

    /** Whether the origin's body is read for filters. */
    public boolean isReceiving() {
        return state == State.RECEIVING;
    }

    /** Whether the client has a response head, or is about to get it. */
    public boolean isHeadSent() {
        return state == State.SENDING || state == State.RELAYING || state == State.RELAYED;
    }

    /** Whether the origin has answered, and the exchange waits for nothing more of it. */
    public boolean isAnswered() {
        return state == State.POST || state == State.LAST_ERROR || state == State.SENDING;
    }

    public boolean isSwitched() {
        return state == State.SWITCHED;
    }

    public boolean isOver() {
        return state == State.OVER;
    }

    /** Whether no other request may follow on the client's connection. */
    public boolean isLast() {
        return isLast;
    }

    /** The framing of the body that the client gets, once a response is to be sent. */
    public Framing framing() {
        return framing;
    }

    /** The status that the client gets; 0 while it has no head. */
    public int status() {
        return isHeadSent() || isSwitched() ? context.response().status() : 0;
    }

    /**
     * How long the request body may be at this time; negative for any length: before there is a route,
     * its limit is not known.
     */
    public long bodyBytesMax() {
        if (state == State.COLLECTING) {
            return collectMax;
        }
        return context.route() == null ? -1 : context.bodyBytesMax();
    }

    /** Why a request body above this limit is refused. */
    public static Refusal tooLong(long max) {
        return new Refusal(413, "request body is longer than " + max + " bytes");
    }

    /**
     * The head of the request is there.
     *
     * @param shed why the gateway takes no more requests now; null if it does
     */
    public Command begin(String shed) {
        if (shed != null) {
            return later(Category.SHED, shed);
        }
        Request request = context.request();
        try {
            context.snapshot().accept(request);
        } catch (Refusal refusal) {
            return refused(refusal);
        }
        Response own = Forwarding.ownAnswer(request);
        if (own != null) {
            return answer(own);
        }
        collectMax = request.framing().isEmpty() ? 0
                : context.snapshot().chain().requestBodyBytesMax(context);
        return collectMax == 0 ? run(State.PRE) : enter(State.COLLECTING, Command.COLLECT_REQUEST);
    }

    /** A piece of the body that is collected is in memory. */
    public Command requestHeld(boolean isMemoryFull) {
        if (state != State.COLLECTING || !isMemoryFull) {
            return Command.WAIT;
        }
        isLast = true;
        return later(Category.SHED, MEMORY_FULL);
    }

    /**
     * A piece of the response body that is collected is in memory.
     *
     * @param bytes of the body so far
     */
    public Command responseHeld(long bytes, boolean isMemoryFull) {
        boolean isTooLong = bytes > collectMax;
        if (state != State.RECEIVING || !isTooLong && !isMemoryFull) {
            return Command.WAIT;
        }
        return failed(isTooLong ? 502 : 503, Category.LIMIT, new IllegalStateException(isTooLong
                ? "response body is longer than the " + collectMax + " bytes a filter reads" : MEMORY_FULL));
    }

    /** The message has the body that was collected. */
    public Command collected() {
        return switch (state) {
            case COLLECTING -> run(State.PRE);
            case RECEIVING -> run(State.POST);
            default -> Command.WAIT;
        };
    }

    /**
     * The filters of the phase have decided.
     *
     * @param bodyBytes of the request body that were read so far
     */
    public Command decided(Step step, long bodyBytes) {
        if (!isFiltering()) {
            return Command.WAIT;
        }
        if (step.isFailure()) {
            return filterFailed(step);
        }
        return step.response() == null ? passed(bodyBytes) : answered(step.response());
    }

    private Command filterFailed(Step step) {
        if (phase() == Phase.ERROR) {
            log.failed(context, Category.FILTER_ERROR, step.cause());
            return send();
        }
        return failed(step.status(), step.status() >= 500 ? Category.FILTER_ERROR : Category.LIMIT,
                step.cause());
    }

    private Command passed(long bodyBytes) {
        return switch (state) {
            case PRE -> route(bodyBytes);
            case ROUTE -> ask();
            default -> send();
        };
    }

    /** Post filters see every response once, also one that takes the place of a failure. */
    private Command answered(Response response) {
        if (state != State.POST && state != State.LAST_ERROR) {
            return answer(response);
        }
        replace(response);
        return send();
    }

    private Command answer(Response response) {
        replace(response);
        return run(State.POST);
    }

    /** The transform of the response before is closed. */
    private void replace(Response response) {
        Response before = context.response();
        context.response(response);
        if (before != null && before != response) {
            endTransform(before);
        }
    }

    /** Whatever a filter throws here, the exchange goes on. */
    private void endTransform(Response response) {
        try {
            response.endTransform();
        } catch (RuntimeException | Error failed) {
            log.failed(context, Category.FILTER_ERROR, failed);
        }
    }

    private Command route(long bodyBytes) {
        Request request = context.request();
        try {
            Route route = context.snapshot().routes().find(request);
            if (route == null) {
                return failed(404, Category.NO_ROUTE, null);
            }
            context.route(route);
            route.checkPath(request);
            long max = context.bodyBytesMax();
            if (max >= 0 && Math.max(bodyBytes, request.framing().length()) > max) {
                return refused(tooLong(max));
            }
        } catch (Refusal refusal) {
            return refused(refusal);
        }
        return run(State.ROUTE);
    }

    private Command ask() {
        context.snapshot().forwarding().prepare(context.request());
        StrippedPrefix.tell(context);
        context.origin().countRequest();
        return enter(State.ASKING, Command.ASK);
    }

    /** No address of the origin may be asked. */
    public Command noAddress() {
        return later(Category.NO_ADDRESS, "no address of the origin is usable");
    }

    /**
     * An attempt was lost; another one may follow, which the carrier reports as {@link #originFailed} if
     * it has no address for it.
     *
     * @param loss as {@link Attempts#lost} judged it
     * @param isReplayable whether all of the body that was read can be sent again
     * @param nowMillis the time that {@link Origin#choose} is asked with
     */
    public Command lost(Category category, Loss loss, Throwable cause, boolean isReplayable,
            long nowMillis) {
        boolean isRetried = state == State.ASKING && Attempts.mayFollow(context, loss,
                category == Category.CONNECT, isReplayable, nowMillis);
        return isRetried ? Command.ASK_AGAIN : originFailed(category, cause);
    }

    /** The origin has given no response, or not all of it. */
    public Command originFailed(Category category, Throwable cause) {
        return failed(category == Category.ORIGIN_TIMEOUT ? 504 : 502, category, cause);
    }

    /** The head of a final response is there, which {@link Attempts#accept} has taken. */
    public Command responded(Response response) {
        if (state != State.ASKING) {
            return Command.WAIT;
        }
        context.response(response);
        StrippedPrefix.restore(context);
        context.origin().settings().persistence().bind(context);
        if (response.status() == 101) {
            return enter(State.SWITCHED, Command.SWITCH);
        }
        collectMax = response.received().isEmpty() ? 0
                : context.snapshot().chain().responseBodyBytesMax(context);
        return collectMax == 0 ? run(State.POST) : enter(State.RECEIVING, Command.COLLECT_RESPONSE);
    }

    private Command send() {
        Response response = context.response();
        try {
            response.transformBody();
        } catch (RuntimeException | Error failed) {
            return fail(500, Category.FILTER_ERROR, failed);
        }
        framing = response.framingFor(context.request());
        if (response.body() != null) {
            return enter(State.SENDING, Command.SEND_WHOLE);
        }
        if (framing.isEmpty()) {
            // Nothing follows the head, so a transform must not append its end.
            endTransform(response);
        }
        return framing.isEmpty() && !response.received().isEmpty()
                ? enter(State.SENDING, Command.SEND_HEAD) : enter(State.RELAYING, Command.RELAY);
    }

    /** The client has the whole body that the origin has sent. */
    public void relayed() {
        if (state == State.RELAYING) {
            state = State.RELAYED;
        }
    }

    /** The head of the response has not left, and will not: the client can still get another one. */
    public void takenBack() {
        if (state == State.RELAYING) {
            state = State.POST;
        }
    }

    /** The request, or its body, is not accepted. */
    public Command refused(Refusal refusal) {
        isLast = true;
        return failed(refusal.status(), Category.CLIENT_BAD, refusal);
    }

    /** The client does not send its request body in time. */
    public Command clientTooSlow() {
        return refused(new Refusal(408, "request body did not arrive in time"));
    }

    /** The exchange has taken too long altogether: whoever was waited for is to blame. */
    public Command timedOut() {
        if (state == State.COLLECTING) {
            return clientTooSlow();
        }
        return isFiltering() ? filterFailed(Step.fail(504,
                new IllegalStateException("a filter's stage was not complete in time")))
                : originFailed(Category.ORIGIN_TIMEOUT, null);
    }

    /** The gateway has no room for this exchange; the client should come back. */
    public Command later(Category category, String reason) {
        if (isFailing()) {
            return Command.WAIT;
        }
        if (isDecided()) {
            return late();
        }
        context.category(category);
        replace(Failure.retryLater(context.request(), 503, reason));
        return runErrorFilters();
    }

    /**
     * The exchange cannot go on. One that has failed already goes on with that failure.
     *
     * @param cause for the log and the filters of the phase error; the client reads only why what it has
     *     sent was refused, or why a filter refuses it
     */
    public Command failed(int status, Category category, Throwable cause) {
        return state == State.OVER || isFailing() ? Command.WAIT : fail(status, category, cause);
    }

    private Command fail(int status, Category category, Throwable cause) {
        context.category(category);
        context.failure(cause);
        if (category == Category.FILTER_ERROR) {
            log.failed(context, category, cause);
        }
        if (isDecided()) {
            return late();
        }
        boolean isPublic = cause instanceof Refusal && category != Category.ORIGIN_MALFORMED;
        replace(Failure.of(context.request(), status, isPublic ? cause.getMessage() : ""));
        return runErrorFilters();
    }

    /** Whether it is too late for another response. */
    private boolean isDecided() {
        return state == State.OVER || state == State.SWITCHED || isHeadSent();
    }

    private Command late() {
        return state == State.OVER ? Command.WAIT : Command.CUT;
    }

    private Command runErrorFilters() {
        return switch (state) {
            // The response of these filters cannot be sent: now the client gets the plain failure.
            case LAST_ERROR -> send();
            case POST, ERROR -> run(State.LAST_ERROR);
            default -> run(State.ERROR);
        };
    }

    /**
     * The client is gone; the exchange is to be ended.
     *
     * @param cause for the log; null where none is known
     */
    public void clientGone(Throwable cause) {
        // Either side ends a connection that has switched protocols, and it ends in no other way.
        if (state != State.SWITCHED && state != State.OVER) {
            context.category(Category.CLIENT_GONE);
            if (cause != null) {
                context.failure(cause);
            }
        }
    }

    /**
     * Ends the exchange: it is counted and logged once, and what filters hold for it is released. To be
     * called before the last byte leaves: whoever has the response can see the count.
     *
     * @return whether this was its end; false when it is over already
     */
    public boolean end(Meters meters, long nowNanos) {
        if (state == State.OVER) {
            return false;
        }
        int status = status();
        boolean hasTapSeenAll = state == State.RELAYED && context.category() == Category.OK;
        state = State.OVER;
        if (context.response() != null) {
            endTransform(context.response());
        }
        endTap(hasTapSeenAll);
        meters.ended(context, status, nowNanos);
        context.snapshot().chain().finished(context, status, nowNanos);
        return true;
    }

    private void endTap(boolean hasSeenAll) {
        BodyTap tap = context.tap();
        context.tap(null);
        try {
            if (tap != null) {
                tap.end(hasSeenAll);
            }
        } catch (RuntimeException | Error failed) {
            log.failed(context, Category.FILTER_ERROR, failed);
        }
    }

    private Command run(State next) {
        return enter(next, Command.RUN_FILTERS);
    }

    private Command enter(State next, Command command) {
        state = next;
        return command;
    }
}
