// Starts the gateway on request threads.
package wirespeed.gateway.tomcat;

import java.util.Map;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.runtime.Launcher;

/** {@code java -jar gateway-tomcat.jar --listen ADDR --origin ADDR}; see --help. */
public final class Main {
    /** The settings of the published test by their old names. */
    private static final Map<String, String> FLAGS = Map.of(
            "--threads", "tomcat.threads",
            "--max-threads", "tomcat.max-threads",
            "--max-keep-alive-requests", "tomcat.max-keep-alive-requests",
            "--connection-timeout", "tomcat.connection-timeout",
            "--accept-count", "tomcat.accept-count",
            "--max-connections", "tomcat.max-connections",
            "--origin-connections", "tomcat.origin-connections",
            "--acceptor-thread-count", "tomcat.acceptor-thread-count",
            "--socket-buffer", "tomcat.socket-buffer",
            "--poll-time", "tomcat.poll-time");

    private Main() {
    }

    public static void main(String[] arguments) {
        System.exit(Launcher.run("gateway-tomcat", arguments, FLAGS, Main::carrier));
    }

    /** A carrier for a gateway; what it does not apply is said on standard error. */
    public static Launcher.Carrier carrier(Gateway gateway) {
        NotApplied.report(gateway).forEach(line -> System.err.println("gateway-tomcat: " + line));
        return new Server(gateway);
    }
}
