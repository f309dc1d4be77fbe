// Changes that operators made to addresses through the admin port, kept for the next start.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Comparator;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Address.Administration;
import wirespeed.gateway.core.Origin;

/**
 * A file next to the configuration, CONFIG.state, with a line for each address that differs from
 * it: address, state, weight, the configured weight at that time, and its origin. A weight is
 * dropped if its configured one has changed in the meantime: the newer setting counts. A line
 * without an origin, as earlier versions wrote it, applies to all that name the address. Without
 * a configuration file nothing is kept.
 */
final class AddressStates {
    private static final System.Logger LOG = System.getLogger("wirespeed.gateway");

    private final GatewayRuntime runtime;
    private final Path file;

    AddressStates(GatewayRuntime runtime, Path config) {
        this.runtime = runtime;
        this.file = config == null ? null : config.resolveSibling(config.getFileName() + ".state");
    }

    private record Place(String id, String origin) {
    }

    private Map<Place, Address> addresses() {
        Map<Place, Address> all = new TreeMap<>(
                Comparator.comparing(Place::id).thenComparing(Place::origin));
        for (Origin origin : runtime.gateway().snapshot().origins().values()) {
            origin.addresses().forEach(
                    address -> all.put(new Place(address.id(), origin.name()), address));
        }
        return all;
    }

    /** Names the present state; needed to change it without overwriting somebody else's change. */
    String tag() {
        return ConfigStore.tag(lines(true));
    }

    private String lines(boolean isWhole) {
        StringBuilder lines = new StringBuilder();
        addresses().forEach((place, address) -> {
            int configured = runtime.builder().configuredWeight(address);
            boolean isChanged = address.administration() != Administration.UP
                    || address.weight() != configured;
            if (isWhole || isChanged) {
                lines.append(place.id()).append(' ')
                        .append(address.administration().name().toLowerCase(Locale.ROOT))
                        .append(' ').append(address.weight()).append(' ').append(configured)
                        .append(' ').append(place.origin()).append('\n');
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
            Map<Place, Address> all = addresses();
            for (String line : Files.readAllLines(file)) {
                restore(line, all);
            }
        } catch (IOException unreadable) {
            LOG.log(System.Logger.Level.ERROR, file + " cannot be read: " + unreadable);
        }
    }

    private void restore(String line, Map<Place, Address> all) {
        String[] words = line.split(" ", 5);
        // Addresses that the configuration no longer names are skipped.
        all.forEach((place, address) -> {
            if (place.id().equals(words[0])
                    && (words.length < 5 || place.origin().equals(words[4]))) {
                restore(line, words, address);
            }
        });
    }

    private void restore(String line, String[] words, Address address) {
        try {
            address.administration(Administration.valueOf(words[1].toUpperCase(Locale.ROOT)));
            if (Integer.parseInt(words[3]) == runtime.builder().configuredWeight(address)) {
                address.weight(Integer.parseInt(words[2]));
            }
        } catch (IllegalArgumentException | ArrayIndexOutOfBoundsException bad) {
            LOG.log(System.Logger.Level.ERROR, file + ": \"" + line + "\" is not a state: "
                    + bad.getMessage());
        }
    }
}
