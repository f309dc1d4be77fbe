// A shared cache in memory that follows RFC 9111, as three filters.
package wirespeed.gateway.runtime;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import wirespeed.gateway.core.BodyTap;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Context;
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

/**
 * Looked up when the route is known and everything else has agreed; stored when the origin has
 * answered and before other filters change the answer. Equal requests that arrive while one is
 * asked wait for it (collapsing), bounded in number and time.
 */
final class ContentCache {
    private static final String ENTRY = "cache.entry";
    private static final String KEY = "cache.key";
    private static final String LEADER = "cache.leader";
    /** The request's fields before the gateway changed them: what Vary is about. */
    private static final String ASKED = "cache.asked";
    /** Set when the validators that the origin gets are those of the stored response. */
    private static final String VALIDATES = "cache.validates";
    private static final String SET_COOKIE = "Set-Cookie";
    private static final String BEGUN = "cache.begun";
    private static final int INVALIDATED_SECONDS = 600;
    private static final int VARIANTS_MAX = 100_000;
    private static final int FOLLOWERS_MAX = 1000;
    private static final int DO_NOT_COLLAPSE_SECONDS = 10;

    /** What requests for one target are told apart by; a new one forgets all that was stored. */
    private record Variants(List<String> names, long generation) {
    }

    /**
     * What a stored response belongs to.
     *
     * @param uri "scheme://host/path?query"
     * @param owner route and origin: two routes may lead one URI to the pages of two tenants
     */
    private record Key(String uri, String owner) {
        static Key of(Context context) {
            return new Key(ContentCache.uri(context.request()),
                    context.route().name() + '\n' + context.origin().name());
        }
    }

    private static final class Flight {
        final long begunNanos = System.nanoTime();
        final CompletableFuture<Step> done = new CompletableFuture<>();
        final AtomicInteger followers = new AtomicInteger();
    }

    private final long entryBytesMax;
    private final long collapseMillis;
    private final Cache<String, StoredResponse> entries;
    /** By URI, then by owner: a change of a URI is a change for all of its owners. */
    private final Cache<String, Map<String, Variants>> variants =
            Caffeine.newBuilder().maximumSize(VARIANTS_MAX).build();
    private final Cache<Key, Boolean> alone = Caffeine.newBuilder().maximumSize(VARIANTS_MAX)
            .expireAfterWrite(DO_NOT_COLLAPSE_SECONDS, TimeUnit.SECONDS).build();
    /** When a target was last changed: an answer that was asked for before is not stored after. */
    private final Cache<String, Long> invalidated = Caffeine.newBuilder().maximumSize(VARIANTS_MAX)
            .expireAfterWrite(INVALIDATED_SECONDS, TimeUnit.SECONDS).build();
    private final ConcurrentHashMap<Key, Flight> flights = new ConcurrentHashMap<>();
    private final AtomicLong generations = new AtomicLong();
    final AtomicLong hits = new AtomicLong();
    final AtomicLong misses = new AtomicLong();

    ContentCache(OptionValues options) {
        entryBytesMax = options.bytes("entry");
        collapseMillis = options.millis("collapse");
        entries = Caffeine.newBuilder().maximumWeight(options.bytes("size"))
                .weigher((String key, StoredResponse stored) -> stored.weight()).build();
    }

    List<Filter> filters() {
        return List.of(new Lookup(), new Store(), new StandIn());
    }

    /** Drops what begins with this "scheme://host/path"; the answer is how many targets. */
    int purge(String prefix) {
        int before = variants.asMap().size();
        variants.asMap().keySet().removeIf(uri -> uri.startsWith(prefix));
        return before - variants.asMap().size();
    }

    /**
     * X-Forwarded-Proto and -Host go to the origin and may change its answer. They are only there
     * when the client is trusted, or when the gateway has set them to the same values itself.
     */
    private static String uri(Request request) {
        String scheme = request.headers().get("X-Forwarded-Proto");
        String host = request.headers().get("X-Forwarded-Host");
        return (scheme == null ? request.scheme() : scheme) + "://"
                + String.valueOf(host == null ? request.host() : host).toLowerCase(Locale.ROOT)
                + request.pathWithParameters() + (request.query() == null ? "" : "?" + request.query());
    }

