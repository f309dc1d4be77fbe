// One option of the gateway, declared once.
package wirespeed.gateway.core;

import java.util.List;
import java.util.Locale;

/**
 * Parser, environment, help, documentation and error messages all read this record.
 *
 * @param section table of the configuration file; "listener", "origin", "route" and
 *        "filter" occur repeatedly
 * @param name key within the table
 * @param type what a value must be
 * @param defaultText the default as it would be written; empty for none
 * @param min smallest number
 * @param max largest number
 * @param choices for {@link Type#CHOICE}
 * @param reloadable whether a change takes effect without a restart
 * @param text one sentence on what it does
 */
public record Option(String section, String name, Type type, String defaultText, long min,
        long max, List<String> choices, boolean reloadable, String text) {

    /** Types with the unit in which the program holds them. */
    public enum Type {
        TEXT("text"), TEXTS("list of text"), BOOLEAN("true or false"), COUNT("number"),
        DURATION("duration (for example 250ms)"), BYTES("size (for example 16KiB)"),
        CHOICE("one of"), TABLE("table of text");

        private final String label;

        Type(String label) {
            this.label = label;
        }

        public String label() {
            return label;
        }
    }

    /** {@code section.name}. */
    public String key() {
        return section + "." + name;
    }

    /** The environment variable that overrides it. */
    public String environment() {
        return "WIRESPEED_GATEWAY_" + key().replace('.', '_').replace('-', '_')
                .toUpperCase(Locale.ROOT);
    }

    /** Checks a value and returns it in the type's own form; the message has no key in it. */
    public Object parse(Object value) {
        return switch (type) {
            case TEXT -> text(value);
            case TEXTS -> texts(value);
            case BOOLEAN -> bool(value);
            case COUNT -> bounded(number(value), "");
            case DURATION -> bounded(duration(value), " ms");
            case BYTES -> bounded(bytes(value), " bytes");
            case CHOICE -> choice(value);
            case TABLE -> table(value);
        };
    }

    private static String text(Object value) {
        if (value instanceof String text) {
            return text;
        }
        throw expected(Type.TEXT, value);
    }

    private static List<String> texts(Object value) {
        if (value instanceof String text) {
            return List.of(text.trim().split("\\s*,\\s*"));
        }
        if (value instanceof List<?> list && list.stream().allMatch(String.class::isInstance)) {
            return list.stream().map(String.class::cast).toList();
        }
        throw expected(Type.TEXTS, value);
    }

    private static boolean bool(Object value) {
        if (value instanceof Boolean flag) {
            return flag;
        }
        if ("true".equals(value) || "false".equals(value)) {
            return value.equals("true");
        }
        throw expected(Type.BOOLEAN, value);
    }

    private static long number(Object value) {
        if (value instanceof Long || value instanceof Integer) {
            return ((Number) value).longValue();
        }
        if (value instanceof String text && text.matches("-?\\d{1,18}")) {
            return Long.parseLong(text);
        }
        throw expected(Type.COUNT, value);
    }

    private static long duration(Object value) {
        java.util.regex.Matcher parts = match(value, "(\\d{1,12})(ms|s|m|h)");
        if (parts == null) {
            throw expected(Type.DURATION, value);
        }
        long unit = switch (parts.group(2)) {
            case "ms" -> 1;
            case "s" -> 1000;
            case "m" -> 60_000;
            default -> 3_600_000;
        };
        return Long.parseLong(parts.group(1)) * unit;
    }

    private static long bytes(Object value) {
        if (value instanceof Long || value instanceof Integer) {
            return ((Number) value).longValue();
        }
        java.util.regex.Matcher parts = match(value, "(\\d{1,12})(B|KiB|MiB|GiB|)");
        if (parts == null) {
            throw expected(Type.BYTES, value);
        }
        int shift = switch (parts.group(2)) {
            case "KiB" -> 10;
            case "MiB" -> 20;
            case "GiB" -> 30;
            default -> 0;
        };
        long number = Long.parseLong(parts.group(1));
        // A shift that loses bits would make it a small one.
        return number > Long.MAX_VALUE >> shift ? Long.MAX_VALUE : number << shift;
    }

    private static java.util.regex.Matcher match(Object value, String pattern) {
        if (!(value instanceof String text)) {
            return null;
        }
        java.util.regex.Matcher matcher = java.util.regex.Pattern.compile(pattern).matcher(text);
        return matcher.matches() ? matcher : null;
    }

    private long bounded(long number, String unit) {
        if (number < min || number > max) {
            throw new IllegalArgumentException(number + unit + " is out of range (" + min
                    + " to " + max + unit + ")");
        }
        return number;
    }

    private String choice(Object value) {
        if (value instanceof String text && choices.contains(text)) {
            return text;
        }
        throw new IllegalArgumentException("unknown value \"" + value + "\" ("
                + String.join(", ", choices) + ")");
    }

    private static Object table(Object value) {
        if (value instanceof java.util.Map<?, ?> map
                && map.values().stream().allMatch(String.class::isInstance)) {
            return map;
        }
        throw expected(Type.TABLE, value);
    }

    private static IllegalArgumentException expected(Type type, Object value) {
        return new IllegalArgumentException("\"" + value + "\" is not "
                + (type == Type.BOOLEAN ? "" : "a ") + type.label());
    }
}
