// Options that were given and that this carrier does not have.
package wirespeed.gateway.tomcat;

import java.util.ArrayList;
import java.util.List;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.core.Listener;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Origin;

/** Accepted, because one configuration should start both carriers; said, because it is not done. */
final class NotApplied {
    private record Reason(String section, String option, String text) {
    }

    private static final String NO_PROXY = "PROXY headers are not read, and refused as malformed"
            + " requests";
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
            new Reason("server", "h2c", "HTTP/2 is not spoken"),
            new Reason("server", "proxy-protocol", NO_PROXY),
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
        for (Listener listener : gateway.listeners().subList(1, gateway.listeners().size())) {
            if (!listener.balancers().isEmpty()) {
                lines.add(listener.option() + ": proxy-protocol is not applied: " + NO_PROXY);
            }
        }
        gateway.snapshot().origins().values().forEach(origin -> report(origin, lines));
        return lines;
    }

    private static void report(Origin origin, List<String> lines) {
        Origin.Settings settings = origin.settings();
        String name = "origins." + origin.name() + ".";
        if (settings.http2() != Origin.Http2.OFF) {
            lines.add(name + "http2 is not applied: origins are asked by HTTP/1.1");
        }
        if (settings.retry().hedgeMillis() > 0) {
            lines.add(name + "hedge-after is not applied: a thread waits for one address at a time");
        }
        if (settings.passesInterim()) {
            lines.add(name + "interim is not applied: interim responses are dropped");
        }
    }

    private static boolean isDefault(OptionValues values, Reason reason) {
        OptionValues defaults = new OptionValues(reason.section());
        return values.raw(reason.option()).equals(defaults.raw(reason.option()));
    }
}
