// A shared cache in memory that follows RFC 9111, as three filters.
package wirespeed.gateway.runtime;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import wirespeed.gateway.core.Authority;
import wirespeed.gateway.core.BodyTap;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Failure;
import wirespeed.gateway.core.Filter;
import wirespeed.gateway.core.FinishFilter;
import wirespeed.gateway.core.Forwarding;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.core.Step;
import wirespeed.gateway.runtime.CacheTable.Asked;
import wirespeed.gateway.runtime.CacheTable.Target;

/**
 * Looked up when the route is known and everything else has agreed; stored when the origin has
 * answered and before other filters change the answer. Equal requests that arrive while one is
 * asked wait for it (collapsing), bounded in number and time.
 */
final class ContentCache {
    /** In the phase ROUTE; no table says a larger one. */
    static final int LOOKUP_ORDER = 1_000_000;
    private static final String ENTRY = "cache.entry";
    private static final String LEADER = "cache.leader";
    private static final String ASKED = "cache.asked";
    /** Set when the validators that the origin gets are those of the stored response. */
    private static final String VALIDATES = "cache.validates";
    private static final String SET_COOKIE = "Set-Cookie";
    private static final int ALONE_MAX = 100_000;
    private static final int FOLLOWERS_MAX = 1000;
    private static final int DO_NOT_COLLAPSE_SECONDS = 10;

    private static final class Flight {
        final long begunNanos = System.nanoTime();
        final CompletableFuture<Step> done = new CompletableFuture<>();
        final AtomicInteger followers = new AtomicInteger();
    }

    private static final byte[] NOTHING = {};
    private static final int COLLECTED_BYTES_MIN = 4096;

    private final long entryBytesMax;
    /** Of all bodies on their way into the cache; one that finds no room is not stored. */
    private final long collectingMax;
    private final AtomicLong collecting = new AtomicLong();
    private final long collapseMillis;
    private final CacheTable table;
    private final Cache<Target, Boolean> alone = Caffeine.newBuilder().maximumSize(ALONE_MAX)
            .expireAfterWrite(DO_NOT_COLLAPSE_SECONDS, TimeUnit.SECONDS).build();
    private final ConcurrentHashMap<Target, Flight> flights = new ConcurrentHashMap<>();
    final AtomicLong hits = new AtomicLong();
    final AtomicLong misses = new AtomicLong();

    ContentCache(OptionValues options) {
        entryBytesMax = options.bytes("entry");
        collapseMillis = options.millis("collapse");
        collectingMax = Math.max(entryBytesMax, options.bytes("size") / 4);
        table = new CacheTable(options.bytes("size"));
    }

    List<Filter> filters() {
        return List.of(new Lookup(), new Store(), new StandIn());
    }

    /** Drops what begins with this "scheme://host/path"; the answer is how many URIs. */
    int purge(String prefix) {
        return table.purge(prefix);
    }

    /**
     * X-Forwarded-Proto and -Host go to the origin and may change its answer. They are only there
     * when the client is trusted, or when the gateway has set them to the same values itself.
     */
    private static String uri(Request request) {
        return uri(request, host(request));
    }

    private static String host(Request request) {
        String host = request.headers().get("X-Forwarded-Host");
        return String.valueOf(host == null ? request.host() : host).toLowerCase(Locale.ROOT);
    }

    private static String uri(Request request, String host) {
        return scheme(request) + "://" + host + request.pathWithParameters()
                + (request.query() == null ? "" : "?" + request.query());
    }

    private static String scheme(Request request) {
        String scheme = request.headers().get("X-Forwarded-Proto");
        return scheme == null ? request.scheme() : scheme;
    }

    private final class Lookup implements FinishFilter {
        @Override
        public Phase phase() {
            return Phase.ROUTE;
        }

        @Override
        public int order() {
            return LOOKUP_ORDER;
        }

        @Override
        public String name() {
            return "cache.lookup";
        }

        @Override
        public boolean shouldFilter(Context context) {
            String method = context.request().method();
            // What a body asks for is not part of the key.
            return (method.equals("GET") || method.equals("HEAD"))
                    && context.request().framing().isEmpty()
                    && context.request().host() != null && context.request().upgrade() == null
                    && !context.request().headers().has("Range")
                    && !context.request().headers().has("Forwarded");
        }