    private StoredResponse find(Key key, Headers asked) {
        Map<String, Variants> owners = variants.getIfPresent(key.uri());
        Variants known = owners == null ? null : owners.get(key.owner());
        return known == null ? null : entries.getIfPresent(variantKey(key, known, asked));
    }

    private static String variantKey(Key key, Variants known, Headers asked) {
        StringBuilder variant = new StringBuilder(key.uri()).append('\n').append(key.owner())
                .append('\n').append(known.generation());
        for (String name : known.names()) {
            variant.append('\n').append(String.join(",", asked.all(name)));
        }
        return variant.toString();
    }

    private final class Lookup implements FinishFilter {
        @Override
        public Phase phase() {
            return Phase.ROUTE;
        }

        @Override
        public int order() {
            return 1_000_000;
        }

        @Override
        public String name() {
            return "cache.lookup";
        }

        @Override
        public boolean shouldFilter(Context context) {
            String method = context.request().method();
            return (method.equals("GET") || method.equals("HEAD"))
                    && context.request().host() != null && context.request().upgrade() == null
                    && !context.request().headers().has("Range")
                    && !context.request().headers().has("Forwarded");
        }

        @Override
        public Step apply(Context context) {
            CacheControl asked = CacheControl.of(context.request().headers());
            if (asked.has("no-store")) {
                return Step.NEXT;
            }
            Key key = Key.of(context);
            context.attribute(KEY, key);
            context.attribute(ASKED, context.request().headers().copy());
            context.attribute(BEGUN, generations.get());
            Step found = serve(context, key, asked);
            if (found != null) {
                return found;
            }
            if (asked.has("only-if-cached")) {
                return Step.fail(504, null);
            }
            misses.incrementAndGet();
            return context.request().method().equals("GET") && !asked.has("no-cache")
                    && !context.request().headers().has("Authorization")
                    ? collapse(context, key, asked) : Step.NEXT;
        }

        @Override
        public void finished(Context context, int status, long nanos) {
            land(context, false);
        }
    }

    /** The stored response if it may be used; else null, and the request asks for validation. */
    private Step serve(Context context, Key key, CacheControl asked) {
        Headers headers = context.request().headers();
        StoredResponse stored = find(key, headers);
        if (stored == null) {
            return null;
        }
        long now = System.currentTimeMillis();
        long fresh = stored.freshForSeconds(now);
        boolean isOldForClient = asked.has("max-age")
                && stored.ageSeconds(now) > asked.seconds("max-age")
                || asked.has("min-fresh") && fresh < asked.seconds("min-fresh");
        boolean isUsable = fresh > 0
                || !stored.mustRevalidate() && -fresh <= asked.staleSecondsMax();
        boolean mustAsk = asked.has("no-cache") || CacheControl.of(stored.headers())
                .has("no-cache");
        if (isUsable && !isOldForClient && !mustAsk) {
            hits.incrementAndGet();
            return Step.respond(stored.toResponse(headers, now));
        }
        if (!isOldForClient && !mustAsk && mayRefreshLater(key, stored, -fresh)) {
            hits.incrementAndGet();
            return Step.respond(stored.toResponse(headers, now));
        }
        context.attribute(ENTRY, stored);
        if (validate(headers, stored)) {
            context.attribute(VALIDATES, true);
        }
        return null;
    }

    /**
     * RFC 5861 §3: while one request asks the origin, the others need not wait for it. The one that
     * asks is an ordinary request of a client; the gateway makes none of its own.
     */
    private boolean mayRefreshLater(Key key, StoredResponse stored, long staleSeconds) {
        return staleSeconds <= stored.staleWhileRevalidateSeconds() && !stored.mustRevalidate()
                && flights.containsKey(key);
    }

