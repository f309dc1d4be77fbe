/** Parses sizes, durations and numbers of the command line and of request fields. */
package wirespeed.stuborigin;

import java.util.Locale;
import java.util.Map;

/** Text to numbers; an error says what is valid. */
final class Units {
    private static final Map<String, Long> BYTES = Map.of("", 1L, "b", 1L, "kib", 1L << 10,
            "mib", 1L << 20, "kb", 1000L, "mb", 1_000_000L, "k", 1L << 10, "m", 1L << 20);
    private static final Map<String, Double> NS = Map.of("ns", 1.0, "us", 1e3, "ms", 1e6, "s", 1e9);

    private Units() {
    }

    static int count(String text, int min, int max) {
        try {
            int value = Integer.parseInt(text);
            if (value >= min && value <= max) {
                return value;
            }
        } catch (NumberFormatException notANumber) {
            // continues to the common message of both errors
        }
        throw new BadUsage("give a number from " + min + " to " + max);
    }

    static int bytes(String text, int min, int max) {
        int digits = endOfNumber(text);
        Long unit = BYTES.get(text.substring(digits).strip().toLowerCase(Locale.ROOT));
        if (unit != null && digits > 0 && digits < 12) {
            double value = number(text.substring(0, digits)) * unit;
            if (value >= min && value <= max) {
                return (int) value;
            }
        }
        throw new BadUsage("give a size from " + min + " to " + max
                + " bytes, as in 128, 1KiB, 1MiB");
    }

    static long nanoseconds(String text, long max) {
        int digits = endOfNumber(text);
        String word = text.substring(digits).strip();
        Double unit = word.isEmpty() && text.equals("0") ? Double.valueOf(0) : NS.get(word);
        if (unit != null && digits > 0) {
            double value = number(text.substring(0, digits)) * unit;
            if (value >= 0 && value <= max) {
                return (long) value;
            }
        }
        throw new BadUsage("give a time up to " + max / 1_000_000_000
                + "s with its unit, as in 50ms, 1.5s");
    }

    static double number(String text) {
        try {
            return Double.parseDouble(text);
        } catch (NumberFormatException notANumber) {
            throw new BadUsage("'" + text + "' is not a number");
        }
    }

    private static int endOfNumber(String text) {
        int end = 0;
        while (end < text.length()
                && (Character.isDigit(text.charAt(end)) || text.charAt(end) == '.')) {
            end++;
        }
        return end;
    }
}
