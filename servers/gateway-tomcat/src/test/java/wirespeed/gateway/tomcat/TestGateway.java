// A running gateway, configured by the text that a user would write.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import wirespeed.gateway.runtime.Config;
import wirespeed.gateway.runtime.ConfigReader;
import wirespeed.gateway.runtime.GatewayRuntime;
import wirespeed.gateway.runtime.Launcher;

/** In this process, on a port of its own. */
final class TestGateway implements AutoCloseable {
    /** The threads that tests run on: -Dgateway.threads=virtual selects virtual threads for all. */
    static final String THREADS = System.getProperty("gateway.threads", "platform");

    final GatewayRuntime runtime;
    final Launcher.Carrier carrier;
    final InetSocketAddress address;
    private boolean isStopped;

    TestGateway(String toml) {
        Map<String, Object> flags = new HashMap<>();
        flags.put("server.listen", "127.0.0.1:0");
        flags.put("tomcat.threads", THREADS);
        Config config = ConfigReader.read(toml, "test.toml", Map.of(), flags);
        runtime = new GatewayRuntime(config);
        carrier = Main.carrier(runtime.gateway());
        runtime.start();
        address = carrier.start().get(0);
    }

    /** A gateway in front of one origin. */
    static TestGateway before(TestOrigin origin, String more) {
        return new TestGateway("[origins.o]\naddresses = [\"" + origin.address() + "\"]\n" + more);
    }

    TestClient client() throws IOException {
        return new TestClient(address);
    }

    int stop(long drainMillis) {
        isStopped = true;
        return carrier.stop(drainMillis);
    }

    @Override
    public void close() {
        if (!isStopped) {
            stop(0);
        }
        runtime.close();
    }
}
