// What has to be there before a carrier listens.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Address.Administration;

class LauncherTest {
    @TempDir
    private Path folder;

    @Test
    void a_drained_address_is_drained_before_the_first_request() throws Exception {
        Path config = Files.writeString(folder.resolve("gw.toml"),
                "[origins.o]\naddresses = [\"a:1\", \"b:1\"]\n");
        Files.writeString(folder.resolve("gw.toml.state"), "a:1 drain 1 1 o\n");
        List<Administration> seen = new ArrayList<>();
        Launcher.run("test", new String[] {"--config", config.toString(), "--admin",
            "127.0.0.1:0"}, Map.of(), gateway -> new Launcher.Carrier() {
                @Override
                public InetSocketAddress start() {
                    gateway.snapshot().origins().get("o").addresses()
                            .forEach(address -> seen.add(address.administration()));
                    throw new IllegalStateException("seen enough");
                }

                @Override
                public int stop(long drainMillis) {
                    return 0;
                }

                @Override
                public String describe() {
                    return "";
                }
            });
        assertEquals(List.of(Administration.DRAIN, Administration.UP), seen);
    }
}
