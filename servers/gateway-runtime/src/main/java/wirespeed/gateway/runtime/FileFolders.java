// Keeps files of logs, and those of error pages, below a folder, whoever writes the configuration.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import wirespeed.gateway.core.OptionValues;

/** Otherwise a user of the admin port could have the gateway write to, or show, any file of its user. */
final class FileFolders {
    private FileFolders() {
    }

    /** Refuses files elsewhere, and links that lead there. */
    static void check(Config config) {
        List<String> mistakes = new ArrayList<>();
        check(config, "access-log", "log-folder", mistakes);
        check(config, "error-page", "page-folder", mistakes);
        if (!mistakes.isEmpty()) {
            throw new ConfigError(mistakes);
        }
    }

    private static void check(Config config, String type, String option, List<String> mistakes) {
        String folder = config.table("server").text(option);
        for (OptionValues filter : config.filters()) {
            String file = filter.text("type").equals(type) ? filter.text("file") : "";
            if (!folder.isEmpty() && !file.isEmpty()
                    && !isBelow(Path.of(folder), Path.of(file).toAbsolutePath())) {
                mistakes.add(filter.place() + "file \"" + file + "\" does not lie below server."
                        + option + ", " + folder);
            }
        }
    }

    private static boolean isBelow(Path folder, Path file) {
        try {
            Path real = Files.exists(file) ? file.toRealPath()
                    : file.getParent().toRealPath().resolve(file.getFileName());
            return real.startsWith(folder.toRealPath()) && !Files.isSymbolicLink(file);
        } catch (IOException missing) {
            return false;
        }
    }
}