    /** §4.3.1; a client that has validators of its own gets the answer to those. */
    private static boolean validate(Headers headers, StoredResponse stored) {
        boolean isConditional = headers.has("If-None-Match") || headers.has("If-Modified-Since")
                || headers.has("If-Match") || headers.has("If-Unmodified-Since");
        if (isConditional || !stored.hasValidator()) {
            return false;
        }
        if (stored.headers().has("ETag")) {
            headers.set("If-None-Match", stored.headers().get("ETag"));
        }
        if (stored.headers().has("Last-Modified")) {
            headers.set("If-Modified-Since", stored.headers().get("Last-Modified"));
        }
        return true;
    }

    private Step collapse(Context context, Key key, CacheControl asked) {
        if (collapseMillis == 0 || alone.getIfPresent(key) != null) {
            return Step.NEXT;
        }
        Flight mine = new Flight();
        Flight other = flights.putIfAbsent(key, mine);
        if (other == null) {
            context.attribute(LEADER, mine);
            return Step.NEXT;
        }
        boolean isSlow = System.nanoTime() - other.begunNanos > collapseMillis * 1_000_000;
        if (isSlow || other.followers.incrementAndGet() > FOLLOWERS_MAX) {
            return Step.NEXT;
        }
        return Step.later(other.done.copy()
                .completeOnTimeout(Step.NEXT, collapseMillis, TimeUnit.MILLISECONDS)
                .thenApply(over -> {
                    Step found = serve(context, key, asked);
                    return found == null ? Step.NEXT : found;
                }));
    }

