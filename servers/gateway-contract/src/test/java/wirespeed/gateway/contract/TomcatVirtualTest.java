// The contract on virtual threads, in a Java that has them.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Asked for by {@code mvn -Dcontract=virtual}; by {@code whole} features and corpus, too. */
@Tag("virtual")
class TomcatVirtualTest {
    private static final int VIRTUAL_SINCE = 21;
    private static final long PATIENCE_MINUTES = 8;
    /** Where Linux distributions install their versions of Java. */
    private static final Path INSTALLED = Path.of("/usr/lib/jvm");

    @Test
    void the_contract_holds_on_virtual_threads(@TempDir Path folder) throws Exception {
        Optional<Path> java = newest();
        assumeTrue(java.isPresent(), "no Java " + VIRTUAL_SINCE + " or newer is installed");
        Path output = folder.resolve("output");
        Process suite = new ProcessBuilder(List.of(java.get().toString(), "-Xmx512m",
                "-cp", System.getProperty("java.class.path"), OnVirtualThreads.class.getName(),
                System.getProperty("contract", "")))
                .redirectErrorStream(true).redirectOutput(output.toFile()).start();
        try {
            assertTrue(suite.waitFor(PATIENCE_MINUTES, TimeUnit.MINUTES), "the suite hangs");
            assertEquals(0, suite.exitValue(), Files.readString(output));
        } finally {
            suite.destroyForcibly();
        }
    }

    private static Optional<Path> newest() throws IOException {
        if (Runtime.version().feature() >= VIRTUAL_SINCE) {
            return Optional.of(Path.of(System.getProperty("java.home"), "bin/java"));
        }
        if (!Files.isDirectory(INSTALLED)) {
            return Optional.empty();
        }
        try (Stream<Path> homes = Files.list(INSTALLED)) {
            return homes.filter(home -> version(home) >= VIRTUAL_SINCE)
                    .max(Comparator.comparingInt(TomcatVirtualTest::version))
                    .map(home -> home.resolve("bin/java"));
        }
    }

    /** 0 for a folder without a Java. */
    private static int version(Path home) {
        try (Stream<String> lines = Files.lines(home.resolve("release"))) {
            return lines.filter(line -> line.startsWith("JAVA_VERSION="))
                    .map(line -> line.split("[\".+-]")[1]).mapToInt(Integer::parseInt)
                    .findFirst().orElse(0);
        } catch (IOException | NumberFormatException notOne) {
            return 0;
        }
    }
}
