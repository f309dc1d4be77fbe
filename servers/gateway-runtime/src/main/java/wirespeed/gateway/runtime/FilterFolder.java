// Filters from a folder, compiled and swapped while the gateway runs.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardWatchEventKinds;
import java.nio.file.WatchKey;
import java.nio.file.WatchService;
import java.nio.file.attribute.PosixFilePermission;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.stream.Stream;
import wirespeed.gateway.core.Filter;
import wirespeed.gateway.core.OptionValues;

/**
 * One thread watches, compiles and swaps; traffic never waits for it. Only the content counts:
 * a file is taken when two looks in succession see the same bytes. Filters are not confined: a user that may
 * write this folder runs code in the gateway, so others must not be able to.
 */
final class FilterFolder implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger("wirespeed.gateway");
    private static final long STABLE_MILLIS = 200;
    private static final long RESCAN_MILLIS = 5000;
    private static final long FILE_BYTES_MAX = 1 << 20;

    /**
     * The result of loading a file.
     *
     * @param hash of the content that was looked at last
     * @param filters in use; of an older content when {@code error} is set
     * @param error why the newest content is not in use, or null
     */
    record Loaded(String hash, List<Filter> filters, String error) {
    }

    private final Path folder;
    private final Map<String, String> parameters;
    private final Consumer<List<Filter>> swapped;
    private final AtomicLong failures = new AtomicLong();
    private volatile Map<String, Loaded> loaded = Map.of();
    private Map<String, String> lastSources = Map.of();
    private volatile boolean isClosed;
    private Thread thread;

    /**
     * Nothing is read yet.
     *
     * @param options the table filters: where they are, and what their constructors get
     * @param swapped called after a change, with the filters that are no longer in use
     */
    FilterFolder(OptionValues options, Consumer<List<Filter>> swapped) {
        String folder = options.text("folder");
        this.parameters = Map.copyOf(options.table("parameters"));
        this.folder = folder.isEmpty() ? null : Path.of(folder);
        this.swapped = swapped;
        if (this.folder != null && !Files.isDirectory(this.folder)) {
            throw new ConfigError("filters.folder: \"" + folder + "\" is not a folder");
        }
    }

    /** The filters of all files. */
    List<Filter> filters() {
        return loaded.values().stream().flatMap(file -> file.filters().stream()).toList();
    }

    Map<String, Loaded> files() {
        return loaded;
    }

    /** How many files did not compile since the start. */
    long failures() {
        return failures.get();
    }

    /** Reads the folder at start; a file that does not compile stops the start. */
    void loadNow() {
        if (folder == null) {
            return;
        }
        try {
            load(sources());
        } catch (IOException e) {
            throw new ConfigError("filters.folder: " + e);
        }
        List<String> errors = loaded.values().stream().map(Loaded::error)
                .filter(java.util.Objects::nonNull).toList();
        if (!errors.isEmpty()) {
            throw new ConfigError(errors);
        }
    }

    void start() {
        if (folder != null) {
            thread = new Thread(this::run, "filter-folder");
            thread.setDaemon(true);
            thread.start();
        }
    }

    private void run() {
        try (WatchService watch = FileSystems.getDefault().newWatchService()) {
            folder.register(watch, StandardWatchEventKinds.ENTRY_CREATE,
                    StandardWatchEventKinds.ENTRY_MODIFY, StandardWatchEventKinds.ENTRY_DELETE);
            while (!isClosed) {
                // Bind mounts and overflows lose events: the folder is read regularly, too.
                WatchKey key = watch.poll(RESCAN_MILLIS, TimeUnit.MILLISECONDS);
                if (key != null) {
                    key.pollEvents();
                    key.reset();
                }
                rescan();
            }
        } catch (IOException e) {
            LOG.log(System.Logger.Level.ERROR, "filters are not watched any more: " + e);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    /** Looks twice, and takes what did not change in between. */
    private void rescan() throws InterruptedException {
        try {
            Map<String, String> first = sources();
            while (!first.equals(lastSources)) {
                Thread.sleep(STABLE_MILLIS);
                Map<String, String> second = sources();
                if (second.equals(first)) {
                    take(first);
                }
                first = second;
            }
        } catch (IOException e) {
            // The folder of a gateway that has ended may be gone while its thread still looks.
            if (!isClosed) {
                LOG.log(System.Logger.Level.WARNING, "filter folder cannot be read: " + e);
            }
        } catch (RuntimeException fault) {
            // A filter's close, for one; the watch must go on.
            LOG.log(System.Logger.Level.ERROR, "filters are not taken", fault);
        }
    }

    private void take(Map<String, String> sources) {
        Map<String, Loaded> before = loaded;
        List<Filter> dropped = load(sources);
        if (dropped == null) {
            return;
        }
        try {
            swapped.accept(dropped);
            forget(dropped);
        } catch (ConfigError refused) {
            // Two filters of one name, say: each compiles, and together they are refused.
            LOG.log(System.Logger.Level.WARNING, "filters are not taken: " + refused.getMessage());
            failures.incrementAndGet();
            keep(before, refused.getMessage());
        }
    }

    /** Goes back to the filters that are in use, and says of the new files why they are not. */
    private void keep(Map<String, Loaded> before, String error) {
        Map<String, Loaded> kept = new TreeMap<>();
        loaded.forEach((name, now) -> {
            Loaded old = before.get(name);
            boolean isSame = now == old;
            kept.put(name, isSame ? now
                    : new Loaded(now.hash(), old == null ? List.of() : old.filters(), error));
            if (!isSame && now.error() == null) {
                now.filters().forEach(GatewayRuntime::close);
                forget(now.filters());
            }
        });
        loaded = kept;
    }

    private Map<String, String> sources() throws IOException {
        checkWriters(folder);
        Map<String, String> sources = new TreeMap<>();
        try (Stream<Path> paths = Files.list(folder)) {
            for (Path path : paths.toList()) {
                String name = path.getFileName().toString();
                boolean isSource = name.endsWith(".java") || name.endsWith(".groovy");
                if (isSource && Files.isRegularFile(path, LinkOption.NOFOLLOW_LINKS)
                        && Files.size(path) <= FILE_BYTES_MAX) {
                    checkWriters(path);
                    sources.put(name, Files.readString(path));
                }
            }
        } catch (java.nio.file.NoSuchFileException goneMeanwhile) {
            return lastSources;
        }
        return sources;
    }

    /** A file that everybody may write is code of everybody's, whatever its folder allows. */
    private static void checkWriters(Path path) throws IOException {
        if (Files.getPosixFilePermissions(path).contains(PosixFilePermission.OTHERS_WRITE)) {
            throw new IOException(path + " can be written by everybody; use chmod o-w");
        }
    }

    /** Compiles what has changed; the answer are the filters that went out of use, or null. */
    private List<Filter> load(Map<String, String> sources) {
        lastSources = sources;
        Map<String, Loaded> next = new TreeMap<>();
        List<Filter> dropped = new ArrayList<>();
        boolean isChanged = !loaded.keySet().equals(sources.keySet());
        for (Map.Entry<String, String> file : sources.entrySet()) {
            Loaded before = loaded.get(file.getKey());
            String hash = hash(file.getValue());
            if (before != null && before.hash().equals(hash)) {
                next.put(file.getKey(), before);
                continue;
            }
            Loaded now = compile(file.getKey(), file.getValue(), hash, before);
            next.put(file.getKey(), now);
            if (now.error() == null) {
                isChanged = true;
                dropped.addAll(before == null ? List.of() : before.filters());
            }
        }
        loaded.forEach((name, before) -> {
            if (!sources.containsKey(name)) {
                dropped.addAll(before.filters());
            }
        });
        loaded = next;
        return isChanged ? dropped : null;
    }

    private Loaded compile(String name, String source, String hash, Loaded before) {
        try {
            List<Filter> filters = FilterCompiler.compile(name, source, parameters);
            LOG.log(System.Logger.Level.INFO, "filter file " + name + " loaded, sha256 " + hash);
            return new Loaded(hash, filters, null);
        } catch (FilterCompiler.Failed failed) {
            failures.incrementAndGet();
            LOG.log(System.Logger.Level.WARNING, "filter file not loaded, the old one stays: "
                    + failed.getMessage());
            return new Loaded(hash, before == null ? List.of() : before.filters(),
                    failed.getMessage());
        }
    }

    static void forget(List<Filter> dropped) {
        for (Filter filter : dropped) {
            if (filter.getClass().getClassLoader().getClass().getName().startsWith("groovy.")) {
                GroovyFilters.forget(filter.getClass());
            }
        }
    }

    private static String hash(String text) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256")
                    .digest(text.getBytes(StandardCharsets.UTF_8)));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
    }

    @Override
    public void close() {
        isClosed = true;
        if (thread != null) {
            thread.interrupt();
        }
        filters().forEach(GatewayRuntime::close);
    }
}
