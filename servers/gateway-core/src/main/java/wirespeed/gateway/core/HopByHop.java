// Drops what belongs to one connection only (RFC 9110 §7.6.1).
package wirespeed.gateway.core;

import java.util.ArrayList;
import java.util.List;

/** Both directions use it, before the gateway adds its own connection fields. */
public final class HopByHop {
    private HopByHop() {
    }

    /** Removes the hop-by-hop fields and the fields that Connection lists. */
    static void strip(Headers headers, int status) {
        if (headers.mayHave(Field.CONNECTION.bit)) {
            for (String option : options(headers)) {
                Field field = Field.of(option);
                if (field != null && (field.bit & Field.NEVER_LISTED) != 0) {
                    throw new Refusal(status, "Connection lists " + field.text);
                }
                headers.remove(option);
            }
        }
        headers.removeKnown(Field.HOP_BY_HOP);
    }

    /** The members of all Connection lines. */
    static List<String> options(Headers headers) {
        List<String> options = new ArrayList<>(2);
        for (String line : headers.all("Connection")) {
            if (line.indexOf(',') < 0) {
                addOption(options, line);
                continue;
            }
            for (String option : line.split(",")) {
                addOption(options, option.trim());
            }
        }
        return options;
    }

    private static void addOption(List<String> options, String option) {
        if (!option.isEmpty()) {
            options.add(option);
        }
    }
}
