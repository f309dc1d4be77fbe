// Requests to the admin port while it is busy.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;

import java.net.URI;
import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class AdminApiTest {
    @ParameterizedTest
    @ValueSource(strings = {"/ready", "/health"})
    void a_balancer_does_not_wait_for_a_change(String path) {
        String toml = "[origins.o]\naddresses = [\"127.0.0.1:1\"]\n";
        ConfigStore store = new ConfigStore(null, toml, Map.of(), Map.of());
        Config config = store.check(toml);
        try (GatewayRuntime runtime = new GatewayRuntime(config)) {
            AdminApi api = new AdminApi(runtime, store, null, config.table("admin"), "");
            // As a change does while it closes what it has replaced.
            synchronized (api) {
                assertTimeoutPreemptively(Duration.ofMinutes(1), () -> assertEquals(200, api.answer(
                        new AdminApi.Asked("GET", URI.create(path), none -> null, false), "").status()));
            }
        }
    }
}
