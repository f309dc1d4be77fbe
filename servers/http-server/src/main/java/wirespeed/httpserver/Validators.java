/** Conditional and range requests for files (RFC 9110 §8.8, §13, §14). */
package wirespeed.httpserver;

import java.time.DateTimeException;
import java.time.Instant;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeFormatterBuilder;
import java.time.temporal.ChronoField;
import java.util.List;
import java.util.Locale;

/** Applies a file's validators to a request. */
final class Validators {
    /** As dates are read (RFC 9110 §5.6.7): the usual form, that of RFC 850, and that of asctime. */
    private static final List<DateTimeFormatter> DATES = List.of(Responses.DATE,
            utc(new DateTimeFormatterBuilder().appendPattern("EEEE, dd-MMM-")
                    // A year of two digits lies less than 50 years ahead, else in the past.
                    .appendValueReduced(ChronoField.YEAR, 2, 2, LocalDate.now().minusYears(50))
                    .appendPattern(" HH:mm:ss 'GMT'")),
            utc(new DateTimeFormatterBuilder().appendPattern("EEE MMM ppd HH:mm:ss yyyy")));

    private Validators() {
    }

    /**
     * The response to a request for a file.
     *
     * @param fields further lines of the head
     * @param from   the first byte to send
     * @param bytes  the number of bytes to send
     */
    record Answer(Status status, String fields, long from, long bytes) {
    }

    static Answer answer(Resource found, RequestHead head) {
        String tag = '"' + Long.toHexString(found.bytes()) + '-'
                + Long.toHexString(found.modifiedNs()) + '"';
        long modifiedS = Math.floorDiv(found.modifiedNs(), 1_000_000_000L);
        String fields = "Last-Modified: " + Responses.DATE.format(Instant.ofEpochSecond(modifiedS))
                + "\r\nETag: " + tag + "\r\nAccept-Ranges: bytes\r\n";
        if (isPreconditionFailed(head, tag, modifiedS)) {
            return new Answer(Status.PRECONDITION_FAILED, fields, 0, 0);
        }
        if (isUnchanged(head, tag, modifiedS)) {
            return new Answer(Status.NOT_MODIFIED, fields, 0, 0);
        }
        String range = head.field("range");
        if (range != null && head.method == Method.GET && isRangeWanted(head, tag, modifiedS)) {
            return range(range, found.bytes(), fields);
        }
        return new Answer(Status.OK, fields, 0, found.bytes());
    }

    private static boolean isPreconditionFailed(RequestHead head, String tag, long modifiedS) {
        String match = head.list("if-match");
        if (match != null) {
            return !isListed(match, tag, false);
        }
        long since = seconds(head.field("if-unmodified-since"));
        return since >= 0 && modifiedS > since;
    }

    private static boolean isUnchanged(RequestHead head, String tag, long modifiedS) {
        String noneMatch = head.list("if-none-match");
        if (noneMatch != null) {
            return isListed(noneMatch, tag, true);
        }
        long since = seconds(head.field("if-modified-since"));
        return since >= 0 && modifiedS <= since;
    }

    /** A strong comparison does not accept a weak tag; If-None-Match compares weakly. */
    private static boolean isListed(String list, String tag, boolean isWeak) {
        if (list.equals("*")) {
            return true;
        }
        for (String each : list.split(",")) {
            String entry = each.strip();
            if (entry.equals(tag) || isWeak && entry.equals("W/" + tag)) {
                return true;
            }
        }
        return false;
    }

    private static boolean isRangeWanted(RequestHead head, String tag, long modifiedS) {
        String condition = head.field("if-range");
        return condition == null || condition.equals(tag) || seconds(condition) == modifiedS;
    }

    /** One range is served; a list, another unit or an invalid range is ignored (§14.2). */
    private static Answer range(String text, long size, String fields) {
        Answer whole = new Answer(Status.OK, fields, 0, size);
        int dash = text.indexOf('-');
        if (!text.regionMatches(true, 0, "bytes=", 0, 6) || dash < 6) {
            return whole;
        }
        long first = digits(text.substring(6, dash).strip());
        long last = digits(text.substring(dash + 1).strip());
        if (first == BAD || last == BAD || first == ABSENT && last == ABSENT
                || first >= 0 && last >= 0 && last < first) {
            return whole;
        }
        long from = first == ABSENT ? Math.max(0, size - last) : first;
        long to = first == ABSENT || last == ABSENT ? size : Math.min(last + 1, size);
        if (from >= to) {
            return new Answer(Status.RANGE_NOT_SATISFIABLE,
                    fields + "Content-Range: bytes */" + size + "\r\n", 0, 0);
        }
        String part = "Content-Range: bytes " + from + "-" + (to - 1) + "/" + size + "\r\n";
        return new Answer(Status.PARTIAL_CONTENT, fields + part, from, to - from);
    }

    private static final long ABSENT = -1;
    private static final long BAD = -2;

    private static long digits(String text) {
        if (text.isEmpty()) {
            return ABSENT;
        }
        boolean isNumber = text.length() < 18 && text.chars().allMatch(c -> c >= '0' && c <= '9');
        return isNumber ? Long.parseLong(text) : BAD;
    }

    /** Seconds since 1970 of an HTTP date; -1 if it is absent or invalid, and thus ignored. */
    private static long seconds(String date) {
        if (date == null) {
            return -1;
        }
        for (DateTimeFormatter form : DATES) {
            try {
                return form.parse(date, Instant::from).getEpochSecond();
            } catch (DateTimeException another) {
                // One of the next, or none.
            }
        }
        return -1;
    }

    private static DateTimeFormatter utc(DateTimeFormatterBuilder form) {
        return form.toFormatter(Locale.ENGLISH).withZone(ZoneOffset.UTC);
    }
}
