// Compresses responses for clients that can undo it (RFC 9110 §8.4, §12.5.3).
package wirespeed.gateway.runtime;

import com.google.re2j.Pattern;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.core.Step;

/** What is encoded already, a part, short, or not to be transformed stays as it is. */
final class Compress extends ShippedFilters.Scoped {
    private final List<String> encodings;
    private final List<Pattern> types;
    private final long bytesMin;

    Compress(ShippedFilters.Scope scope, OptionValues values) {
        super(scope, Phase.POST);
        encodings = values.texts("encodings");
        for (String encoding : encodings) {
            if (!encoding.equals("br") && !encoding.equals("gzip")) {
                throw new IllegalArgumentException("encodings: unknown encoding \"" + encoding
                        + "\" (br, gzip)");
            }
        }
        if (encodings.contains("br") && Brotli.unavailability() != null) {
            throw new IllegalArgumentException("encodings: br is not available on this machine: "
                    + Brotli.unavailability() + " (write encodings = [\"gzip\"])");
        }
        types = values.texts("content-types").stream().map(Compress::pattern).toList();
        bytesMin = values.bytes("min");
    }

    private static Pattern pattern(String type) {
        return Pattern.compile(List.of(type.split("\\*", -1)).stream().map(Pattern::quote)
                .collect(Collectors.joining(".*")), Pattern.CASE_INSENSITIVE);
    }

    @Override
    public Step apply(Context context) {
        Response response = context.response();
        Headers headers = response.headers();
        boolean isWhole = isWhole(response);
        Headers asked = context.request().headers();
        boolean isOfOurs = !isWhole && isOfOurs(response, asked);
        if (!isWhole && !isAboutWhole(response, isOfOurs)) {
            return Step.NEXT;
        }
        // Caches must know it even of the answer that stays as it is.
        headers.add("Vary", "Accept-Encoding");
        String encoding = chosen(asked.all("Accept-Encoding"));
        if (encoding == null) {
            return Step.NEXT;
        }
        if (!isWhole) {
            if (isOfOurs) {
                headers.set("ETag", "W/" + headers.get("ETag"));
            }
            return Step.NEXT;
        }
        headers.set("Content-Encoding", encoding);
        String tag = headers.get("ETag");
        if (tag != null && !tag.startsWith("W/")) {
            headers.set("ETag", "W/" + tag);
        }
        headers.remove("Accept-Ranges");
        headers.remove("Content-MD5");
        headers.remove("Digest");
        headers.remove("Content-Digest");
        headers.remove("Repr-Digest");
        response.transform(CompressedBody.of(encoding));
        return Step.NEXT;
    }

    private boolean isWhole(Response response) {
        int status = response.status();
        return status >= 200 && status != 204 && status != 206 && status != 304
                && response.headers().has("Content-Type") && !isShort(response)
                && isTransformable(response.headers());
    }

    /** A 304 for a client that has what was compressed, by the tag that it got. */
    private static boolean isOfOurs(Response response, Headers asked) {
        String tag = response.status() == 304 ? response.headers().get("ETag") : null;
        return tag != null && String.join(",", asked.all("If-None-Match")).contains("W/" + tag);
    }

    /**
     * A 304 or a part of what may be compressed whole: its fields are those of the 200 (RFC 9110 §15.4.5).
     * Without a type that is known only of what was compressed.
     */
    private boolean isAboutWhole(Response response, boolean isOfOurs) {
        boolean isAbout = response.status() == 304 || response.status() == 206;
        return isAbout && (isOfOurs || response.headers().has("Content-Type"))
                && isTransformable(response.headers());
    }

    private boolean isTransformable(Headers headers) {
        String type = headers.get("Content-Type");
        return !headers.has("Content-Encoding") && !CacheControl.of(headers).has("no-transform")
                && (type == null || isWanted(type.split(";", 2)[0].trim()));
    }

    private boolean isShort(Response response) {
        Framing framing = response.framing();
        return framing != null && framing.kind() == Framing.Kind.LENGTH
                && framing.length() < Math.max(1, bytesMin);
    }

    private boolean isWanted(String type) {
        for (Pattern wanted : types) {
            if (wanted.matcher(type).matches()) {
                return true;
            }
        }
        return false;
    }

    /** The first of ours that the client accepts; null for none. */
    private String chosen(List<String> accepted) {
        for (String encoding : encodings) {
            if (accepts(accepted, encoding)) {
                return encoding;
            }
        }
        return null;
    }

    private static boolean accepts(List<String> lines, String encoding) {
        boolean anything = false;
        for (String item : String.join(",", lines).split(",")) {
            String[] parts = item.split(";", -1);
            String name = parts[0].trim();
            boolean isRefused = parts.length > 1
                    && parts[1].trim().toLowerCase(Locale.ROOT).matches("q\\s*=\\s*0(\\.0*)?");
            if (name.equalsIgnoreCase(encoding)) {
                return !isRefused;
            }
            anything |= name.equals("*") && !isRefused;
        }
        return anything;
    }
}
