// The addresses of a configuration: where clients connect, and what else a start would refuse.
package wirespeed.gateway.runtime;

import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Ascii;
import wirespeed.gateway.core.Listener;
import wirespeed.gateway.core.Networks;
import wirespeed.gateway.core.OptionValues;

/** Listeners, the admin port and DNS servers; no socket is opened. */
final class Listening {
    private Listening() {
    }

    /** Where clients connect: {@code server.listen}, then each {@code [[listener]]}. */
    static List<Listener> of(Config config) {
        List<String> mistakes = new ArrayList<>();
        List<Listener> all = listeners(config, mistakes);
        if (!mistakes.isEmpty()) {
            throw new ConfigError(mistakes);
        }
        return all;
    }

    private static List<Listener> listeners(Config config, List<String> mistakes) {
        boolean hasCertificate = !config.table("tls").text("certificate").isEmpty();
        List<Listener> all = new ArrayList<>();
        OptionValues server = config.table("server");
        Networks balancers = balancers(mistakes, "server.proxy-protocol: ", server);
        Address first = address(mistakes, "server.listen: ", server.text("listen"));
        if (first != null && balancers != null) {
            all.add(new Listener("server.listen", first, hasCertificate, balancers));
        }
        for (int i = 0; i < config.listeners().size(); i++) {
            OptionValues values = config.listeners().get(i);
            String name = "listener " + (i + 1);
            int before = mistakes.size();
            String place = values.place() + name + ": ";
            Networks own = balancers(mistakes, place + "proxy-protocol: ", values);
            if (values.text("listen").isEmpty()) {
                mistakes.add(place + "listen is missing (write for example listen ="
                        + " \"0.0.0.0:8080\")");
                continue;
            }
            Address address = address(mistakes, place + "listen: ", values.text("listen"));
            if (values.isGiven("tls") && values.isTrue("tls") && !hasCertificate) {
                mistakes.add(place + "tls = true needs tls.certificate");
            }
            if (mistakes.size() == before) {
                Listener listener = new Listener(name, address, hasCertificate && values.isTrue("tls"), own);
                taken(all, listener).ifPresent(other -> mistakes.add(place + address.id()
                        + " is the address of " + other.option() + ", too"));
                all.add(listener);
            }
        }
        return all;
    }

    /** With server.reuse-port the system would open both, and share connections out among them. */
    private static Optional<Listener> taken(List<Listener> all, Listener next) {
        return next.address().port() == 0 ? Optional.empty()
                : all.stream().filter(one -> isSame(one.address(), next.address())).findFirst();
    }

    /** A host may be written in many ways; an unknown one is refused when it is opened. */
    private static boolean isSame(Address one, Address other) {
        return one.port() == other.port() && new InetSocketAddress(one.host(), one.port())
                .equals(new InetSocketAddress(other.host(), other.port()));
    }

    static void check(Config config) {
        List<String> mistakes = new ArrayList<>();
        listeners(config, mistakes);
        OptionValues server = config.table("server");
        OptionValues admin = config.table("admin");
        if (!admin.text("listen").isEmpty()) {
            address(mistakes, "admin.listen: ", admin.text("listen"));
        }
        String socket = admin.text("socket");
        if (!socket.isEmpty() && !Files.isWritable(Path.of(socket).toAbsolutePath().getParent())) {
            mistakes.add("admin.socket: \"" + socket + "\" does not lie in a folder that this user may"
                    + " write");
        }
        if (!Ascii.isValue(server.text("consul-token"))) {
            mistakes.add("server.consul-token: it holds a line end or another character that no header"
                    + " field may hold");
        }
        String token = admin.text("token");
        if (!Ascii.isValue(token) || !token.equals(token.strip())) {
            mistakes.add("admin.token: it begins or ends with a blank, or holds a line end or another"
                    + " character that no header field may hold");
        }
        try {
            server.texts("dns").forEach(EndpointResolver::server);
            if (!server.text("consul").isEmpty()) {
                ConsulClient.agent(server.text("consul"));
            }
            if (!server.text("eureka").isEmpty()) {
                EurekaClient.server(server.text("eureka"));
            }
            if (!server.text("endpoints").isEmpty()) {
                EndpointFile.file(server.text("endpoints"));
            }
        } catch (IllegalArgumentException bad) {
            mistakes.add(bad.getMessage());
        }
        if (!mistakes.isEmpty()) {
            throw new ConfigError(mistakes);
        }
    }

    /** Null for a mistake. */
    private static Address address(List<String> mistakes, String where, String text) {
        try {
            Address parsed = Address.parse(text);
            if (!parsed.isService()) {
                return parsed;
            }
            mistakes.add(where + "\"" + text + "\" is not host:port");
        } catch (IllegalArgumentException bad) {
            mistakes.add(where + bad.getMessage());
        }
        return null;
    }

    /** Null for a mistake. */
    private static Networks balancers(List<String> mistakes, String where, OptionValues values) {
        try {
            return Networks.parse(values.texts("proxy-protocol"));
        } catch (IllegalArgumentException bad) {
            mistakes.add(where + bad.getMessage());
            return null;
        }
    }
}