        @Override
        public Step apply(Context context) {
            CacheControl control = CacheControl.of(context.request().headers());
            if (control.has("no-store")) {
                return Step.NEXT;
            }
            String owner = context.route().name() + '\n' + context.origin().name();
            Asked looked = table.asked(uri(context.request()), owner, context.request().headers());
            StoredResponse stored = table.find(looked);
            Step hit = stored == null ? null : hit(looked, stored, control);
            if (hit != null) {
                return hit;
            }
            // Others change the request's fields from here on.
            Asked asked = looked.kept();
            context.attribute(ASKED, asked);
            if (stored != null) {
                askAgain(context, asked, stored);
            }
            if (control.has("only-if-cached")) {
                context.category(Category.LIMIT);
                return Step.respond(Failure.of(context.request(), 504, ""));
            }
            misses.incrementAndGet();
            return context.request().method().equals("GET") && !wantsOrigin(control)
                    && !isAuthenticated(context.request())
                    ? collapse(context, asked, control) : Step.NEXT;
        }

        @Override
        public void finished(Context context, int status, long nanos) {
            land(context, false);
        }
    }

    /** The stored response if it may be used; else null, and the request asks for validation. */
    private Step serve(Context context, Asked asked, CacheControl control) {
        StoredResponse stored = table.find(asked);
        if (stored == null) {
            return null;
        }
        Step hit = hit(asked, stored, control);
        if (hit == null) {
            askAgain(context, asked, stored);
        }
        return hit;
    }

    /** The stored response if it may be used; else null. */
    private Step hit(Asked asked, StoredResponse stored, CacheControl control) {
        long now = System.currentTimeMillis();
        long fresh = stored.freshForSeconds(now);
        boolean isOldForClient = control.has("max-age")
                && stored.ageSeconds(now) > control.seconds("max-age")
                || control.has("min-fresh") && fresh < control.seconds("min-fresh");
        if (isOldForClient || wantsOrigin(control) || stored.control().has("no-cache")) {
            return null;
        }
        boolean isUsable = fresh > 0
                || !stored.mustRevalidate() && -fresh <= control.staleSecondsMax()
                || mayRefreshLater(asked, stored, -fresh);
        if (!isUsable) {
            return null;
        }
        hits.incrementAndGet();
        return Step.respond(stored.toResponse(asked.fields(), now));
    }

    /** What is stored is older than a max-age of 0, although its age in whole seconds may be 0. */
    private static boolean wantsOrigin(CacheControl control) {
        return control.has("no-cache") || control.seconds("max-age") == 0;
    }

    /** The origin is asked whether the stored response is still right. */
    private static void askAgain(Context context, Asked asked, StoredResponse stored) {
        context.attribute(ENTRY, stored);
        if (!isConditional(asked.fields()) && stored.hasValidator()) {
            context.attribute(VALIDATES, true);
            validate(context.request().headers(), stored.headers());
        }
    }

    /**
     * RFC 5861 §3: while one request asks the origin, the others need not wait for it. The one that
     * asks is an ordinary request of a client; the gateway makes none of its own.
     */
    private boolean mayRefreshLater(Asked asked, StoredResponse stored, long staleSeconds) {
        return staleSeconds <= stored.staleWhileRevalidateSeconds() && !stored.mustRevalidate()
                && flights.containsKey(asked.target());
    }

    /** §4.3.1: a client that has validators of its own gets the answer to those. */
    private static boolean isConditional(Headers asked) {
        return asked.has("If-None-Match") || asked.has("If-Modified-Since")
                || asked.has("If-Match") || asked.has("If-Unmodified-Since");
    }

    /** In place of the validators of an earlier look, before the request waited for another. */
    private static void validate(Headers headers, Headers stored) {
        headers.remove("If-None-Match");
        headers.remove("If-Modified-Since");
        if (stored.has("ETag")) {
            headers.set("If-None-Match", stored.get("ETag"));
        }
        if (stored.has("Last-Modified")) {
            headers.set("If-Modified-Since", stored.get("Last-Modified"));
        }
    }

