// A configuration whose values are checked one by one.
package wirespeed.gateway.runtime;

import java.util.List;
import java.util.Map;
import wirespeed.gateway.core.OptionValues;

/**
 * What was written, typed; what it means is decided by {@link SnapshotBuilder}.
 *
 * @param single tables that occur once, by section
 * @param origins by name
 * @param routes in order
 * @param filters in order
 */
public record Config(Map<String, OptionValues> single, Map<String, OptionValues> origins,
        List<OptionValues> routes, List<OptionValues> filters) {

    /** The table of a section; only defaults when it was not written. */
    public OptionValues table(String section) {
        OptionValues values = single.get(section);
        return values == null ? new OptionValues(section) : values;
    }
}
