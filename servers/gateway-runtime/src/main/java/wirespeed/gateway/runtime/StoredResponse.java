// A response in the cache, with what decides whether it may be used (RFC 9111 §4.2).
package wirespeed.gateway.runtime;

import java.nio.ByteBuffer;
import java.time.DateTimeException;
import java.time.Instant;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeFormatterBuilder;
import java.time.temporal.ChronoField;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.regex.Pattern;
import wirespeed.gateway.core.Framing;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Response;

/**
 * Immutable; a revalidation makes a new one.
 *
 * @param status final status
 * @param headers as the origin sent them, without those of the connection and the length
 * @param body whole body
 * @param storedMillis when it was received, by our clock
 * @param ageAtStoreSeconds how old it was then (§4.2.3)
 * @param freshSeconds how long it is fresh, from its making (§4.2.1)
 * @param control what its Cache-Control says
 */
record StoredResponse(int status, Headers headers, byte[] body, long storedMillis,
        long ageAtStoreSeconds, long freshSeconds, CacheControl control) {
    /** Two strings and their places in a list. */
    private static final int FIELD_BYTES = 100;
    /** RFC 9110 §8.8.3: a comma may stand inside. */
    private static final Pattern TAG = Pattern.compile("(?:W/)?(\"[^\"]*\")");
    private static final long HEURISTIC_SECONDS_MAX = 24 * 3600;
    /** As dates are written (RFC 9110 §5.6.7). Not the platform's, which reads "8:1:2 +0200", too. */
    private static final DateTimeFormatter IMF_FIXDATE = utc(
            ofAnyCase().appendPattern("EEE, dd MMM yyyy HH:mm:ss 'GMT'"));
    /** And as they are read: the usual form, that of RFC 850, and that of asctime. */
    private static final List<DateTimeFormatter> DATES = List.of(IMF_FIXDATE,
            utc(ofAnyCase().appendPattern("EEEE, dd-MMM-")
                    // A year of two digits lies less than 50 years ahead, else in the past.
                    .appendValueReduced(ChronoField.YEAR, 2, 2, LocalDate.now().minusYears(50))
                    .appendPattern(" HH:mm:ss 'GMT'")),
            utc(ofAnyCase().appendPattern("EEE MMM ppd HH:mm:ss yyyy")));

    private static DateTimeFormatterBuilder ofAnyCase() {
        return new DateTimeFormatterBuilder().parseCaseInsensitive();
    }

    private static DateTimeFormatter utc(DateTimeFormatterBuilder form) {
        return form.toFormatter(Locale.ENGLISH).withZone(ZoneOffset.UTC);
    }

    static StoredResponse of(Response response, byte[] body, long askedMillis, long nowMillis) {
        Headers headers = response.headers().copy();
        if (date(headers.get("Date"), Long.MIN_VALUE) == Long.MIN_VALUE) {
            // RFC 9110 §6.6.1: when it was received, for caches behind this one.
            headers.set("Date", IMF_FIXDATE.format(Instant.ofEpochMilli(nowMillis)));
        }
        long date = date(headers.get("Date"), nowMillis);
        long apparent = Math.max(0, (nowMillis - date) / 1000);
        long corrected = age(headers) + Math.max(0, (nowMillis - askedMillis) / 1000);
        headers.remove("Age");
        headers.remove("Content-Length");
        // §3.1: it is about one user of a proxy.
        headers.remove("Proxy-Authentication-Info");
        return new StoredResponse(response.status(), headers, body, nowMillis,
                Math.max(apparent, corrected), freshness(headers, response.status(), date),
                CacheControl.of(headers));
    }

    /** The same with the body that has been read meanwhile. */
    StoredResponse with(byte[] whole) {
        return new StoredResponse(status, headers, whole, storedMillis, ageAtStoreSeconds,
                freshSeconds, control);
    }

    /** §5.1: of several values the first one counts. */
    private static long age(Headers headers) {
        String age = headers.get("Age");
        int comma = age == null ? -1 : age.indexOf(',');
        return CacheControl.seconds(comma < 0 ? age : age.substring(0, comma).trim(), 0);
    }

    /** §4.2.1: s-maxage, max-age, Expires, else a tenth of the time since the last change. */
    static long freshness(Headers headers, int status, long dateMillis) {
        CacheControl control = CacheControl.of(headers);
        if (control.has("s-maxage")) {
            return control.seconds("s-maxage");
        }
        if (control.has("max-age")) {
            return control.seconds("max-age");
        }
        if (headers.has("Expires")) {
            // §5.3: a date that cannot be read lies in the past.
            return Math.max(0, (date(headers.get("Expires"), 0) - dateMillis) / 1000);
        }
        String modified = headers.get("Last-Modified");
        boolean mayGuess = isHeuristic(status) || control.has("public");
        if (modified == null || !mayGuess) {
            return 0;
        }
        long unchanged = (dateMillis - date(modified, dateMillis)) / 1000;
        return Math.min(HEURISTIC_SECONDS_MAX, Math.max(0, unchanged / 10));
    }

    /** RFC 9110 §15.1. */
    static boolean isHeuristic(int status) {
        return switch (status) {
            case 200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501 -> true;
            default -> false;
        };
    }

    static long date(String text, long otherwise) {
        if (text == null) {
            return otherwise;
        }
        for (DateTimeFormatter format : DATES) {
            try {
                return ZonedDateTime.parse(text, format).toInstant().toEpochMilli();
            } catch (DateTimeException another) {
                // One of the next, or none.
            }
        }
        return otherwise;
    }

    long ageSeconds(long nowMillis) {
        return ageAtStoreSeconds + Math.max(0, (nowMillis - storedMillis) / 1000);
    }

    /** Below 0 when stale. */
    long freshForSeconds(long nowMillis) {
        return freshSeconds - ageSeconds(nowMillis);
    }

    boolean mustRevalidate() {
        return control.has("must-revalidate") || control.has("proxy-revalidate")
                || control.has("s-maxage") || control.has("no-cache");
    }

    /** Seconds for which it may stand in for an origin that fails (RFC 5861 §4). */
    long staleIfErrorSeconds() {
        return Math.max(0, control.seconds("stale-if-error"));
    }

    /** Seconds for which others may get it while one request asks the origin (RFC 5861 §3). */
    long staleWhileRevalidateSeconds() {
        return Math.max(-1, control.seconds("stale-while-revalidate"));
    }

    boolean hasValidator() {
        return headers.has("ETag") || headers.has("Last-Modified");
    }

    /** Whether a 304 is about this response; tags are compared as If-None-Match compares them. */
    boolean isConfirmedBy(Headers from304) {
        String mine = headers.get("ETag");
        String theirs = from304.get("ETag");
        return mine == null || theirs == null ? !differs("Last-Modified", from304)
                : weak(mine).equals(weak(theirs));
    }

    /**
     * §4.3.4: whether a 304 to validators of the client's own is about this response, too. A strong tag is
     * compared strongly; a 304 without any validator says nothing.
     */
    boolean isIdentifiedBy(Headers from304) {
        String mine = headers.get("ETag");
        String theirs = from304.get("ETag");
        if (theirs != null) {
            return mine != null && (theirs.startsWith("W/") ? weak(mine).equals(weak(theirs)) : mine.equals(theirs));
        }
        String modified = from304.get("Last-Modified");
        return modified != null && modified.equals(headers.get("Last-Modified"));
    }

    /** §4.3.5: whether the answer to a HEAD request is about another response than this one. */
    boolean isContradictedBy(Response head) {
        return head.status() == 200 && status == 200
                && (differs("ETag", head.headers()) || differs("Last-Modified", head.headers())
                || head.headers().has("Content-Length")
                && !String.valueOf(body.length).equals(head.headers().get("Content-Length")));
    }

    private boolean differs(String name, Headers others) {
        String mine = headers.get(name);
        String theirs = others.get(name);
        return mine != null && theirs != null && !mine.equals(theirs);
    }

    /** §4.3.4: the stored fields are updated by those of a 304, but no cookie of one client's. */
    StoredResponse refreshed(Headers from304, long askedMillis, long nowMillis) {
        Headers merged = headers.copy();
        // Of a 304 that does not say when, it is now; the old date would make it stale at once.
        merged.remove("Date");
        from304.forEach((name, value) -> {
            if (isUpdating(name)) {
                merged.remove(name);
            }
        });
        from304.forEach((name, value) -> {
            if (isUpdating(name)) {
                merged.add(name, value);
            }
        });
        Response whole = Response.received(status, merged, Framing.length(body.length));
        return of(whole, body, askedMillis, nowMillis);
    }

    private static boolean isUpdating(String name) {
        return !name.equalsIgnoreCase("Content-Length")
                && !name.equalsIgnoreCase("Content-Encoding")
                && !name.equalsIgnoreCase("Content-Range")
                && !name.equalsIgnoreCase("Set-Cookie");
    }

    /** The response for a client, or a 304 when the client has the same. */
    Response toResponse(Headers asked, long nowMillis) {
        boolean isSame = status == 200 && clientHasIt(asked);
        Response response = Response.stored(isSame ? 304 : status,
                ByteBuffer.wrap(isSame ? new byte[0] : body));
        response.headers().addAll(headers);
        response.headers().add("Age", String.valueOf(ageSeconds(nowMillis)));
        return response;
    }

    /** §4.3.2; If-None-Match goes before If-Modified-Since. */
    private boolean clientHasIt(Headers asked) {
        String tag = headers.get("ETag");
        if (asked.has("If-None-Match")) {
            String none = String.join(",", asked.all("If-None-Match"));
            return none.trim().equals("*") || tag != null && isAmong(none, weak(tag));
        }
        String since = asked.get("If-Modified-Since");
        String modified = headers.get(headers.has("Last-Modified") ? "Last-Modified" : "Date");
        return since != null && date(modified, Long.MAX_VALUE) <= date(since, 0);
    }

    private static boolean isAmong(String tags, String tag) {
        // Some origins forget the quotes, and clients send back what they got.
        return tag.indexOf('"') < 0
                ? Arrays.stream(tags.split(",")).anyMatch(one -> weak(one.trim()).equals(tag))
                : TAG.matcher(tags).results().anyMatch(one -> one.group(1).equals(tag));
    }

    private static String weak(String tag) {
        return tag.startsWith("W/") ? tag.substring(2) : tag;
    }

    /** About what it takes of the heap, in bytes. */
    int weight() {
        int[] fields = {0};
        headers.forEach((name, value) -> fields[0] += FIELD_BYTES + name.length()
                + value.length());
        return body.length + fields[0] + 512;
    }
}
