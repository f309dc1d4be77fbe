// Files on which the compiler itself fails.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class FilterFolderTest {
    @TempDir
    private Path folder;

    @Test
    void a_source_too_deep_for_the_compiler_is_named() throws Exception {
        Files.writeString(folder.resolve("Deep.java"), "class Deep { int x = 1" + "+1".repeat(20_000)
                + "; }");
        FilterFolder filters = new FilterFolder(ConfigReader.read("[filters]\nfolder = \"" + folder
                + "\"\n[origins.o]\naddresses = [\"h:1\"]\n", "x.toml", Map.of(), Map.of()).table("filters"),
                none -> { });
        ConfigError refused = assertThrows(ConfigError.class, filters::loadNow);
        assertTrue(refused.getMessage().contains("Deep.java: "), refused.getMessage());
    }
}
