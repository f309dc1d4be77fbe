// What is kept of a configuration that was replaced by the admin port.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ConfigStoreTest {
    @TempDir
    private Path folder;
    private Path file;

    @BeforeEach
    void write() throws IOException {
        file = Files.writeString(folder.resolve("gw.toml"), "0");
    }

    private static ConfigStore store(Path file) throws IOException {
        return new ConfigStore(file, Files.readString(file), Map.of(), Map.of());
    }

    private static String modeOf(Path file) throws IOException {
        return PosixFilePermissions.toString(Files.getPosixFilePermissions(file));
    }

    @Test
    void a_secret_file_stays_secret_and_so_do_its_generations() throws IOException {
        Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
        store(file).keep("1");
        assertEquals("1", Files.readString(file));
        assertEquals("rw-------", modeOf(file));
        assertEquals("rw-------", modeOf(folder.resolve("gw.toml.1")));
    }

    @Test
    void a_link_stays_a_link() throws IOException {
        Path elsewhere = Files.createDirectory(folder.resolve("elsewhere"));
        Path real = Files.move(file, elsewhere.resolve("real.toml"));
        Files.createSymbolicLink(file, real);
        store(file).keep("1");
        assertTrue(Files.isSymbolicLink(file));
        assertEquals("1", Files.readString(real));
    }

    @Test
    void ten_generations_are_kept() throws IOException {
        ConfigStore store = store(file);
        for (int i = 1; i <= 12; i++) {
            store.keep(String.valueOf(i));
        }
        assertEquals("11", store.older("1"));
        assertEquals("2", store.older("10"));
        for (String none : List.of("0", "11", "-1", "1x", "", "99999999999")) {
            assertThrows(NoSuchFileException.class, () -> store.older(none), none);
        }
    }

    @Test
    void a_text_that_cannot_be_written_costs_no_generation() throws IOException {
        ConfigStore store = store(file);
        for (int i = 1; i <= 10; i++) {
            store.keep(String.valueOf(i));
        }
        Path inTheWay = Files.createDirectory(folder.resolve("gw.toml.new"));
        for (int i = 0; i < 3; i++) {
            assertThrows(IOException.class, () -> store.keep("refused"));
        }
        assertEquals("9", store.older("1"));
        assertEquals("0", store.older("10"));
        Files.delete(inTheWay);
        store.keep("11");
        assertEquals("10", store.older("1"));
        assertEquals("1", store.older("10"));
    }

    @Test
    void a_text_whose_predecessor_cannot_be_copied_costs_no_generation() throws IOException {
        ConfigStore store = store(file);
        for (int i = 1; i <= 10; i++) {
            store.keep(String.valueOf(i));
        }
        Files.createFile(Files.createDirectory(folder.resolve("gw.toml.0")).resolve("in the way"));
        assertThrows(IOException.class, () -> store.keep("refused"));
        assertEquals("9", store.older("1"));
        assertEquals("0", store.older("10"));
    }
}
