// Options that were given and that this carrier does not have.
package wirespeed.gateway.tomcat;

import java.util.ArrayList;
import java.util.List;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.core.OptionValues;

/** Accepted, because one configuration should start both carriers; said, because it is not done. */
final class NotApplied {
    private record Reason(String section, String option, String text) {
    }

    private static final String NO_LOOPS = "there are no event loops; see tomcat.threads";
    private static final List<Reason> REASONS = List.of(
            new Reason("tomcat", "acceptor-thread-count", "Tomcat has one acceptor since version 9"),
            new Reason("tomcat", "socket-buffer", "it belonged to the APR connector, which is gone"),
            new Reason("tomcat", "poll-time", "it belonged to the APR connector, which is gone"),
            new Reason("server", "threads", NO_LOOPS),
            new Reason("server", "transport", "Tomcat has NIO only"),
            new Reason("server", "reuse-port", "Tomcat has one listening socket"),
            new Reason("server", "defer-accept", "Tomcat does not have it"),
            new Reason("server", "receive-buffer", "Tomcat reads 8 KiB at a time"),
            new Reason("server", "backlog", "tomcat.accept-count is used"),
            new Reason("limits", "loop-lag", NO_LOOPS),
            new Reason("limits", "direct-memory-percent", "bodies are not in direct memory"));

    private NotApplied() {
    }

    /** One line for each. */
    static List<String> report(Gateway gateway) {
        List<String> lines = new ArrayList<>();
        for (Reason reason : REASONS) {
            OptionValues values = gateway.options(reason.section());
            if (values.isGiven(reason.option()) && !isDefault(values, reason)) {
                lines.add(reason.section() + "." + reason.option() + " is not applied: "
                        + reason.text());
            }
        }
        return lines;
    }

    private static boolean isDefault(OptionValues values, Reason reason) {
        OptionValues defaults = new OptionValues(reason.section());
        return values.raw(reason.option()).equals(defaults.raw(reason.option()));
    }
}
