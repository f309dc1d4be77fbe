// Pages for errors: what a client reads in place of the gateway's line of text.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.BitSet;
import java.util.List;
import java.util.regex.Pattern;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Filter;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.core.Step;

/**
 * Read once, with the configuration, so that an error costs no file access. Status and all fields that
 * are not about the body stay: Retry-After and WWW-Authenticate say what the client should do.
 */
final class ErrorPage {
    private static final int BYTES_MAX = 64 * 1024;
    private static final int ERRORS_FROM = 400;
    /** Of the response that has the page, and whether for its very status. */
    private static final String SHOWN = "error-page";
    private static final Pattern STATUS = Pattern.compile("[45](\\d\\d|xx)");
    /** They describe the body that the page replaces. */
    private static final List<String> OF_BODY = List.of("Content-Encoding", "Content-Language",
            "Content-Location", "Content-Disposition", "Accept-Ranges", "ETag", "Last-Modified",
            "Content-MD5", "Digest", "Content-Digest", "Repr-Digest");

    private record Shown(Response response, boolean isExact) {
    }

    private final BitSet statuses = new BitSet();
    private final BitSet ofClasses = new BitSet();
    private final boolean replacesOrigins;
    private final String contentType;
    private final ByteBuffer page;

    private ErrorPage(OptionValues values) {
        values.texts("statuses").forEach(this::add);
        boolean isForNone = statuses.isEmpty() && ofClasses.isEmpty();
        if (isForNone || values.isGiven("file") == values.isGiven("body")) {
            throw new IllegalArgumentException("error-page needs statuses, and either file or body");
        }
        replacesOrigins = values.isTrue("from-origins");
        page = ShippedFilters.shared(values.isGiven("file") ? read(values.text("file"))
                : bounded("body", values.text("body").getBytes(StandardCharsets.UTF_8)));
        contentType = values.isGiven("content-type") ? values.text("content-type")
                : typeOf(values.text("file"), values.text("content-type"));
        new Headers().add("Content-Type", contentType);
    }

    private void add(String status) {
        if (!STATUS.matcher(status).matches()) {
            throw new IllegalArgumentException("statuses: \"" + status
                    + "\" is not an error (write for example 404, 4xx or 5xx)");
        }
        if (status.endsWith("xx")) {
            int first = (status.charAt(0) - '0') * 100;
            ofClasses.set(first, first + 100);
        } else {
            statuses.set(Integer.parseInt(status));
        }
    }

    private static byte[] read(String file) {
        Path path = Path.of(file);
        if (Files.exists(path) && !Files.isRegularFile(path)) {
            // A pipe would have the reload wait for its writer, and all reloads after it.
            throw new IllegalArgumentException("file \"" + file + "\" is not a regular file");
        }
        try (InputStream in = Files.newInputStream(path)) {
            return bounded("file \"" + file + "\"", in.readNBytes(BYTES_MAX + 1));
        } catch (NoSuchFileException missing) {
            throw new IllegalArgumentException("file \"" + file + "\" does not exist", missing);
        } catch (IOException unreadable) {
            throw new IllegalArgumentException("file \"" + file + "\" cannot be read: "
                    + unreadable.getMessage(), unreadable);
        }
    }

    private static byte[] bounded(String what, byte[] bytes) {
        if (bytes.length > BYTES_MAX) {
            throw new IllegalArgumentException(what + " is longer than " + BYTES_MAX + " bytes");
        }
        return bytes;
    }

    private static String typeOf(String file, String otherwise) {
        if (file.endsWith(".html")) {
            return "text/html; charset=utf-8";
        }
        return file.endsWith(".json") ? "application/json" : otherwise;
    }

    /** Failures have a phase of their own. */
    static List<Filter> of(ShippedFilters.Scope scope, OptionValues values) {
        ErrorPage page = new ErrorPage(values);
        return List.of(page.new Failures(scope), page.new Answers(scope.named("response")));
    }

    private void show(Context context) {
        Response response = context.response();
        boolean isExact = statuses.get(response.status());
        if (!isExact && !ofClasses.get(response.status()) || isShown(context, isExact)) {
            return;
        }
        context.attribute(SHOWN, new Shown(response, isExact));
        // A transform, such as compression, is for the old body, too.
        response.endTransform();
        OF_BODY.forEach(response.headers()::remove);
        response.headers().set("Content-Type", contentType);
        // For HEAD, too, which gets no body that would say it.
        response.headers().set("Content-Length", String.valueOf(page.remaining()));
        response.body(page.duplicate());
    }

    /**
     * A filter that answers without blaming anybody has made that answer for its client; and a client
     * that is shed costs as little as it can.
     */
    private boolean isWanted(Response response, Category category) {
        return response.isFromOrigin() ? replacesOrigins
                : category != Category.OK && category != Category.SHED;
    }

    /** A page for 404 comes before one for 4xx, and else the first one stays. */
    private static boolean isShown(Context context, boolean isExact) {
        return context.attribute(SHOWN) instanceof Shown shown
                && shown.response() == context.response() && (shown.isExact() || !isExact);
    }

    /** The gateway has no answer. */
    private final class Failures extends ShippedFilters.Scoped {
        Failures(ShippedFilters.Scope scope) {
            super(scope, Phase.ERROR);
        }

        @Override
        public Step apply(Context context) {
            if (context.category() != Category.SHED) {
                show(context);
            }
            return Step.NEXT;
        }
    }

    /** A filter has refused the request, or an origin has answered. */
    private final class Answers extends ShippedFilters.Scoped {
        Answers(ShippedFilters.Scope scope) {
            super(scope, Phase.POST);
        }

        @Override
        public Step apply(Context context) {
            Response response = context.response();
            if (response.status() >= ERRORS_FROM && isWanted(response, context.category())) {
                show(context);
            }
            return Step.NEXT;
        }
    }
}