    private Step collapse(Context context, Asked asked, CacheControl control) {
        if (collapseMillis == 0 || alone.getIfPresent(asked.target()) != null) {
            return Step.NEXT;
        }
        Flight mine = new Flight();
        Flight other = flights.putIfAbsent(asked.target(), mine);
        if (other == null) {
            context.attribute(LEADER, mine);
            Step hit = storedMeanwhile(context, asked, control);
            if (hit != null) {
                land(context, true);
            }
            return hit == null ? Step.NEXT : hit;
        }
        boolean isSlow = System.nanoTime() - other.begunNanos > collapseMillis * 1_000_000;
        if (isSlow || other.followers.incrementAndGet() > FOLLOWERS_MAX) {
            return Step.NEXT;
        }
        // On a thread of its own exchange, and not on that of the one it waited for.
        return Step.later(other.done.copy()
                .completeOnTimeout(Step.NEXT, collapseMillis, TimeUnit.MILLISECONDS), () -> {
                    Step found = serve(context, asked, control);
                    return found == null ? Step.NEXT : found;
                });
    }

    /**
     * The response of an exchange that ended between the look at the cache and now; null if none did, or if
     * the origin is to be asked whether that is still right.
     */
    private Step storedMeanwhile(Context context, Asked asked, CacheControl control) {
        StoredResponse stored = table.find(asked);
        boolean isNew = stored != null && stored != context.attribute(ENTRY);
        return isNew ? serve(context, asked, control) : null;
    }

    /** Lets the requests go that wait for this exchange; when it has none, or did before, does nothing. */
    private void land(Context context, boolean isStored) {
        Flight flight = (Flight) context.attribute(LEADER);
        if (flight == null) {
            return;
        }
        Target target = ((Asked) context.attribute(ASKED)).target();
        if (flights.remove(target, flight) && !isStored) {
            alone.put(target, true);
        }
        flight.done.complete(Step.NEXT);
    }

    private final class Store implements Filter {
        @Override
        public Phase phase() {
            return Phase.POST;
        }

        @Override
        public int order() {
            return -1_000_000;
        }

        @Override
        public String name() {
            return "cache.store";
        }

        @Override
        public boolean shouldFilter(Context context) {
            return !context.response().isLocal();
        }

        @Override
        public Step apply(Context context) {
            Asked asked = (Asked) context.attribute(ASKED);
            if (asked == null) {
                invalidate(context);
                return Step.NEXT;
            }
            StoredResponse before = (StoredResponse) context.attribute(ENTRY);
            boolean validates = context.attribute(VALIDATES) != null;
            if (context.response().status() == 304 && validates) {
                revalidated(context, asked, before);
                return Step.NEXT;
            }
            if (context.response().status() == 304 && before != null
                    && before.isIdentifiedBy(context.response().headers())) {
                // The client's own copy is that which is stored, and the origin has confirmed it.
                land(context, isKept(context, asked, refreshed(context, before)));
                return Step.NEXT;
            }
            if (before != null && context.request().method().equals("HEAD")
                    && before.isContradictedBy(context.response())) {
                table.drop(asked);
            }
            if (context.response().status() >= 500 && mayStandIn(before)) {
                context.response(before.toResponse(new Headers(), System.currentTimeMillis()));
            } else if (isWanted(context)) {
                collect(context, new Collector(context, asked));
                return Step.NEXT;
            }
            land(context, false);
            return Step.NEXT;
        }
    }

    /** A body that a filter wanted to see whole is in memory already. */
    private static void collect(Context context, Collector collector) {
        ByteBuffer whole = context.response().body();
        if (whole == null) {
            context.tap(collector);
        } else {
            collector.chunk(whole);
            collector.end(true);
        }
    }

    private boolean isWanted(Context context) {
        Response response = context.response();
        Framing framing = response.framing();
        boolean isTooLong = framing != null && framing.kind() == Framing.Kind.LENGTH
                && framing.length() > entryBytesMax;
        return context.request().method().equals("GET") && !isTooLong
                && mayStore(context.request(), response.status(), response.headers());
    }

