// The views of the admin port, as JSON.
package wirespeed.gateway.runtime;

import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.function.Function;
import java.util.logging.LogManager;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Filter;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.core.Origin;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Route;

/** Strings are rendered by hand: the structures are few and flat. */
final class AdminViews {
    private final GatewayRuntime runtime;

    AdminViews(GatewayRuntime runtime) {
        this.runtime = runtime;
    }

    String health() {
        Gateway gateway = runtime.gateway();
        return "{\"status\":\"" + (gateway.isLeaving() ? "draining" : "up") + "\",\"snapshot\":"
                + gateway.snapshot().version() + ",\"old_snapshots\":" + runtime.oldSnapshots()
                + ",\"in_flight\":" + gateway.inFlight().get() + "}";
    }

    String routes() {
        return list(runtime.gateway().snapshot().routes().routes(), AdminViews::route);
    }

    private static String route(Route route) {
        return "{\"name\":" + quote(route.name()) + ",\"host\":" + quote(route.host())
                + ",\"prefix\":" + quote(route.prefix())
                + (route.match().pattern() == null ? "" : ",\"pattern\":"
                + quote(route.match().pattern().text())) + ",\"methods\":"
                + list(route.match().methods(), AdminViews::quote) + ",\"origins\":"
                + list(route.targets(), target -> "{\"name\":" + quote(target.origin().name())
                        + ",\"weight\":" + target.weight() + "}") + "}";
    }

    String origins() {
        return list(runtime.gateway().snapshot().origins().values(), this::origin);
    }

    private String origin(Origin origin) {
        return "{\"name\":" + quote(origin.name()) + ",\"balance\":"
                + quote(origin.method().label()) + ",\"addresses\":"
                + list(origin.addresses(), this::configured) + "}";
    }

    /** An address; that of a name with the endpoints to which it leads. */
    String configured(Address address) {
        boolean isResolved = address.endpoints().get(0) != address;
        String own = address(address);
        return isResolved ? own.substring(0, own.length() - 1) + ",\"endpoints\":"
                + list(address.endpoints(), this::address) + "}" : own;
    }

    String address(Address address) {
        return "{\"address\":" + quote(address.id()) + ",\"weight\":" + address.weight()
                + ",\"backup\":" + address.isBackup() + ",\"state\":"
                + quote(address.administration().name().toLowerCase(java.util.Locale.ROOT))
                + ",\"healthy\":" + address.isChecked() + ",\"ejected\":"
                + address.breaker().isOpen() + ",\"in_flight\":" + address.inFlight().get()
                + ",\"connections\":" + address.connections().get() + "}";
    }

    String filters() {
        StringBuilder phases = new StringBuilder("{");
        for (Phase phase : Phase.values()) {
            phases.append(phase == Phase.PRE ? "" : ",")
                    .append(quote(phase.name().toLowerCase(java.util.Locale.ROOT))).append(':')
                    .append(list(runtime.filters(phase), AdminViews::filter));
        }
        return phases.append(",\"files\":")
                .append(list(runtime.folder().files().entrySet(), file -> "{\"file\":"
                        + quote(file.getKey()) + ",\"sha256\":" + quote(file.getValue().hash())
                        + ",\"error\":" + (file.getValue().error() == null ? "null"
                                : quote(file.getValue().error())) + "}"))
                .append('}').toString();
    }

    private static String filter(Filter filter) {
        return "{\"name\":" + quote(filter.name()) + ",\"order\":" + filter.order() + "}";
    }

    String pools() {
        return list(runtime.gateway().pools(), Gateway.Pools::describe);
    }

    String loggers() {
        List<String> names = Collections.list(LogManager.getLogManager().getLoggerNames());
        Collections.sort(names);
        return list(names, name -> {
            java.util.logging.Logger logger = LogManager.getLogManager().getLogger(name);
            String level = logger == null || logger.getLevel() == null ? "null"
                    : quote(logger.getLevel().getName());
            return "{\"name\":" + quote(name) + ",\"level\":" + level + "}";
        });
    }

    private static <T> String list(Collection<T> items, Function<T, String> render) {
        StringBuilder json = new StringBuilder("[");
        for (T item : items) {
            json.append(json.length() == 1 ? "" : ",").append(render.apply(item));
        }
        return json.append(']').toString();
    }

    static String quote(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                json.append('\\').append(c);
            } else if (c < 0x20) {
                json.append(String.format("\\u%04x", (int) c));
            } else {
                json.append(c);
            }
        }
        return json.append('"').toString();
    }
}
