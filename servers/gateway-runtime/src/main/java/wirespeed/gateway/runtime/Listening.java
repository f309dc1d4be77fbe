// Addresses in the configuration that a start would refuse, found without opening a socket.
package wirespeed.gateway.runtime;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Networks;
import wirespeed.gateway.core.OptionValues;

/** Listeners, DNS servers and the networks of balancers. */
final class Listening {
    private Listening() {
    }

    static void check(Config config) {
        List<String> mistakes = new ArrayList<>();
        OptionValues server = config.table("server");
        listen(mistakes, "server.listen", server.text("listen"));
        OptionValues admin = config.table("admin");
        if (!admin.text("listen").isEmpty()) {
            listen(mistakes, "admin.listen", admin.text("listen"));
        }
        String socket = admin.text("socket");
        if (!socket.isEmpty() && !Files.isWritable(Path.of(socket).toAbsolutePath().getParent())) {
            mistakes.add("admin.socket: \"" + socket + "\" does not lie in a folder that this user may"
                    + " write");
        }
        try {
            server.texts("dns").forEach(EndpointResolver::server);
            if (!server.text("consul").isEmpty()) {
                ConsulClient.agent(server.text("consul"));
            }
        } catch (IllegalArgumentException bad) {
            mistakes.add(bad.getMessage());
        }
        try {
            Networks.parse(server.texts("proxy-protocol"));
        } catch (IllegalArgumentException bad) {
            mistakes.add("server.proxy-protocol: " + bad.getMessage());
        }
        if (!mistakes.isEmpty()) {
            throw new ConfigError(mistakes);
        }
    }

    private static void listen(List<String> mistakes, String option, String text) {
        try {
            Address.parse(text);
        } catch (IllegalArgumentException bad) {
            mistakes.add(option + ": " + bad.getMessage());
        }
    }
}
