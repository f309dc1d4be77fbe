// The configuration file: read, replaced without a moment in between, and kept in generations.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Map;

/** Without a file (flags only) changes are kept in memory until the end of the process. */
public final class ConfigStore {
    private static final int GENERATIONS = 10;

    private final Path file;
    private final Map<String, String> environment;
    private final Map<String, Object> flags;
    private String text;

    /**
     * A store.
     *
     * @param file the TOML file, or null
     * @param text its content, or what the flags stand for
     */
    public ConfigStore(Path file, String text, Map<String, String> environment,
            Map<String, Object> flags) {
        this.file = file;
        this.text = text;
        this.environment = environment;
        this.flags = flags;
    }

    /** The file, or null when flags are all there is. */
    Path file() {
        return file;
    }

    /** The file holds this text now, without our doing. */
    synchronized void read(String now) {
        text = now;
    }

    synchronized String text() {
        return text;
    }

    /** Names the content; needed to change it. */
    synchronized String tag() {
        return tag(text);
    }

    static String tag(String text) {
        try {
            return '"' + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256")
                    .digest(text.getBytes(StandardCharsets.UTF_8)), 0, 8) + '"';
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
    }

    /** Checks a text as the configuration that this process would read. */
    Config check(String candidate) {
        return ConfigReader.read(candidate, file == null ? "configuration"
                : file.getFileName().toString(), environment, flags);
    }

    /** What a text alone says, without flags and environment. */
    Config inFile(String candidate) {
        return ConfigReader.read(candidate, "configuration", Map.of(), Map.of());
    }

    /** Writes the text so that a crash leaves the old file or the new one. */
    synchronized void keep(String next) throws IOException {
        if (file != null) {
            // A link stays one: what it points to is replaced.
            Path target = Files.exists(file) ? file.toRealPath() : file.toAbsolutePath();
            Path temporary = target.resolveSibling(target.getFileName() + ".new");
            try (FileChannel channel = FileChannel.open(temporary, StandardOpenOption.CREATE,
                    StandardOpenOption.WRITE, StandardOpenOption.TRUNCATE_EXISTING)) {
                if (Files.exists(target)) {
                    // It may hold a token and the key of cookies.
                    Files.setPosixFilePermissions(temporary,
                            Files.getPosixFilePermissions(target));
                }
                ByteBuffer bytes = ByteBuffer.wrap(next.getBytes(StandardCharsets.UTF_8));
                while (bytes.hasRemaining()) {
                    channel.write(bytes);
                }
                channel.force(true);
            }
            // Only now: a text that cannot be written costs no generation.
            rotate();
            Files.move(temporary, target, StandardCopyOption.ATOMIC_MOVE,
                    StandardCopyOption.REPLACE_EXISTING);
            syncFolder(target.getParent());
        }
        text = next;
    }

    private static void syncFolder(Path folder) throws IOException {
        try (FileChannel channel = FileChannel.open(folder, StandardOpenOption.READ)) {
            channel.force(true);
        }
    }

    private void rotate() throws IOException {
        // The copy first: without room for it nothing has moved.
        if (Files.exists(file)) {
            Files.copy(file, generation(0), StandardCopyOption.REPLACE_EXISTING);
        }
        for (int i = GENERATIONS - 1; i >= 0; i--) {
            Path from = generation(i);
            if (Files.exists(from)) {
                Files.move(from, generation(i + 1), StandardCopyOption.REPLACE_EXISTING);
            }
        }
    }

    private Path generation(int number) {
        return file.resolveSibling(file.getFileName() + "." + number);
    }

    /** The text of an older generation, 1 for the one before the present. */
    String older(String number) throws IOException {
        boolean isThere = file != null && number.matches("[1-9]|" + GENERATIONS)
                && Files.exists(generation(Integer.parseInt(number)));
        if (!isThere) {
            throw new java.nio.file.NoSuchFileException("there is no generation " + number);
        }
        return Files.readString(generation(Integer.parseInt(number)));
    }
}
