// A configuration whose values are checked one by one.
package wirespeed.gateway.runtime;

import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import wirespeed.gateway.core.OptionValues;

/**
 * The configuration as written, typed; {@link SnapshotBuilder} decides what it means.
 *
 * @param single tables that occur once, by section
 * @param listeners besides the one of [server]
 * @param origins by name
 * @param routes in order
 * @param filters in order
 */
public record Config(Map<String, OptionValues> single, List<OptionValues> listeners,
        Map<String, OptionValues> origins, List<OptionValues> routes, List<OptionValues> filters) {

    private static final Pattern OPTION = Pattern.compile("([a-z]+)\\.([a-z0-9-]+)\\b.*", Pattern.DOTALL);

    /** Each line of a message about an option, with the place of that option in the file before it. */
    String located(String message) {
        return message.lines().map(line -> {
            Matcher option = OPTION.matcher(line);
            return option.matches() && single.containsKey(option.group(1))
                    ? single.get(option.group(1)).place(option.group(2)) + line : line;
        }).collect(Collectors.joining("\n"));
    }

    /** As {@link #located(String)}, for all mistakes of a refusal. */
    ConfigError located(ConfigError refused) {
        return new ConfigError(refused.mistakes().stream().map(this::located).toList());
    }

    /** The table of a section; only defaults when it was not written. */
    public OptionValues table(String section) {
        OptionValues values = single.get(section);
        return values == null ? new OptionValues(section) : values;
    }
}
