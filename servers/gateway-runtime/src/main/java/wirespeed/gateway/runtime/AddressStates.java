// What operators said about addresses by the admin port, kept for the next start.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Address.Administration;
import wirespeed.gateway.core.Origin;

/**
 * A file beside the configuration, CONFIG.state, with a line for each address that differs from it:
 * address, state, weight, and the configured weight at that time. A weight whose configured one has
 * changed since is dropped: the newer word counts. Without a configuration file nothing is kept.
 */
final class AddressStates {
    private static final System.Logger LOG = System.getLogger("wirespeed.gateway");

    private final GatewayRuntime runtime;
    private final Path file;

    AddressStates(GatewayRuntime runtime, Path config) {
        this.runtime = runtime;
        this.file = config == null ? null : config.resolveSibling(config.getFileName() + ".state");
    }

    private Map<String, Address> addresses() {
        Map<String, Address> all = new TreeMap<>();
        for (Origin origin : runtime.gateway().snapshot().origins().values()) {
            origin.addresses().forEach(address -> all.put(address.id(), address));
        }
        return all;
    }

    /** Names the present state; needed to change it without overwriting somebody else's change. */
    String tag() {
        return ConfigStore.tag(lines(true));
    }

    private String lines(boolean isWhole) {
        StringBuilder lines = new StringBuilder();
        addresses().forEach((id, address) -> {
            int configured = runtime.builder().configuredWeight(address);
            boolean isChanged = address.administration() != Administration.UP
                    || address.weight() != configured;
            if (isWhole || isChanged) {
                lines.append(id).append(' ')
                        .append(address.administration().name().toLowerCase(Locale.ROOT))
                        .append(' ').append(address.weight()).append(' ').append(configured)
                        .append('\n');
            }
        });
        return lines.toString();
    }

    /** Writes so that a crash leaves the old file or the new one. */
    void keep() throws IOException {
        if (file == null) {
            return;
        }
        Path temporary = file.resolveSibling(file.getFileName() + ".new");
        try (FileChannel channel = FileChannel.open(temporary, StandardOpenOption.CREATE,
                StandardOpenOption.WRITE, StandardOpenOption.TRUNCATE_EXISTING)) {
            ByteBuffer bytes = ByteBuffer.wrap(lines(false).getBytes(StandardCharsets.UTF_8));
            while (bytes.hasRemaining()) {
                channel.write(bytes);
            }
            channel.force(true);
        }
        Files.move(temporary, file, StandardCopyOption.ATOMIC_MOVE,
                StandardCopyOption.REPLACE_EXISTING);
    }

    /** Takes the file over; a line that cannot be read is named in the log and skipped. */
    void restore() {
        if (file == null || !Files.exists(file)) {
            return;
        }
        try {
            Map<String, Address> all = addresses();
            for (String line : Files.readAllLines(file)) {
                restore(line, all);
            }
        } catch (IOException unreadable) {
            LOG.log(System.Logger.Level.ERROR, file + " cannot be read: " + unreadable);
        }
    }

    private void restore(String line, Map<String, Address> all) {
        String[] words = line.split(" ");
        Address address = all.get(words[0]);
        if (address == null) {
            // The configuration no longer names it.
            return;
        }
        try {
            address.administration(Administration.valueOf(words[1].toUpperCase(Locale.ROOT)));
            if (Integer.parseInt(words[3]) == runtime.builder().configuredWeight(address)) {
                address.weight(Integer.parseInt(words[2]));
            }
        } catch (IllegalArgumentException | ArrayIndexOutOfBoundsException bad) {
            LOG.log(System.Logger.Level.ERROR, file + ": \"" + line + "\" is no state: "
                    + bad.getMessage());
        }
    }
}