    /** The other filters of the phase change what is stored as they do the origin's answer. */
    private void revalidated(Context context, Asked asked, StoredResponse before) {
        long now = System.currentTimeMillis();
        if (!before.isConfirmedBy(context.response().headers())) {
            // §4.3.4: about another response. This one was not fresh, and is used this time only.
            table.drop(asked);
            land(context, false);
            context.response(before.toResponse(new Headers(), now));
            return;
        }
        StoredResponse fresh = refreshed(context, before);
        land(context, isKept(context, asked, fresh));
        Response answer = fresh.toResponse(new Headers(), now);
        context.response().headers().all(SET_COOKIE).forEach(cookie ->
                answer.headers().add(SET_COOKIE, cookie));
        context.response(answer);
    }

    private static StoredResponse refreshed(Context context, StoredResponse before) {
        return before.refreshed(context.response().headers(), askedMillis(context), System.currentTimeMillis());
    }

    /**
     * Whether it may be stored in place of the old one, and is; else that is dropped, unless it is only this
     * client that it may not be stored for.
     */
    private boolean isKept(Context context, Asked asked, StoredResponse fresh) {
        boolean isStored = mayStore(context.request(), fresh.status(), fresh.headers());
        if (isStored) {
            table.put(asked, fresh);
        } else if (!mayStore(CacheControl.of(fresh.headers()), fresh.status(), fresh.headers())) {
            table.drop(asked);
        }
        return isStored;
    }

    private static long askedMillis(Context context) {
        return System.currentTimeMillis() - (System.nanoTime() - context.startNanos()) / 1_000_000;
    }

    /** A certificate says who asks, as Authorization does; a trusted proxy may have seen it. */
    private static boolean isAuthenticated(Request request) {
        return request.isAuthenticated() || request.clientCertificate() != null
                || request.headers().has("Authorization")
                || request.headers().has("X-Forwarded-Client-Cert");
    }

    /** §3, and §3.5 for requests that say who asks. */
    static boolean mayStore(Request request, int status, Headers headers) {
        CacheControl control = CacheControl.of(headers);
        boolean isShared = control.has("public") || control.has("s-maxage")
                || control.has("must-revalidate");
        return (isShared || !isAuthenticated(request)) && mayStore(control, status, headers);
    }

    private static boolean mayStore(CacheControl control, int status, Headers headers) {
        // §5.2.2.3: who knows the status ignores the no-store that is there for others.
        boolean isForbidden = control.has("no-store") && !control.has("must-understand");
        if (isForbidden || control.has("private") || status == 206
                || headers.has(SET_COOKIE) || variesByUnknown(headers)) {
            return false;
        }
        boolean isExplicit = control.has("max-age") || control.has("s-maxage")
                || headers.has("Expires") || control.has("public");
        boolean isKnown = StoredResponse.isHeuristic(status)
                || status == 302 || status == 307;
        boolean isUseful = StoredResponse.freshness(headers, status,
                System.currentTimeMillis()) > 0 || headers.has("ETag")
                || headers.has("Last-Modified");
        return isKnown && isUseful && (isExplicit || StoredResponse.isHeuristic(status));
    }

    /** How much memory the bodies take that are on their way into the cache. */
    long collectingBytes() {
        return collecting.get();
    }

    private final class Collector implements BodyTap {
        private final Context context;
        private final Asked asked;
        private final StoredResponse template;
        private final int bytesMax;
        private byte[] body = NOTHING;
        private int length;
        private boolean isGivenUp;

        Collector(Context context, Asked asked) {
            this.context = context;
            this.asked = asked;
            this.template = StoredResponse.of(context.response(), NOTHING, askedMillis(context),
                    System.currentTimeMillis());
            Framing framing = context.response().framing();
            boolean isKnown = framing != null && framing.kind() == Framing.Kind.LENGTH;
            bytesMax = (int) Math.min(entryBytesMax, isKnown ? framing.length() : entryBytesMax);
        }

