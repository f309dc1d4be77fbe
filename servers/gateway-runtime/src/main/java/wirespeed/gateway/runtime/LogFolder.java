// Keeps files of logs below one folder, whoever writes the configuration.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import wirespeed.gateway.core.OptionValues;

/** Otherwise a user of the admin port could have the gateway write to any file of its user. */
final class LogFolder {
    private LogFolder() {
    }

    /** Refuses files elsewhere, and links that lead there. */
    static void check(Config config) {
        String folder = config.table("server").text("log-folder");
        if (folder.isEmpty()) {
            return;
        }
        List<String> mistakes = new ArrayList<>();
        for (OptionValues filter : config.filters()) {
            String file = filter.text("file");
            if (!file.isEmpty() && !isBelow(Path.of(folder), Path.of(file).toAbsolutePath())) {
                mistakes.add(filter.place() + "file \"" + file + "\" does not lie below"
                        + " server.log-folder, " + folder);
            }
        }
        if (!mistakes.isEmpty()) {
            throw new ConfigError(mistakes);
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
