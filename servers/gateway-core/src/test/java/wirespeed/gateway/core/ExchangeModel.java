// A carrier without sockets: it gives a state machine every event that can come, and checks what it commands.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.UnaryOperator;
import wirespeed.gateway.core.ExchangeMachine.Command;

/** One exchange: events in, commands out, and what must hold after each of them. */
final class ExchangeModel {
    /** An event, and the categories that it may bring. */
    enum Event {
        /** Filters of the phase. */
        NEXT, ANSWERS, TAPS, TAPS_AND_FAILS(Category.FILTER_ERROR),
        FAILS(Category.FILTER_ERROR), REFUSES(Category.LIMIT), BREAKS_TRANSFORM(Category.FILTER_ERROR),
        /** The request body. */
        REQUEST_WHOLE, REQUEST_FULL(Category.SHED), REQUEST_TOO_LONG(Category.CLIENT_BAD),
        /** An attempt. */
        NO_ADDRESS(Category.NO_ADDRESS), POOL_FULL(Category.LIMIT), NO_CONNECTION(Category.CONNECT),
        STALE(Category.ORIGIN_RESET), BODY_GONE(Category.ORIGIN_RESET), MALFORMED(Category.ORIGIN_MALFORMED),
        RESPONDS, RESPONDS_EMPTY, SWITCHES,
        /** The response body. */
        RESPONSE_WHOLE, RESPONSE_FULL(Category.LIMIT), BODY_BREAKS(Category.ORIGIN_RESET),
        BREAKS_UNSENT(Category.ORIGIN_RESET),
        /** The client has what there is. */
        SENT,
        /** At any time. */
        BAD_BODY(Category.CLIENT_BAD), TOO_SLOW(Category.CLIENT_BAD), GONE(Category.CLIENT_GONE),
        TIMED_OUT(Category.FILTER_ERROR, Category.ORIGIN_TIMEOUT, Category.CLIENT_BAD);

        private final Set<Category> blames;

        Event(Category... blames) {
            this.blames = Set.of(blames);
        }
    }

    /** The chain of the model; its filters decide by events, and only their wishes are asked. */
    static final class Wishes implements FinishFilter {
        private final int bodyBytes;
        private int finished;

        Wishes(int bodyBytes) {
            this.bodyBytes = bodyBytes;
        }

        @Override
        public Phase phase() {
            return Phase.POST;
        }

        @Override
        public int order() {
            return 0;
        }

        @Override
        public int responseBodyBytesMax() {
            return bodyBytes;
        }

        @Override
        public Step apply(Context context) {
            return Step.NEXT;
        }

        @Override
        public void finished(Context context, int status, long nanos) {
            finished++;
        }
    }

    private static final class Reads implements Filter {
        private final int bodyBytes;

        Reads(int bodyBytes) {
            this.bodyBytes = bodyBytes;
        }

        @Override
        public Phase phase() {
            return Phase.PRE;
        }

        @Override
        public int order() {
            return 0;
        }

        @Override
        public int requestBodyBytesMax() {
            return bodyBytes;
        }

        @Override
        public Step apply(Context context) {
            return Step.NEXT;
        }
    }

    /** How an exchange begins; the chain is made once. */
    record Setup(String head, String shed, Wishes wishes, Chain chain) {
        private static final Forwarding FORWARDING = new Forwarding("gw-1", Networks.NONE);

        Setup(String head, int bodyBytes, String shed) {
            this(head, shed, new Wishes(bodyBytes), bodyBytes);
        }

        private Setup(String head, String shed, Wishes wishes, int bodyBytes) {
            this(head, shed, wishes, new Chain(List.of(wishes, new Reads(bodyBytes))));
        }

        ExchangeModel begin() {
            return new ExchangeModel(this);
        }

        /** With a retry budget of its own. */
        private Snapshot snapshot() {
            Origin origin = new Origin("o", List.of(new Address("a", 80), new Address("b", 80)),
                    Balancer.Method.ROUND_ROBIN, Origin.Settings.DEFAULT);
            return new Snapshot(1, chain, new RouteTable(List.of(Route.toAll("all", origin))),
                    Map.of("o", origin), Limits.DEFAULT, FORWARDING);
        }
    }

