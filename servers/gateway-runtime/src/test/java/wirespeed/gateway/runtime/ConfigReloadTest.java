// The watch of the configuration file, in parallel with changes through the admin port.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ConfigReloadTest {
    @TempDir
    private Path folder;

    private static String config(int number) {
        return "[server]\nconfig-watch = \"5ms\"\nvia-name = \"v" + number + "\"\n[origins.o]\n"
                + "addresses = [\"127.0.0.1:1\"]\n";
    }

    @Test
    void a_configuration_from_the_admin_port_is_applied_once() throws Exception {
        Path file = Files.writeString(folder.resolve("gw.toml"), config(0));
        ConfigStore store = new ConfigStore(file, config(0), Map.of(), Map.of());
        try (GatewayRuntime runtime = new GatewayRuntime(store.check(config(0)));
                ConfigReload reload = new ConfigReload(runtime, store)) {
            reload.start();
            for (int i = 1; i <= 5; i++) {
                synchronized (store) {
                    // As PUT /config does, slowly: the watch looks at the file meanwhile.
                    runtime.apply(store.check(config(i)));
                    Thread.sleep(50);
                    store.keep(config(i));
                }
                Thread.sleep(50);
            }
            assertEquals(6, runtime.gateway().snapshot().version());
        }
    }

    @Test
    void a_file_nested_without_end_is_refused_and_the_next_one_applied() throws Exception {
        Path file = Files.writeString(folder.resolve("gw.toml"), config(0));
        ConfigStore store = new ConfigStore(file, config(0), Map.of(), Map.of());
        try (GatewayRuntime runtime = new GatewayRuntime(store.check(config(0)));
                ConfigReload reload = new ConfigReload(runtime, store)) {
            reload.start();
            String nested = "a = " + "[".repeat(100_000);
            assertThrows(ConfigError.class, () -> store.check(nested));
            Files.writeString(file, nested);
            Thread.sleep(200);
            Files.writeString(file, config(1));
            for (int i = 0; i < 6000 && runtime.gateway().snapshot().version() < 2; i++) {
                Thread.sleep(10);
            }
            assertEquals(2, runtime.gateway().snapshot().version());
        }
    }
}
