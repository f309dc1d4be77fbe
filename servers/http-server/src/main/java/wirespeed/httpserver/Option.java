/** One command line option, declared as data. */
package wirespeed.httpserver;

import java.util.function.Function;

/**
 * An option: the source of parser, help and messages.
 *
 * @param name     without the two dashes
 * @param value    placeholder for the value in the help; null for a switch
 * @param fallback the text used when the option is absent; null without a default
 * @param text     one line of help
 * @param reader   turns the text into the value, or throws {@link BadUsage}
 */
record Option<T>(String name, String value, String fallback, String text,
                 Function<String, T> reader) {
    boolean isSwitch() {
        return value == null;
    }

    T read(String given) {
        try {
            return reader.apply(given);
        } catch (BadUsage mistake) {
            throw new BadUsage("--" + name + " " + given + ": " + mistake.getMessage());
        }
    }
}