    private static final String LENGTH = " HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";

    static final List<Setup> SETUPS = List.of(new Setup("GET /p HTTP/1.1\r\nHost: a\r\n\r\n", 0, null),
            new Setup("PUT /p" + LENGTH, 10, null), new Setup("POST /p" + LENGTH, 0, null),
            new Setup("HEAD /p HTTP/1.1\r\nHost: a\r\n\r\n", 10, null),
            new Setup("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 0, null),
            new Setup("GET /p HTTP/1.1\r\nHost: a\r\n\r\n", 0, "too many exchanges"));

    private final Wishes wishes;
    private final Meters meters = new Meters(false);
    private final Context context;
    private final ExchangeMachine machine;
    private final List<Event> past = new ArrayList<>();
    private final Set<Category> blamed = EnumSet.noneOf(Category.class);
    private final List<Phase> phases = new ArrayList<>();
    private Command doing;
    private int heads;
    private int transforms;
    private int closed;
    private int taps;
    private int tapsEnded;
    private boolean hasTapSeenAll;
    private boolean hasResponded;
    private boolean isOver;

    private ExchangeModel(Setup setup) {
        wishes = setup.wishes();
        wishes.finished = 0;
        context = new Context(setup.snapshot(), HeadCheckTest.parse(setup.head()), 0);
        machine = new ExchangeMachine(context, (same, category, cause) -> { });
        if (setup.shed() != null) {
            blamed.add(Category.SHED);
        }
        commanded(machine.begin(setup.shed()));
    }

    boolean isOver() {
        return isOver;
    }

    /** The events that may come next. */
    List<Event> possible() {
        List<Event> events = new ArrayList<>(16);
        switch (doing) {
            case RUN_FILTERS -> {
                events.addAll(List.of(Event.NEXT, Event.ANSWERS, Event.FAILS, Event.REFUSES));
                if (machine.phase() == Phase.POST) {
                    events.addAll(List.of(Event.TAPS, Event.TAPS_AND_FAILS));
                }
                if (machine.phase() == Phase.POST || machine.phase() == Phase.ERROR) {
                    events.add(Event.BREAKS_TRANSFORM);
                }
            }
            case COLLECT_REQUEST -> events.addAll(List.of(Event.REQUEST_WHOLE, Event.REQUEST_FULL,
                    Event.REQUEST_TOO_LONG, Event.TOO_SLOW));
            case ASK, ASK_AGAIN -> events.addAll(List.of(Event.NO_ADDRESS, Event.POOL_FULL,
                    Event.NO_CONNECTION, Event.STALE, Event.BODY_GONE, Event.MALFORMED, Event.RESPONDS,
                    Event.RESPONDS_EMPTY, Event.SWITCHES));
            case COLLECT_RESPONSE -> events.addAll(List.of(Event.RESPONSE_WHOLE, Event.RESPONSE_FULL,
                    Event.BODY_BREAKS));
            case RELAY -> events.addAll(List.of(Event.SENT, Event.BODY_BREAKS, Event.BREAKS_UNSENT));
            case SEND_WHOLE, SEND_HEAD, SWITCH -> events.add(Event.SENT);
            default -> throw new AssertionError("nothing is under way after " + past);
        }
        events.addAll(List.of(Event.BAD_BODY, Event.GONE, Event.TIMED_OUT));
        return events;
    }

    /** Lets it happen; what the machine commands is under way afterwards. */
    void happens(Event event) {
        past.add(event);
        blamed.addAll(event.blames);
        if (event == Event.GONE) {
            machine.clientGone(null);
            end();
        } else if (event == Event.SENT) {
            if (doing == Command.RELAY) {
                machine.relayed();
            }
            end();
        } else {
            commanded(command(event));
        }
    }

    private Command command(Event event) {
        return switch (event) {
            case NEXT -> machine.decided(Step.NEXT, 0);
            case ANSWERS -> machine.decided(Step.respond(Response.of(200, "text/plain", "own")), 0);
            case FAILS -> machine.decided(Step.fail(500, new IllegalStateException("a filter's")), 0);
            case REFUSES -> machine.decided(Step.fail(403, new Refusal(403, "no")), 0);
            case TAPS -> taps(Step.NEXT);
            case TAPS_AND_FAILS -> taps(Step.fail(500, new IllegalStateException("another filter's")));
            case BREAKS_TRANSFORM -> breaks();
            case REQUEST_WHOLE -> whole();
            case REQUEST_FULL -> machine.requestHeld(true);
            case REQUEST_TOO_LONG -> machine.refused(ExchangeMachine.tooLong(machine.bodyBytesMax()));
            case NO_ADDRESS -> machine.noAddress();
            case POOL_FULL -> machine.later(Category.LIMIT, "full");
            case NO_CONNECTION -> lost(Category.CONNECT, Loss.BEFORE_ANSWER, false);
            case STALE -> lost(Category.ORIGIN_RESET, Loss.STALE, true);
            case BODY_GONE -> lost(Category.ORIGIN_RESET, Loss.BEFORE_ANSWER, false);
            case MALFORMED -> lost(Category.ORIGIN_MALFORMED, Loss.AFTER_ANSWER, true);
            case RESPONDS -> responds(200, "Content-Length: 5\r\n");
            case RESPONDS_EMPTY -> responds(204, "");
            case SWITCHES -> responds(101, "Upgrade: websocket\r\n");
            case RESPONSE_WHOLE -> responseWhole();
            case RESPONSE_FULL -> machine.responseHeld(5, true);
            case BODY_BREAKS -> machine.originFailed(Category.ORIGIN_RESET, null);
            case BREAKS_UNSENT -> breaksUnsent();
            case BAD_BODY -> machine.refused(new Refusal(400, "chunk size"));
            case TOO_SLOW -> machine.clientTooSlow();
            case TIMED_OUT -> machine.timedOut();
            default -> throw new AssertionError(event);
        };
    }

    private Command taps(Step step) {
        transform(piece -> piece);
        taps++;
        context.tap(new BodyTap() {
            @Override
            public void chunk(ByteBuffer bytes) {
                // Only carriers pass bodies.
            }

            @Override
            public void end(boolean isComplete) {
                tapsEnded++;
                hasTapSeenAll = isComplete;
            }
        });
        return machine.decided(step, 0);
    }

    /** Fails where the body is in memory, as it is for most responses of the phase error. */
    private Command breaks() {
        transform(piece -> {
            throw new IllegalStateException("a transform's");
        });
        return machine.decided(Step.NEXT, 0);
    }

    private void transform(UnaryOperator<ByteBuffer> change) {
        transforms++;
        context.response().transform(new BodyTransform() {
            @Override
            public ByteBuffer chunk(ByteBuffer piece) {
                return change.apply(piece);
            }

            @Override
            public ByteBuffer end() {
                return ByteBuffer.allocate(0);
            }

            @Override
            public void close() {
                closed++;
            }
        });
    }

    private Command whole() {
        context.request().body(ByteBuffer.wrap("hello".getBytes(StandardCharsets.US_ASCII)));
        return machine.collected();
    }

    private Command lost(Category category, Loss loss, boolean isReplayable) {
        context.attempt(context.origin().addresses().get(0));
        Command next = machine.lost(category, loss, null, isReplayable, 0);
        if (next == Command.ASK_AGAIN) {
            assertFalse(hasResponded, () -> "asked again behind a response: " + past);
            assertTrue(loss != Loss.AFTER_ANSWER, () -> "asked again behind a byte of it: " + past);
            assertTrue(isReplayable || category == Category.CONNECT, () -> "without its body: " + past);
            assertTrue(context.request().isIdempotent() || category == Category.CONNECT,
                    () -> "a method that must not be repeated: " + past);
        }
        return next;
    }

    private Command responds(int status, String fields) {
        context.attempt(context.origin().addresses().get(0));
        byte[] head = ("HTTP/1.1 " + status + " X\r\n" + fields + "\r\n")
                .getBytes(StandardCharsets.US_ASCII);
        Response response = HeadCheck.response(head, 0, head.length, Limits.DEFAULT);
        response.answers(context.request().method());
        Command next = machine.responded(response);
        hasResponded |= next != Command.WAIT;
        return next;
    }

    private Command responseWhole() {
        context.response().body(ByteBuffer.wrap("hello".getBytes(StandardCharsets.US_ASCII)));
        return machine.collected();
    }

    private Command breaksUnsent() {
        heads--;
        machine.takenBack();
        return machine.originFailed(Category.ORIGIN_RESET, null);
    }

    private void commanded(Command next) {
        switch (next) {
            case WAIT -> {
                return;
            }
            case RUN_FILTERS -> phases.add(machine.phase());
            case SEND_WHOLE, SEND_HEAD, RELAY, SWITCH -> heads++;
            case CUT -> assertEquals(1, heads, () -> "cut without a head: " + past);
            default -> { }
        }
        doing = next;
        assertTrue(heads <= 1, () -> "a second response head: " + past);
        assertEquals(heads == 0 ? 0 : context.response().status(), machine.status(), past::toString);
        for (Phase phase : Phase.values()) {
            long runs = phases.stream().filter(one -> one == phase).count();
            assertTrue(runs <= (phase == Phase.ERROR ? 2 : 1), () -> runs + " × " + phase + ": " + past);
        }
        if (next == Command.CUT) {
            end();
        }
    }

    /** The client leaves in the end, whatever is under way. */
    void ends() {
        if (!isOver) {
            happens(Event.GONE);
        }
    }

    /** Time alone ends it: the second time-out is for filters of the phase error that wait. */
    void timesOut() {
        for (int i = 0; i < 2 && !isOver && heads == 0; i++) {
            happens(Event.TIMED_OUT);
        }
        assertTrue(isOver || heads == 1, () -> "no response in time: " + past);
    }

    private void end() {
        isOver = true;
        boolean isRelayed = past.get(past.size() - 1) == Event.SENT && doing == Command.RELAY;
        assertTrue(machine.end(meters, 1), past::toString);
        assertFalse(machine.end(meters, 2), past::toString);
        assertEquals(transforms, closed, () -> "a transform is not closed once: " + past);
        assertEquals(taps, tapsEnded, () -> "a tap is not ended once: " + past);
        assertFalse(hasTapSeenAll && (!isRelayed || context.category() != Category.OK),
                () -> "a tap ends as if it had seen all: " + past);
        Category blame = context.category();
        if (past.get(past.size() - 1) == Event.GONE && doing != Command.SWITCH) {
            assertEquals(Category.CLIENT_GONE, blame, past::toString);
        }
        assertTrue(blamed.isEmpty() ? blame == Category.OK : blamed.contains(blame) || blame == Category.OK,
                () -> blame + " is blamed: " + past);
        staysOver();
        assertEquals(1, wishes.finished, () -> "lines of the access log: " + past);
        assertEquals(1, meters.get(Meters.Count.REQUESTS_ENDED), past::toString);
    }

    private void staysOver() {
        Category blame = context.category();
        Response response = context.response();
        for (Command late : List.of(machine.decided(Step.NEXT, 0), machine.timedOut(), machine.collected(),
                machine.clientTooSlow(), machine.noAddress(), machine.requestHeld(true),
                machine.responseHeld(1 << 20, true), machine.originFailed(Category.ORIGIN_RESET, null),
                machine.lost(Category.CONNECT, Loss.UNPROCESSED, null, true, 0),
                machine.responded(Response.of(200, "text/plain", "late")))) {
            assertEquals(Command.WAIT, late, () -> "a command after the end: " + past);
        }
        machine.clientGone(null);
        assertEquals(blame, context.category(), past::toString);
        assertEquals(response, context.response(), past::toString);
    }
}
