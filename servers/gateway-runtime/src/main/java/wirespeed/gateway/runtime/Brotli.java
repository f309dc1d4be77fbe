// Loads brotli's native library and leaves no copy of it behind.
package wirespeed.gateway.runtime;

import com.aayushatharva.brotli4j.Brotli4jLoader;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/**
 * Without this class, brotli4j copies the library into a new folder and removes that when the JVM
 * exits normally. A gateway halts or is killed, so each start would leave a copy. Once loaded, the
 * file is not needed any more.
 */
final class Brotli {
    private static final String LIBRARY = "brotli4j.library.path";

    static {
        if (System.getProperty(LIBRARY) == null) {
            load();
        }
    }

    private Brotli() {
    }

    /** Why it cannot be used here; null when it can. */
    static Throwable unavailability() {
        return Brotli4jLoader.getUnavailabilityCause();
    }

    /** Failures here are left to brotli4j, which tries again and reports them. */
    private static void load() {
        String arch = System.getProperty("os.arch");
        try (InputStream library = Brotli4jLoader.class.getResourceAsStream("/lib/linux-"
                + (arch.equals("amd64") ? "x86_64" : arch) + "/libbrotli.so")) {
            if (library != null) {
                load(library);
            }
        } catch (IOException notWritable) {
            System.getLogger("wirespeed.gateway").log(System.Logger.Level.WARNING,
                    "brotli: " + notWritable);
        }
    }

    private static void load(InputStream library) throws IOException {
        Path copy = Files.createTempFile("libbrotli", ".so");
        try {
            Files.copy(library, copy, StandardCopyOption.REPLACE_EXISTING);
            System.setProperty(LIBRARY, copy.toString());
            Brotli4jLoader.isAvailable();
        } finally {
            System.clearProperty(LIBRARY);
            Files.delete(copy);
        }
    }
}