        @Override
        public void chunk(ByteBuffer bytes) {
            int count = bytes.remaining();
            if (isGivenUp) {
                return;
            }
            if (count > bytesMax - length || !hasRoom(length + count)) {
                isGivenUp = true;
                free();
                land(context, false);
                return;
            }
            bytes.get(body, length, count);
            length += count;
        }

        /** A client that reads slowly holds what it reads: all of them together are bounded. */
        private boolean hasRoom(int wanted) {
            if (wanted <= body.length) {
                return true;
            }
            int capacity = (int) Math.min(bytesMax, Math.max(wanted, Math.max(COLLECTED_BYTES_MIN,
                    2L * body.length)));
            int more = capacity - body.length;
            if (collecting.addAndGet(more) > collectingMax) {
                collecting.addAndGet(-more);
                return false;
            }
            body = Arrays.copyOf(body, capacity);
            return true;
        }

        private void free() {
            collecting.addAndGet(-body.length);
            body = NOTHING;
        }

        @Override
        public void end(boolean isComplete) {
            boolean isStored = isComplete && !isGivenUp;
            if (isStored) {
                table.put(asked, template.with(
                        length == body.length ? body : Arrays.copyOf(body, length)));
            }
            free();
            land(context, isStored);
        }
    }

    /** Fields that the gateway writes itself are missing when stored responses are looked up. */
    private static boolean variesByUnknown(Headers headers) {
        return CacheTable.varyNames(headers).stream()
                .anyMatch(name -> name.equals("*") || Forwarding.isWritten(name));
    }

    /** §4.4: a change that succeeded makes what is stored of its target invalid. */
    private void invalidate(Context context) {
        boolean isUnsafe = switch (context.request().method()) {
            case "GET", "HEAD", "OPTIONS", "TRACE" -> false;
            default -> true;
        };
        int status = context.response().status();
        if (isUnsafe && status >= 200 && status < 400 && context.request().host() != null) {
            forms(context.request()).forEach(host -> table.changed(uri(context.request(), host)));
        }
    }

    /**
     * {@code a}, {@code a.}, {@code a:} and {@code a:80} are one host, and a change is one for all. What is stored is
     * kept apart: an origin may repeat the name in its pages, and whoever asks with the dot would choose it
     * for all.
     */
    private static List<String> forms(Request request) {
        String host = host(request);
        int colon = host.endsWith("]") ? -1 : host.lastIndexOf(':');
        String port = colon < 0 ? "" : host.substring(colon);
        String name = Authority.canonical(colon < 0 ? host : host.substring(0, colon));
        String usual = scheme(request).equals("https") ? ":443" : ":80";
        return port.length() <= 1 || port.equals(usual)
                ? Stream.of("", ":", usual).flatMap(end -> Stream.of(name + end, name + "." + end)).toList()
                : List.of(name + port, name + "." + port);
    }

    /** Serves a stale response for an origin that fails, where the response allows it; else says why not. */
    private static final class StandIn implements Filter {
        @Override
        public Phase phase() {
            return Phase.ERROR;
        }

        @Override
        public int order() {
            return 0;
        }

        @Override
        public String name() {
            return "cache.stand-in";
        }

        @Override
        public boolean shouldFilter(Context context) {
            return context.category() != Category.FILTER_ERROR;
        }

        @Override
        public Step apply(Context context) {
            StoredResponse stored = (StoredResponse) context.attribute(ENTRY);
            if (context.response().status() >= 500 && mayStandIn(stored)) {
                return Step.respond(stored.toResponse(new Headers(), System.currentTimeMillis()));
            }
            boolean isUnreachable = context.category() == Category.CONNECT
                    || context.category() == Category.NO_ADDRESS;
            if (isUnreachable && stored != null && stored.mustRevalidate()) {
                // RFC 9111 §5.2.2.2
                context.response(Failure.of(context.request(), 504,
                        "the stored response must be revalidated"));
            }
            return Step.NEXT;
        }
    }

    /** RFC 5861 §4. */
    private static boolean mayStandIn(StoredResponse stored) {
        return stored != null && !stored.mustRevalidate() && stored.staleIfErrorSeconds() > 0
                && -stored.freshForSeconds(System.currentTimeMillis())
                        <= stored.staleIfErrorSeconds();
    }
}
