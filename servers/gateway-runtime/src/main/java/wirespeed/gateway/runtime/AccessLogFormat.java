// What a line of the access log holds: a template, or JSON.
package wirespeed.gateway.runtime;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Supplier;
import wirespeed.gateway.core.Context;

/** Parsed once; a line only puts its values together. */
final class AccessLogFormat {
    static final String PLAIN = "{time} {client} {method} {target} {status} {category} {bytes}"
            + " {duration}us own={own}us {address}";

    /** One exchange that is over. */
    private record Line(Context context, int status, long nanos) {
    }

    private interface Value {
        Object of(Line line);
    }

    /**
     * A value's place in a template.
     *
     * @param isQuoted whether it stands between quotation marks of the template
     */
    private record Place(Value value, boolean isQuoted) {
    }

    private static final Map<String, Value> VALUES = new TreeMap<>(Map.ofEntries(
            Map.entry("time", line -> now()),
            Map.entry("client", line -> line.context().request().clientAddress()),
            Map.entry("method", line -> line.context().request().method()),
            Map.entry("scheme", line -> line.context().request().clientScheme()),
            Map.entry("host", line -> line.context().request().host()),
            Map.entry("target", line -> line.context().request().target()),
            Map.entry("forwarded", AccessLogFormat::forwarded),
            Map.entry("status", line -> (long) line.status()),
            Map.entry("category", line -> line.context().category().label()),
            Map.entry("error", line -> orNull(line.context().failure(),
                    () -> line.context().failure().getMessage())),
            Map.entry("bytes", line -> line.context().responseBytes()),
            Map.entry("duration", line -> line.nanos() / 1000),
            Map.entry("own", line -> Math.max(0,
                    line.nanos() - line.context().originNanos()) / 1000),
            Map.entry("attempts", line -> (long) line.context().attempts()),
            Map.entry("address", line -> orNull(line.context().address(),
                    () -> line.context().address().id())),
            Map.entry("origin", line -> orNull(line.context().origin(),
                    () -> line.context().origin().name())),
            Map.entry("route", line -> orNull(line.context().route(),
                    () -> line.context().route().name()))));

    /** A second as text; made once for all lines of that second. */
    private record Second(long number, String text) {
    }

    private static volatile Second second = new Second(-1, "");

    private final List<Object> parts = new ArrayList<>();
    private final boolean isJson;

    /** From "", "json" or a template; an unknown name in braces is refused with those there are. */
    AccessLogFormat(String format) {
        isJson = format.equals("json");
        if (!isJson) {
            parse(format.isEmpty() ? PLAIN : format);
        }
    }

    private void parse(String template) {
        int at = 0;
        while (at < template.length()) {
            int open = template.indexOf('{', at);
            int close = open < 0 ? -1 : template.indexOf('}', open);
            if (close < 0) {
                parts.add(template.substring(at));
                return;
            }
            parts.add(template.substring(at, open));
            boolean isQuoted = template.substring(0, open).chars().filter(c -> c == '"').count() % 2
                    == 1;
            parts.add(new Place(value(template.substring(open + 1, close)), isQuoted));
            at = close + 1;
        }
    }

    private static Value value(String name) {
        if (name.startsWith("request:")) {
            return line -> line.context().request().headers().get(name.substring(8));
        }
        if (name.startsWith("response:")) {
            return line -> orNull(line.context().response(),
                    () -> line.context().response().headers().get(name.substring(9)));
        }
        Value value = VALUES.get(name);
        if (value == null) {
            throw new IllegalArgumentException("format: unknown field {" + name + "} ("
                    + String.join(", ", VALUES.keySet()) + ", request:NAME, response:NAME)");
        }
        return value;
    }

    /** As {@link Instant#toString} with six digits of the second. */
    private static String now() {
        Instant now = Instant.now();
        Second known = second;
        if (known.number() != now.getEpochSecond()) {
            String text = now.truncatedTo(ChronoUnit.SECONDS).toString();
            known = new Second(now.getEpochSecond(), text.substring(0, text.length() - 1));
            second = known;
        }
        int micros = 1_000_000 + now.getNano() / 1000;
        return known.text() + '.' + Integer.toString(micros).substring(1) + 'Z';
    }

    private static String orNull(Object of, Supplier<String> text) {
        return of == null ? null : text.get();
    }

    /** The target after the filters' changes; a route may remove its prefix. */
    private static String forwarded(Line line) {
        String query = line.context().request().query();
        return line.context().request().pathWithParameters() + (query == null ? "" : "?" + query);
    }

    /** The line with its end. */
    String line(Context context, int status, long nanos) {
        Line line = new Line(context, status, nanos);
        StringBuilder text = new StringBuilder(160);
        if (isJson) {
            VALUES.forEach((name, value) -> {
                text.append(text.length() == 0 ? "{" : ",").append('"').append(name).append("\":");
                json(text, value.of(line));
            });
            return text.append("}\n").toString();
        }
        for (Object part : parts) {
            if (part instanceof Place place) {
                escape(text, place.value().of(line), place.isQuoted());
            } else {
                text.append(part);
            }
        }
        return text.append('\n').toString();
    }

    /** As \xHH what would end the field, so that no client writes fields of its own. */
    private static void escape(StringBuilder text, Object value, boolean isQuoted) {
        String found = value == null ? "" : value.toString();
        if (found.isEmpty()) {
            text.append('-');
        }
        for (int i = 0; i < found.length(); i++) {
            char c = found.charAt(i);
            boolean isPlain = c > ' ' && c < 0x7f && c != '"' && c != '\\' || c > 0xff
                    || c == ' ' && isQuoted;
            if (isPlain) {
                text.append(c);
            } else {
                text.append("\\x").append(HexFormat.of().toHexDigits((byte) c));
            }
        }
    }

    private static void json(StringBuilder text, Object value) {
        if (value == null || value instanceof Long) {
            text.append(value);
        } else {
            text.append(AdminViews.quote(value.toString()));
        }
    }
}
