// A filter that sends copies of requests to another service, whose answers go nowhere.
package wirespeed.gateway.runtime;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashSet;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Forwarding;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Step;

/**
 * After all other filters before the origin and after the cache, unless its table says an order: what they
 * refuse or answer is not copied. No request waits for its copy: while too many are under way, the next
 * ones are not made.
 */
final class Mirror extends ShippedFilters.Scoped {
    private static final int COPIES_MAX = 100;
    /** Of the connection, or written by the client of the JDK. */
    private static final Set<String> NOT_COPIED = Set.of("connection", "content-length", "expect", "host",
            "te", "transfer-encoding", "upgrade");

    private final URI url;
    private final Duration timeout;
    private final int order;
    private final int percent;
    private final int bodyBytesMax;
    /** Names in lower case. */
    private final Set<String> notCopied = new HashSet<>(NOT_COPIED);
    private final Semaphore places = new Semaphore(COPIES_MAX);
    private final HttpClient http;
    private final ExecutorService threads = Executors.newSingleThreadExecutor(task -> {
        Thread thread = new Thread(task, "mirror");
        thread.setDaemon(true);
        return thread;
    });

    Mirror(ShippedFilters.Scope scope, OptionValues values) {
        super(scope, Phase.ROUTE);
        url = url(values.text("url"));
        timeout = Duration.ofMillis(values.millis("timeout"));
        order = values.isGiven("order") ? super.order() : ContentCache.LOOKUP_ORDER + 1;
        percent = values.count("percent");
        bodyBytesMax = (int) values.bytes("mirror-body");
        for (String name : values.texts("remove-headers")) {
            new Headers().add(name, "");
            notCopied.add(name.toLowerCase(Locale.ROOT));
        }
        notCopied.remove("via");
        http = HttpClient.newBuilder().executor(threads).connectTimeout(timeout)
                .version(HttpClient.Version.HTTP_1_1).followRedirects(HttpClient.Redirect.NEVER).build();
    }

    private static URI url(String text) {
        try {
            URI url = URI.create(text);
            HttpRequest.newBuilder(url);
            if (url.getRawQuery() == null && url.getRawFragment() == null
                    && (url.getRawPath() + "/").length() <= 2) {
                return url.resolve("/");
            }
        } catch (IllegalArgumentException bad) {
            // Refused below.
        }
        throw new IllegalArgumentException("url: \"" + text + "\" is not the http address of a service"
                + " without a path, such as http://127.0.0.1:9292");
    }

    @Override
    public int order() {
        return order;
    }

    @Override
    public int requestBodyBytesMax() {
        return bodyBytesMax;
    }

    /** Also asked before the body is collected: one that is too long, or of unknown length, is not. */
    @Override
    public boolean shouldFilter(Context context) {
        Request request = context.request();
        Framing framing = request.framing();
        boolean isSmall = framing.isEmpty()
                || framing.kind() == Framing.Kind.LENGTH && framing.length() <= bodyBytesMax;
        return isSmall && request.upgrade() == null && super.shouldFilter(context) && isChosen(context);
    }

    /** The same each time for one exchange. */
    private boolean isChosen(Context context) {
        return percent == 100 || Math.floorMod(context.id().hashCode(), 100) < percent;
    }

    @Override
    public Step apply(Context context) {
        Request request = context.request();
        boolean isWhole = request.framing().isEmpty() || request.body() != null;
        if (isWhole && places.tryAcquire()) {
            try {
                send(copy(context));
            } catch (IllegalArgumentException unfit) {
                // A target or a field that the gateway takes and the JDK does not.
                places.release();
                failed(unfit);
            }
        } else if (isWhole) {
            ThrottledLog.line("filter " + name() + ": " + COPIES_MAX + " copies are under way, the next are"
                    + " not made");
        }
        return Step.NEXT;
    }

    private HttpRequest copy(Context context) {
        Request request = context.request();
        ByteBuffer body = request.body();
        byte[] bytes = new byte[body == null ? 0 : body.remaining()];
        if (body != null) {
            body.get(bytes);
        }
        HttpRequest.Builder copy = HttpRequest.newBuilder(URI.create(url.getScheme() + "://"
                + url.getRawAuthority() + Forwarding.target(context))).timeout(timeout)
                .method(request.method(), bytes.length == 0 ? HttpRequest.BodyPublishers.noBody()
                        : HttpRequest.BodyPublishers.ofByteArray(bytes));
        // Always with Via: a service that leads back here gets 508, and no copy of a copy is made.
        context.snapshot().forwarding().prepared(context).forEach((name, value) -> {
            if (!notCopied.contains(name.toLowerCase(Locale.ROOT))) {
                copy.header(name, value);
            }
        });
        return copy.build();
    }

    private void send(HttpRequest copy) {
        CompletableFuture<HttpResponse<Void>> sent = http.sendAsync(copy,
                HttpResponse.BodyHandlers.discarding());
        // A time-out of its own: that of the HTTP client ends with the head.
        sent.copy().orTimeout(timeout.toMillis(), TimeUnit.MILLISECONDS).whenComplete((answer, failed) -> {
            places.release();
            if (failed != null) {
                sent.cancel(true);
                failed(failed);
            }
        });
    }

    private void failed(Throwable cause) {
        ThrottledLog.line("filter " + name() + ": " + url + ": " + cause);
    }

    @Override
    public void close() {
        threads.shutdownNow();
    }
}
