// A running gateway under test.
package wirespeed.gateway.contract;

import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import wirespeed.gateway.runtime.Config;
import wirespeed.gateway.runtime.ConfigReader;
import wirespeed.gateway.runtime.ConfigStore;
import wirespeed.gateway.runtime.GatewayRuntime;
import wirespeed.gateway.runtime.Launcher;

/** Configured by the same text that a user would write. */
final class Carrier implements AutoCloseable {
    /** For gateways in a JVM of their own: its second compiler takes more than a test's short life gains. */
    static final String SHORT_LIVED = "-XX:TieredStopAtLevel=1";

    final GatewayRuntime runtime;
    final InetSocketAddress address;
    /** Of all listeners, the one above first. */
    final List<InetSocketAddress> addresses;
    final Launcher.Carrier carrier;

    Carrier(Launcher.Factory factory, Map<String, Object> own, String toml) {
        Map<String, Object> flags = new HashMap<>(own);
        flags.put("server.listen", "127.0.0.1:0");
        if (flags.keySet().stream().noneMatch(key -> key.startsWith("tomcat."))) {
            // A busy machine must not shed load here; gateway-tomcat has no loops.
            flags.put("limits.loop-lag", "1m");
        }
        Config config = ConfigReader.read(toml, "test.toml", Map.of(), flags);
        runtime = new GatewayRuntime(config);
        carrier = factory.make(runtime.gateway());
        runtime.start();
        addresses = carrier.start();
        address = addresses.get(0);
        runtime.startAdmin(new ConfigStore(null, toml, Map.of(), flags));
    }

    RawClient client() throws java.io.IOException {
        return new RawClient(address);
    }

    @Override
    public void close() {
        carrier.stop(0);
        runtime.close();
    }
}
