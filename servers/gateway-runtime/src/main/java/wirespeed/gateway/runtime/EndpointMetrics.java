// The state and the counters of each endpoint, for Prometheus.
package wirespeed.gateway.runtime;

import java.util.function.ToLongFunction;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Origin;
import wirespeed.gateway.core.Snapshot;

/** Endpoints come and go with names, so the lines are written when somebody asks. */
final class EndpointMetrics {
    private static final String PREFIX = "wirespeed_gateway_endpoint_";

    private EndpointMetrics() {
    }

    static String scrape(Snapshot snapshot) {
        StringBuilder page = new StringBuilder();
        series(page, snapshot, "up", "gauge", "Whether it gets requests: enabled, checked and not"
                + " ejected", one -> isUp(one) ? 1 : 0);
        series(page, snapshot, "in_flight", "gauge", "Requests that it is asked now",
                one -> one.inFlight().get());
        series(page, snapshot, "connections", "gauge", "Connections to it",
                one -> one.connections().get());
        series(page, snapshot, "answers_total", "counter", "Attempts that brought an answer",
                Address::answers);
        series(page, snapshot, "failures_total", "counter", "Attempts that failed by its fault",
                Address::failures);
        return page.toString();
    }

    private static boolean isUp(Address one) {
        return one.administration() == Address.Administration.UP && one.isChecked()
                && !one.breaker().isOpen();
    }

    private static void series(StringBuilder page, Snapshot snapshot, String name, String type,
            String help, ToLongFunction<Address> value) {
        page.append("# HELP ").append(PREFIX).append(name).append(' ').append(help).append('\n')
                .append("# TYPE ").append(PREFIX).append(name).append(' ').append(type).append('\n');
        for (Origin origin : snapshot.origins().values()) {
            for (Address one : origin.endpoints()) {
                page.append(PREFIX).append(name).append("{origin=").append(label(origin.name()))
                        .append(",address=").append(label(one.configured().id()))
                        .append(",endpoint=").append(label(one.id())).append("} ")
                        .append(value.applyAsLong(one)).append('\n');
            }
        }
    }

    private static String label(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + '"';
    }
}
