// Filters from a folder, compiled and swapped while the gateway runs.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardWatchEventKinds;
import java.nio.file.WatchKey;
import java.nio.file.WatchService;
import java.nio.file.attribute.PosixFilePermission;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HashMap;
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
    private static final long SOURCE_BYTES_MAX = 1 << 20;
    private static final long JAR_BYTES_MAX = 32 << 20;

    /**
     * The result of loading a file.
     *
     * @param hash of the content that was looked at last
     * @param filters in use; of an older content when {@code error} is set
     * @param error why the newest content is not in use, or null
     */
    record Loaded(String hash, List<Filter> filters, String error) {
    }

    /**
     * A file as it was looked at; two with the same bytes are equal.
     *
     * @param content null for a jar that has not changed since it was loaded
     */
    private record Source(String hash, byte[] content) {
        @Override
        public boolean equals(Object other) {
            return other instanceof Source same && same.hash.equals(hash);
        }

        @Override
        public int hashCode() {
            return hash.hashCode();
        }
    }

    /**
     * By which a jar is known to be unchanged: reading all of it every few seconds is not free.
     *
     * @param attributes of its file
     */
    private record Stamp(Map<String, Object> attributes, String hash) {
    }

    private final Path folder;
    private final Map<String, String> parameters;
    private final Consumer<List<Filter>> swapped;
    private final AtomicLong failures = new AtomicLong();
    private volatile Map<String, Loaded> loaded = Map.of();
    /** Hashes of what was looked at last. */
    private Map<String, String> lastHashes = Map.of();
    private final Map<String, Stamp> stamps = new HashMap<>();
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
            Map<String, Source> first = sources();
            while (!hashes(first).equals(lastHashes)) {
                Thread.sleep(STABLE_MILLIS);
                Map<String, Source> second = sources();
                if (second.equals(first)) {
                    take(first);
                }
                first = second;
            }
        } catch (IOException e) {
            // A file that goes while it is read is a change, which is looked at again. The folder of a
            // gateway that has ended may be gone while its thread still looks.
            boolean isChange = e instanceof NoSuchFileException && Files.isDirectory(folder);
            if (!isClosed && !isChange) {
                LOG.log(System.Logger.Level.WARNING, "filter folder cannot be read: " + e);
            }
        } catch (RuntimeException fault) {
            // A filter's close, for one; the watch must go on.
            LOG.log(System.Logger.Level.ERROR, "filters are not taken", fault);
        }
    }

    private static Map<String, String> hashes(Map<String, Source> sources) {
        Map<String, String> hashes = new TreeMap<>();
        sources.forEach((name, source) -> hashes.put(name, source.hash()));
        return hashes;
    }

    private void take(Map<String, Source> sources) {
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

    private Map<String, Source> sources() throws IOException {
        checkWriters(folder);
        Map<String, Source> sources = new TreeMap<>();
        try (Stream<Path> paths = Files.list(folder)) {
            for (Path path : paths.toList()) {
                String name = path.getFileName().toString();
                boolean isJar = name.endsWith(".jar");
                boolean isFilter = isJar || name.endsWith(".java") || name.endsWith(".groovy");
                if (isFilter && Files.isRegularFile(path, LinkOption.NOFOLLOW_LINKS)
                        && Files.size(path) <= (isJar ? JAR_BYTES_MAX : SOURCE_BYTES_MAX)) {
                    checkWriters(path);
                    sources.put(name, isJar ? jar(path, name) : source(Files.readAllBytes(path)));
                }
            }
        }
        stamps.keySet().retainAll(sources.keySet());
        return sources;
    }

    private static Source source(byte[] content) {
        return new Source(hash(content), content);
    }

    private Source jar(Path path, String name) throws IOException {
        Map<String, Object> attributes = Files.readAttributes(path, "unix:ino,size,ctime");
        Stamp last = stamps.get(name);
        Loaded known = loaded.get(name);
        if (last != null && known != null && last.attributes().equals(attributes)
                && last.hash().equals(known.hash())) {
            return new Source(known.hash(), null);
        }
        Source read = source(Files.readAllBytes(path));
        stamps.put(name, new Stamp(attributes, read.hash()));
        return read;
    }

    /** A file that everybody may write is code of everybody's, whatever its folder allows. */
    private static void checkWriters(Path path) throws IOException {
        if (Files.getPosixFilePermissions(path).contains(PosixFilePermission.OTHERS_WRITE)) {
            throw new IOException(path + " can be written by everybody; use chmod o-w");
        }
    }

    /** Compiles what has changed; the answer are the filters that went out of use, or null. */
    private List<Filter> load(Map<String, Source> sources) {
        lastHashes = hashes(sources);
        Map<String, Loaded> next = new TreeMap<>();
        List<Filter> dropped = new ArrayList<>();
        boolean isChanged = !loaded.keySet().equals(sources.keySet());
        for (Map.Entry<String, Source> file : sources.entrySet()) {
            Loaded before = loaded.get(file.getKey());
            if (before != null && before.hash().equals(file.getValue().hash())) {
                next.put(file.getKey(), before);
                continue;
            }
            Loaded now = compile(file.getKey(), file.getValue(), before);
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

    private Loaded compile(String name, Source source, Loaded before) {
        String hash = source.hash();
        try {
            List<Filter> filters = FilterCompiler.load(name, source.content(), parameters);
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

    private static String hash(byte[] content) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(content));
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
