// Starts the gateway on event loops.
package wirespeed.gateway.netty;

import java.net.InetSocketAddress;
import java.util.List;
import java.util.Map;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.runtime.Launcher;

/** {@code java -jar gateway-netty.jar --listen ADDR --origin ADDR}; see --help. */
public final class Main {
    private Main() {
    }

    public static void main(String[] arguments) {
        System.exit(Launcher.run("gateway-netty", arguments, Map.of(), Main::carrier));
    }

    /** Makes this carrier for a gateway; tests use it, too. */
    public static Launcher.Carrier carrier(Gateway gateway) {
        Server server = new Server(gateway);
        return new Launcher.Carrier() {
            @Override
            public List<InetSocketAddress> start() {
                return server.start();
            }

            @Override
            public int stop(long drainMillis) {
                return server.stop(drainMillis);
            }

            @Override
            public String describe() {
                return server.transport() + ", " + server.threads() + " loops";
            }
        };
    }
}
