// A filter that asks another service whether a request may pass.
package wirespeed.gateway.runtime;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.core.StatusLine;
import wirespeed.gateway.core.Step;

/**
 * 2xx lets a request pass; a redirect, 401 and 403 go to the client; any other response, and none
 * in time, is a 503: while the service fails, no request passes.
 */
final class ExternalAuthorization extends ShippedFilters.Scoped {
    private static final int ASKED_MAX = 1000;
    private static final int THREADS = 2;
    /** Of an answer that goes to the client. */
    private static final List<String> FOR_CLIENT = List.of("Location", "WWW-Authenticate", "Set-Cookie");

    private final URI url;
    private final Duration timeout;
    private final List<String> sent;
    private final List<String> copied;
    private final Semaphore places = new Semaphore(ASKED_MAX);
    private final HttpClient http;
    private final ExecutorService threads = Executors.newFixedThreadPool(THREADS, task -> {
        Thread thread = new Thread(task, "external-auth");
        thread.setDaemon(true);
        return thread;
    });

    ExternalAuthorization(ShippedFilters.Scope scope, OptionValues values) {
        super(scope, Phase.PRE);
        url = url(values.text("url"));
        timeout = Duration.ofMillis(values.millis("timeout"));
        sent = values.texts("send-headers");
        copied = values.texts("copy-headers");
        copied.forEach(name -> new Headers().add(name, ""));
        sent.forEach(name -> HttpRequest.newBuilder(url).header(name, ""));
        http = HttpClient.newBuilder().executor(threads).connectTimeout(timeout).version(HttpClient.Version.HTTP_1_1)
                .followRedirects(HttpClient.Redirect.NEVER).build();
    }

    private static URI url(String text) {
        try {
            URI url = URI.create(text);
            HttpRequest.newBuilder(url);
            return url;
        } catch (IllegalArgumentException bad) {
            throw new IllegalArgumentException("url: \"" + text + "\" is not the http address of a"
                    + " service, such as http://127.0.0.1:9191/allowed", bad);
        }
    }

    @Override
    public Step apply(Context context) {
        Headers headers = context.request().headers();
        copied.forEach(headers::remove);
        if (!places.tryAcquire()) {
            return Step.fail(503, new IllegalStateException("too many requests wait for " + url));
        }
        CompletableFuture<HttpResponse<Void>> asked = http.sendAsync(question(context.request()),
                HttpResponse.BodyHandlers.discarding());
        // A time-out of its own: that of the HTTP client ends with the head.
        CompletableFuture<HttpResponse<Void>> settled = asked.copy()
                .orTimeout(timeout.toMillis(), TimeUnit.MILLISECONDS).handle((answer, failed) -> {
                    places.release();
                    if (failed != null) {
                        asked.cancel(true);
                        ThrottledLog.line("filter " + name() + ": " + url + ": " + failed);
                    }
                    return answer;
                });
        return Step.later(settled, () -> decided(context, settled.join()));
    }

    private HttpRequest question(Request request) {
        HttpRequest.Builder question = HttpRequest.newBuilder(url).timeout(timeout);
        for (String name : sent) {
            request.headers().all(name).forEach(value -> question.header(name, value));
        }
        question.setHeader("X-Forwarded-Method", request.method());
        question.setHeader("X-Forwarded-Proto", request.clientScheme());
        question.setHeader("X-Forwarded-Uri", request.pathWithParameters()
                + (request.query() == null ? "" : "?" + request.query()));
        question.setHeader("X-Forwarded-For", request.clientAddress());
        // The one that routes go by: many proxies pass on what a client writes into X-Forwarded-Host.
        if (request.host() != null) {
            question.setHeader("X-Forwarded-Host", request.host());
        }
        return question.build();
    }

    private Step decided(Context context, HttpResponse<Void> answer) {
        int status = answer == null ? 0 : answer.statusCode();
        if (status >= 200 && status < 300) {
            for (String name : copied) {
                answer.headers().allValues(name).forEach(value -> {
                    context.request().headers().add(name, value);
                    context.request().authenticate();
                });
            }
            return Step.NEXT;
        }
        boolean isForClient = status >= 300 && status < 400 && status != 304 || status == 401
                || status == 403;
        if (!isForClient) {
            return Step.fail(503, new IllegalStateException(url + (answer == null ? " does not answer"
                    : " answers " + status)));
        }
        context.category(Category.LIMIT);
        Response response = Response.of(status, "text/plain; charset=utf-8", status + " "
                + StatusLine.reason(status) + "\n");
        for (String name : FOR_CLIENT) {
            answer.headers().allValues(name).forEach(value -> response.headers().add(name, value));
        }
        return Step.respond(response);
    }

    @Override
    public void close() {
        threads.shutdownNow();
    }
}