    /** Lets go those who wait for this exchange; when it has none, or did before, does nothing. */
    private void land(Context context, boolean isStored) {
        Flight flight = (Flight) context.attribute(LEADER);
        if (flight == null) {
            return;
        }
        Key key = (Key) context.attribute(KEY);
        if (flights.remove(key, flight) && !isStored) {
            alone.put(key, true);
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
            Key key = (Key) context.attribute(KEY);
            if (key == null) {
                invalidate(context);
                return Step.NEXT;
            }
            StoredResponse before = (StoredResponse) context.attribute(ENTRY);
            boolean validates = context.attribute(VALIDATES) != null;
            if (context.response().status() == 304 && validates) {
                revalidated(context, key, before);
                return Step.NEXT;
            }
            if (context.response().status() >= 500 && mayStandIn(before)) {
                context.response(before.toResponse(new Headers(), System.currentTimeMillis()));
            } else if (isWanted(context)) {
                collect(context, new Collector(context, key));
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
    private void revalidated(Context context, Key key, StoredResponse before) {
        long now = System.currentTimeMillis();
        StoredResponse fresh = before.refreshed(context.response().headers(), asked(context), now);
        boolean isStored = mayStore(context.request(), fresh.status(), fresh.headers());
        if (isStored) {
            put(key, fresh, context);
        } else {
            drop(key, context);
        }
        land(context, isStored);
        Response answer = fresh.toResponse(new Headers(), now);
        context.response().headers().all(SET_COOKIE).forEach(cookie ->
                answer.headers().add(SET_COOKIE, cookie));
        context.response(answer);
    }

    private static long asked(Context context) {
        return System.currentTimeMillis() - (System.nanoTime() - context.startNanos()) / 1_000_000;
    }

    /** §3, and §3.5 for requests with Authorization. */
    static boolean mayStore(Request request, int status, Headers headers) {
        CacheControl control = CacheControl.of(headers);
        if (control.has("no-store") || control.has("private") || status == 206
                || headers.has(SET_COOKIE) || variesByUnknown(headers)) {
            return false;
        }
        boolean isShared = control.has("public") || control.has("s-maxage")
                || control.has("must-revalidate");
        if (request.headers().has("Authorization") && !isShared) {
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

    private final class Collector implements BodyTap {
        private final Context context;
        private final Key key;
        private ByteArrayOutputStream body = new ByteArrayOutputStream();
        private final StoredResponse template;
        private boolean isTooLong;

        Collector(Context context, Key key) {
            this.context = context;
            this.key = key;
            this.template = StoredResponse.of(context.response(), new byte[0], asked(context),
                    System.currentTimeMillis());
        }

        @Override
        public void chunk(ByteBuffer bytes) {
            if (isTooLong || body.size() + bytes.remaining() > entryBytesMax) {
                isTooLong = true;
                body = new ByteArrayOutputStream(0);
                land(context, false);
                return;
            }
            byte[] copy = new byte[bytes.remaining()];
            bytes.get(copy);
            body.writeBytes(copy);
        }

        @Override
        public void end(boolean isComplete) {
            boolean isStored = isComplete && !isTooLong;
            if (isStored) {
                put(key, new StoredResponse(template.status(), template.headers(),
                        body.toByteArray(), template.storedMillis(),
                        template.ageAtStoreSeconds(), template.freshSeconds()), context);
            }
            land(context, isStored);
        }
    }

    /** What the gateway writes itself is not there yet when stored responses are looked up. */
    private static boolean variesByUnknown(Headers headers) {
        return varyNames(headers).stream()
                .anyMatch(name -> name.equals("*") || Forwarding.isWritten(name));
    }

    private static List<String> varyNames(Headers headers) {
        return headers.all("Vary").stream()
                .flatMap(line -> java.util.Arrays.stream(line.split(",")))
                .map(name -> name.trim().toLowerCase(Locale.ROOT)).filter(name -> !name.isEmpty())
                .sorted().distinct().toList();
    }

    private void put(Key key, StoredResponse stored, Context context) {
        Long changed = invalidated.getIfPresent(key.uri());
        if (changed != null && changed > (Long) context.attribute(BEGUN)) {
            return;
        }
        List<String> names = varyNames(stored.headers());
        Map<String, Variants> owners = variants.asMap().compute(key.uri(), (same, before) ->
                with(before == null ? Map.of() : before, key.owner(), names));
        Variants known = owners.get(key.owner());
        entries.put(variantKey(key, known, (Headers) context.attribute(ASKED)), stored);
    }

    /** Forgets what is stored for the requests that this one is equal to. */
    private void drop(Key key, Context context) {
        Map<String, Variants> owners = variants.getIfPresent(key.uri());
        Variants known = owners == null ? null : owners.get(key.owner());
        if (known != null) {
            entries.invalidate(variantKey(key, known, (Headers) context.attribute(ASKED)));
        }
    }

    private Map<String, Variants> with(Map<String, Variants> before, String owner,
            List<String> names) {
        Variants known = before.get(owner);
        if (known != null && known.names().equals(names)) {
            return before;
        }
        Map<String, Variants> after = new HashMap<>(before);
        after.put(owner, new Variants(names, generations.incrementAndGet()));
        return after;
    }

    /** §4.4: a change that succeeded makes what is stored of its target invalid. */
    private void invalidate(Context context) {
        boolean isUnsafe = switch (context.request().method()) {
            case "GET", "HEAD", "OPTIONS", "TRACE" -> false;
            default -> true;
        };
        int status = context.response().status();
        if (isUnsafe && status >= 200 && status < 400 && context.request().host() != null) {
            String uri = uri(context.request());
            invalidated.put(uri, generations.incrementAndGet());
            variants.invalidate(uri);
        }
    }

    /** Serves a stale response for an origin that fails, where the response allows it. */
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
            return context.response().status() >= 500 && mayStandIn(stored)
                    ? Step.respond(stored.toResponse(new Headers(), System.currentTimeMillis()))
                    : Step.NEXT;
        }
    }

    /** RFC 5861 §4. */
    private static boolean mayStandIn(StoredResponse stored) {
        return stored != null && !stored.mustRevalidate() && stored.staleIfErrorSeconds() > 0
                && -stored.freshForSeconds(System.currentTimeMillis())
                        <= stored.staleIfErrorSeconds();
    }
}
