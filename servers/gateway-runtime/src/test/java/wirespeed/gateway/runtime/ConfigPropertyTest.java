// Configurations of any kind are taken or refused with a place and a reason; nothing else happens.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertFalse;

import java.util.List;
import java.util.Map;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import wirespeed.gateway.core.Option;
import wirespeed.gateway.core.OptionTable;

class ConfigPropertyTest {
    private static final List<String> VALUES = List.of("true", "0", "-1", "\"\"", "\"x\"", "\"10s\"",
            "\"1KiB\"", "[]", "[\"a:1\"]", "[1]", "{ a = \"b\" }", "9223372036854775807", "1.5",
            "2026-01-01", "\"\\u0000\"", "\"..\"", "\"*\"", "nonsense", "[\"10.0.0.0/8\"]");

    @Provide
    Arbitrary<String> tables() {
        Arbitrary<Option> option = Arbitraries.of(OptionTable.all().stream()
                // These would open files and sockets.
                .filter(one -> !List.of("file", "folder").contains(one.name())).toList());
        Arbitrary<String> table = Combinators.combine(option, Arbitraries.of(VALUES))
                .as((one, value) -> switch (one.section()) {
                    case "origin" -> "[origins.o]\naddresses = [\"h:1\"]\n";
                    case "route" -> "[[route]]\norigins = [\"o\"]\n";
                    case "filter" -> "[[filter]]\ntype = \"headers\"\n";
                    default -> "[" + one.section() + "]\n";
                } + one.name() + " = " + value + "\n");
        Arbitrary<String> noise = Arbitraries.strings().ascii().ofMaxLength(20);
        return Combinators.combine(table.list().ofMaxSize(4), noise.optional(0.1))
                .as((all, junk) -> String.join("", all) + junk.orElse(""));
    }

    @Property(tries = 500)
    void a_configuration_is_taken_or_refused(@ForAll("tables") String text) {
        try {
            Config config = ConfigReader.read(text, "any.toml", Map.of(), Map.of());
            new SnapshotBuilder().build(config, ShippedFilters.of(config.filters()));
        } catch (ConfigError refused) {
            assertFalse(refused.mistakes().isEmpty());
        }
    }
}
