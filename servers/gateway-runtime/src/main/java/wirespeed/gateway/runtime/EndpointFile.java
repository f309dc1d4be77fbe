// Reads where services are from a file that another program writes.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.io.InputStream;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import wirespeed.gateway.core.Address;

/**
 * A line {@code NAME HOST:PORT} for each endpoint, with {@code *WEIGHT} and {@code backup} behind it as in a
 * configuration; {@code #} begins a comment. The program that writes it renames a whole file over it. A malformed
 * line is left out, and named in the log once.
 */
final class EndpointFile {
    /** How often to look. */
    static final int POLL_SECONDS = 1;
    private static final int BYTES_MAX = 4 << 20;
    private static final int ENDPOINTS_MAX = 1000;
    private static final Pattern LINE = Pattern.compile("\\S+\\s+([^\\s*]+)(?:\\*(\\d{1,4}))?(\\s+backup)?");

    private final Path file;
    private byte[] bytes;
    private Map<String, List<EndpointResolver.Target>> services = Map.of();

    /**
     * Reads nothing yet.
     *
     * @param file as {@link #file} takes it
     */
    EndpointFile(String file) {
        this.file = Path.of(file);
    }

    /** The file of a configuration; it has to be there. */
    static Path file(String text) {
        try {
            Path file = Path.of(text);
            if (Files.isRegularFile(file) && Files.isReadable(file)) {
                return file;
            }
        } catch (InvalidPathException bad) {
            // Refused below.
        }
        throw new IllegalArgumentException("server.endpoints: \"" + text
                + "\" is not a file that this user may read");
    }

    /**
     * The endpoints of a service; {@link UnknownHostException} where no line is about it.
     *
     * @throws IOException for a file that cannot be read, or has malformed lines only of this service
     */
    synchronized List<EndpointResolver.Target> find(String service) throws IOException {
        byte[] now = read();
        if (!Arrays.equals(now, bytes)) {
            services = parse(new String(now, StandardCharsets.UTF_8));
            bytes = now;
        }
        List<EndpointResolver.Target> endpoints = services.get(service);
        if (endpoints == null) {
            throw new UnknownHostException(file + " has no line of " + service);
        }
        if (endpoints.isEmpty()) {
            throw new IOException(file + " has malformed lines only of " + service);
        }
        return endpoints;
    }

    private byte[] read() throws IOException {
        try (InputStream in = Files.newInputStream(file)) {
            byte[] read = in.readNBytes(BYTES_MAX + 1);
            if (read.length > BYTES_MAX) {
                throw new IOException(file + " is longer than " + BYTES_MAX + " bytes");
            }
            return read;
        } catch (NoSuchFileException missing) {
            throw new IOException(file + " does not exist", missing);
        }
    }

    private Map<String, List<EndpointResolver.Target>> parse(String text) {
        Map<String, List<EndpointResolver.Target>> parsed = new LinkedHashMap<>();
        String[] lines = text.split("\n", -1);
        for (int i = 0; i < lines.length; i++) {
            String line = lines[i].replaceFirst("#.*", "").strip();
            if (line.isEmpty()) {
                continue;
            }
            List<EndpointResolver.Target> endpoints = parsed.computeIfAbsent(line.split("\\s", 2)[0],
                    first -> new ArrayList<>());
            try {
                EndpointResolver.Target endpoint = endpoint(line);
                if (endpoints.size() < ENDPOINTS_MAX) {
                    endpoints.add(endpoint);
                }
            } catch (IllegalArgumentException bad) {
                ThrottledLog.line(file + ":" + (i + 1) + ": the line is left out: " + bad.getMessage());
            }
        }
        return parsed;
    }

    private static EndpointResolver.Target endpoint(String line) {
        Matcher words = LINE.matcher(line);
        if (!words.matches()) {
            throw new IllegalArgumentException("it is not NAME HOST:PORT, with *WEIGHT and \" backup\" as needed");
        }
        Address address = Address.parse(words.group(1));
        int weight = words.group(2) == null ? 1 : Integer.parseInt(words.group(2));
        boolean isBackup = words.group(3) != null;
        return new EndpointResolver.Target(address.host(), address.port(), isBackup ? 1 : 0, weight, POLL_SECONDS);
    }
}
