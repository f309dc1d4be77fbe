/** The options of the HTTP server, each declared once, and their combined meaning. */
package wirespeed.httpserver;

import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * The settings of a command line.
 *
 * @param root         the folder with the files to serve, or null
 * @param payloadBytes the size of the single payload, or -1 with a root
 */
record Settings(String host, int port, Path root, int payloadBytes, Transport transport,
                int threads, boolean validators) {
    /** Limit of --payload, which is held in memory; larger bodies are files. */
    static final int PAYLOAD_BYTES_MAX = 16 << 20;
    private static final Map<String, Long> UNITS = Map.of("", 1L, "b", 1L, "kib", 1L << 10,
            "mib", 1L << 20, "kb", 1000L, "mb", 1_000_000L, "k", 1L << 10, "m", 1L << 20);

    static final Option<String> HOST = new Option<>("host", "ADDRESS", "127.0.0.1",
            "address to listen on", text -> text);
    static final Option<Integer> PORT = new Option<>("port", "PORT", "8080",
            "port to listen on; 0 takes a free one and prints it", text -> number(text, 0, 65535));
    static final Option<Path> ROOT = new Option<>("root", "DIR", null,
            "serve the files of this folder", Settings::folder);
    static final Option<Integer> PAYLOAD = new Option<>("payload", "SIZE", null,
            "respond to each path with SIZE random bytes: 128, 1KiB, 10MiB",
            text -> (int) size(text, PAYLOAD_BYTES_MAX));
    static final Option<Transport> TRANSPORT = new Option<>("transport", "NAME", "nio",
            "nio, epoll or io_uring", Transport::named);
    static final Option<Integer> THREADS = new Option<>("threads", "N", "1",
            "event loops that serve; with more than one, another one accepts",
            text -> number(text, 1, 1024));
    static final Option<Boolean> VALIDATORS = new Option<>("validators", null, "false",
            "add Last-Modified and ETag to files; serve conditional and range requests",
            Boolean::valueOf);
    static final Option<Path> MAKE_PAYLOADS = new Option<>("make-payloads", "DIR", null,
            "write files named by their size, and exit: --make-payloads DIR 16 1KiB",
            Path::of);
    static final Option<Boolean> HELP = new Option<>("help", null, "false", "show this",
            Boolean::valueOf);
    static final List<Option<?>> OPTIONS = List.of(HOST, PORT, ROOT, PAYLOAD, TRANSPORT, THREADS,
            VALIDATORS, MAKE_PAYLOADS, HELP);

    static Settings of(CommandLine line) {
        if (!line.words().isEmpty()) {
            throw new BadUsage(line.words().get(0) + ": unexpected argument; --help lists the options");
        }
        if (line.has(ROOT) == line.has(PAYLOAD)) {
            throw new BadUsage("give one of --root DIR and --payload SIZE");
        }
        if (line.has(VALIDATORS) && line.has(PAYLOAD)) {
            throw new BadUsage("--validators needs --root DIR; a payload has no date");
        }
        return new Settings(line.get(HOST), line.get(PORT), line.get(ROOT),
                line.has(PAYLOAD) ? line.get(PAYLOAD) : -1, line.get(TRANSPORT), line.get(THREADS),
                line.get(VALIDATORS));
    }

    static String help() {
        return "usage: http-server (--root DIR | --payload SIZE) [OPTIONS]\n\n"
                + "Serves GET and HEAD over HTTP/1.1. On SIGTERM it completes requests in flight and exits.\n\n"
                + CommandLine.help(OPTIONS)
                + "\nExit codes: 0 stopped, 1 cannot listen, 2 bad usage or no such transport.\n";
    }

    private static int number(String text, int min, int max) {
        try {
            int value = Integer.parseInt(text);
            if (value >= min && value <= max) {
                return value;
            }
        } catch (NumberFormatException notANumber) {
            // continues to the common message of both errors
        }
        throw new BadUsage("give a number from " + min + " to " + max);
    }

    /** Bytes of a number with an optional unit. */
    static long size(String text, long max) {
        int digits = 0;
        while (digits < text.length() && Character.isDigit(text.charAt(digits))) {
            digits++;
        }
        Long unit = UNITS.get(text.substring(digits).strip().toLowerCase(Locale.ROOT));
        if (digits > 0 && digits < 12 && unit != null) {
            long bytes = Long.parseLong(text.substring(0, digits)) * unit;
            if (bytes <= max) {
                return bytes;
            }
        }
        throw new BadUsage("give a size from 0 to " + max / (1 << 20)
                + "MiB, as in 128, 1KiB, 10MiB");
    }

    private static Path folder(String text) {
        try {
            Path path = Path.of(text);
            if (Files.isDirectory(path)) {
                return path;
            }
        } catch (InvalidPathException unusable) {
            // continues to the same message
        }
        throw new BadUsage("is not a folder; name one that exists");
    }
}
