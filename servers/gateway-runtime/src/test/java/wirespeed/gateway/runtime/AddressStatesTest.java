// Changes that operators made to addresses outlive the process.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Address.Administration;

class AddressStatesTest {
    @TempDir
    private Path folder;
    private final List<GatewayRuntime> started = new ArrayList<>();

    @AfterEach
    void close() {
        started.forEach(GatewayRuntime::close);
    }

    private GatewayRuntime runtime(String addresses) {
        return started("[origins.o]\naddresses = [" + addresses + "]\n");
    }

    private GatewayRuntime started(String toml) {
        GatewayRuntime runtime = new GatewayRuntime(ConfigReader.read(toml, "gw.toml", Map.of(),
                Map.of()));
        started.add(runtime);
        return runtime;
    }

    private AddressStates states(GatewayRuntime runtime) {
        return new AddressStates(runtime, folder.resolve("gw.toml"));
    }

    private static Address first(GatewayRuntime runtime) {
        return runtime.gateway().snapshot().origins().get("o").addresses().get(0);
    }

    @Test
    void states_and_weights_outlive_a_restart() throws Exception {
        GatewayRuntime before = runtime("\"a:1*3\", \"b:1\"");
        String tag = states(before).tag();
        first(before).administration(Administration.DRAIN);
        first(before).weight(7);
        assertNotEquals(tag, states(before).tag());
        states(before).keep();
        assertEquals("a:1 drain 7 3 o\n", Files.readString(folder.resolve("gw.toml.state")));
        GatewayRuntime after = runtime("\"a:1*3\", \"b:1\"");
        states(after).restore();
        assertEquals(Administration.DRAIN, first(after).administration());
        assertEquals(7, first(after).weight());
        assertEquals(states(before).tag(), states(after).tag());
    }

    @Test
    void a_weight_that_the_configuration_has_changed_since_is_the_newer_word() throws Exception {
        Files.writeString(folder.resolve("gw.toml.state"), "a:1 up 7 3\ngone:1 down 1 1\nnonsense\n");
        GatewayRuntime after = runtime("\"a:1*5\"");
        states(after).restore();
        assertEquals(5, first(after).weight());
    }

    @Test
    void a_line_is_about_the_address_of_its_origin_and_an_old_one_about_all() throws Exception {
        String both = "[origins.o]\naddresses = [\"a:1*3\", \"b:1\"]\n"
                + "[origins.p]\naddresses = [\"a:1*3\", \"b:1 backup\"]\n"
                + "[[route]]\norigins = [\"o\"]\n";
        GatewayRuntime before = started(both);
        first(before).weight(7);
        states(before).keep();
        assertEquals("a:1 up 7 3 o\n", Files.readString(folder.resolve("gw.toml.state")));
        GatewayRuntime after = started(both);
        states(after).restore();
        assertEquals(List.of(7, 3), weights(after));
        Files.writeString(folder.resolve("gw.toml.state"), "a:1 up 9 3\n");
        GatewayRuntime last = started(both);
        states(last).restore();
        assertEquals(List.of(9, 9), weights(last));
    }

    private static List<Integer> weights(GatewayRuntime runtime) {
        return List.of("o", "p").stream().map(name -> runtime.gateway().snapshot().origins()
                .get(name).addresses().get(0).weight()).toList();
    }
}
