/** Reads a command line against a list of options. */
package wirespeed.httpserver;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The parsed arguments: values of options, and other words. */
final class CommandLine {
    private final Map<String, String> given = new HashMap<>();
    private final List<Option<?>> options;
    private final List<String> words = new java.util.ArrayList<>();

    CommandLine(List<Option<?>> options, String... args) {
        this.options = options;
        for (int at = 0; at < args.length; at++) {
            String arg = args[at];
            if (!arg.startsWith("--")) {
                words.add(arg);
                continue;
            }
            int equals = arg.indexOf('=');
            Option<?> option = named(equals < 0 ? arg.substring(2) : arg.substring(2, equals));
            if (given.containsKey(option.name())) {
                throw new BadUsage("--" + option.name() + " is given twice; give it once");
            }
            if (option.isSwitch() && equals >= 0) {
                throw new BadUsage("--" + option.name() + " takes no value");
            }
            if (option.isSwitch()) {
                given.put(option.name(), "true");
            } else if (equals >= 0) {
                given.put(option.name(), arg.substring(equals + 1));
            } else if (at + 1 < args.length) {
                given.put(option.name(), args[++at]);
            } else {
                throw new BadUsage("--" + option.name() + " needs a value: --" + option.name()
                        + " " + option.value());
            }
        }
    }

    boolean has(Option<?> option) {
        return given.containsKey(option.name());
    }

    /** The given value, else the default, else null. */
    <T> T get(Option<T> option) {
        String text = given.getOrDefault(option.name(), option.fallback());
        return text == null ? null : option.read(text);
    }

    /** The arguments that do not belong to options, in order. */
    List<String> words() {
        return words;
    }

    /** The help of all options, one per line, with their defaults. */
    static String help(List<Option<?>> options) {
        StringBuilder text = new StringBuilder();
        for (Option<?> option : options) {
            String left = "--" + option.name() + (option.isSwitch() ? "" : " " + option.value());
            text.append(String.format("  %-24s %s%s%n", left, option.text(),
                    option.fallback() == null ? "" : " (default " + option.fallback() + ")"));
        }
        return text.toString();
    }

    private Option<?> named(String name) {
        Option<?> nearest = options.get(0);
        for (Option<?> option : options) {
            if (option.name().equals(name)) {
                return option;
            }
            if (distance(option.name(), name) < distance(nearest.name(), name)) {
                nearest = option;
            }
        }
        String hint = distance(nearest.name(), name) <= 3 ? "did you mean --" + nearest.name() + "?"
                : "--help lists the options";
        throw new BadUsage("--" + name + " is not an option; " + hint);
    }

    /** The number of letter changes between two words (Levenshtein). */
    private static int distance(String left, String right) {
        int[] row = new int[right.length() + 1];
        for (int column = 0; column <= right.length(); column++) {
            row[column] = column;
        }
        for (int line = 1; line <= left.length(); line++) {
            int diagonal = row[0];
            row[0] = line;
            for (int column = 1; column <= right.length(); column++) {
                int changed = diagonal
                        + (left.charAt(line - 1) == right.charAt(column - 1) ? 0 : 1);
                diagonal = row[column];
                row[column] = Math.min(changed, 1 + Math.min(row[column], row[column - 1]));
            }
        }
        return row[right.length()];
    }
}
