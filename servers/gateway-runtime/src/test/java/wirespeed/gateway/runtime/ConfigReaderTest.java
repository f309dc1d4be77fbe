// Mistakes of a configuration and what is said about them.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.core.Snapshot;

class ConfigReaderTest {
    private static final String ORIGIN = "[origins.o]\naddresses = [\"h:1*3\", \"g:2 backup\"]\n";

    private static Config read(String text) {
        return ConfigReader.read(text, "gw.toml", Map.of(), Map.of());
    }

    private static List<String> mistakes(String text) {
        return assertThrows(ConfigError.class, () -> {
            Config config = read(text);
            new SnapshotBuilder().build(config, ShippedFilters.of(config.filters()));
        }).mistakes();
    }

    @Test
    void all_mistakes_are_reported_with_their_place() {
        List<String> mistakes = mistakes("[server]\nlisen = \"x\"\nthreads = -1\n[nonsense]\n");
        assertEquals(3, mistakes.size());
        assertEquals("gw.toml:2:1: unknown option server.lisen (did you mean listen?)", mistakes.get(0));
        assertTrue(mistakes.get(1).startsWith("gw.toml:3:1: server.threads: -1 is out of range"));
        assertTrue(mistakes.get(2).startsWith("gw.toml:4:"), mistakes.get(2));
    }

    @Test
    void what_does_not_fit_together_is_refused() {
        assertTrue(mistakes(ORIGIN + "[[route]]\norigins = [\"p\"]\n").get(0)
                .contains("unknown origin \"p\" (o)"));
        assertTrue(mistakes("[origins.o]\naddresses = [\"nowhere\"]\n").get(0)
                .contains("not host:port"));
        assertTrue(mistakes(ORIGIN + "[[filter]]\ntype = \"rewrite\"\npattern = \"(\"\n").get(0)
                .contains("pattern"));
        assertTrue(mistakes(ORIGIN + "[[filter]]\ntype = \"debug\"\nname = \"d\"\n"
                + "[[filter]]\ntype = \"debug\"\nname = \"d\"\n").get(0).contains("two filters"));
    }

    @Test
    void flags_go_before_the_environment_and_that_before_the_file() {
        Config config = ConfigReader.read("[server]\nlisten = \"a:1\"\nthreads = 1\nbacklog = 1\n",
                "f", Map.of("WIRESPEED_GATEWAY_SERVER_THREADS", "2",
                        "WIRESPEED_GATEWAY_SERVER_BACKLOG", "2"), Map.of("server.backlog", "3"));
        assertEquals("a:1", config.table("server").text("listen"));
        assertEquals(2, config.table("server").count("threads"));
        assertEquals(3, config.table("server").count("backlog"));
    }

    @Test
    void addresses_outlive_a_snapshot() {
        SnapshotBuilder builder = new SnapshotBuilder();
        Snapshot first = builder.build(read(ORIGIN), List.of());
        Snapshot second = builder.build(read(ORIGIN), List.of());
        assertEquals(first.version() + 1, second.version());
        assertTrue(first.origins().get("o").addresses().get(0)
                == second.origins().get("o").addresses().get(0));
        assertEquals(3, second.origins().get("o").addresses().get(0).weight());
        assertTrue(second.origins().get("o").addresses().get(1).isBackup());
    }
}
