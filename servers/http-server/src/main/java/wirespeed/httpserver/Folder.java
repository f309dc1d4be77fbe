/** The files of a folder, small ones kept in memory. */
package wirespeed.httpserver;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.util.internal.PlatformDependent;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * The content of {@code --root}. A path is resolved and checked when it enters the cache, and again
 * after {@link #FRESH_S}: as with a cache of open files, a change is visible after that time.
 */
final class Folder implements Content {
    /** Larger files go from the page cache to the socket without entering this process. */
    static final int MEMORY_FILE_BYTES_MAX = 64 * 1024;
    private static final int ENTRIES_MAX = 1000;
    private static final long CACHE_BYTES_MAX = 64 << 20;
    private static final long FRESH_S = 30;

    private final Path root;
    private final long bytesMax;
    private final Key probe = new Key();
    private final Map<Key, Entry> entries = new LinkedHashMap<>(64, 0.75f, true);
    private long bytes;

    /** A cached resource and when to check it again. */
    private record Entry(Resource resource, long staleAtS) {
    }

    /** @param loops number of loops that share the memory of a cache */
    Folder(Path root, int loops) throws IOException {
        this.root = root.toRealPath();
        // Half of the direct memory is left for the buffers of connections.
        bytesMax = Math.min(CACHE_BYTES_MAX, PlatformDependent.maxDirectMemory() / 2) / loops;
    }

    @Override
    public Resource find(byte[] target, int from, int to, long nowS) throws Refusal {
        int pathTo = TargetPath.endOfPath(target, from, to);
        Entry entry = entries.get(probe.at(target, from, pathTo));
        if (entry != null && nowS < entry.staleAtS) {
            return entry.resource;
        }
        return load(target, from, pathTo, nowS, entry);
    }

    private Resource load(byte[] target, int from, int to, long nowS, Entry old) throws Refusal {
        Key key = Key.copy(target, from, to);
        try {
            Path file = root.resolve(TargetPath.relative(target, from, to)).toRealPath();
            BasicFileAttributes state = Files.readAttributes(file, BasicFileAttributes.class);
            // A link out of the folder counts as missing; so do folders and devices.
            if (!file.startsWith(root) || !state.isRegularFile()) {
                throw new Refusal(Status.NOT_FOUND);
            }
            Resource resource = old != null && isSame(old.resource, file, state) ? old.resource
                    : read(file, state);
            keep(key, new Entry(resource, nowS + FRESH_S));
            return resource;
        } catch (IOException unreadable) {
            forget(key);
            throw new Refusal(Status.NOT_FOUND);
        } catch (Refusal refused) {
            forget(key);
            throw refused;
        }
    }

    private static boolean isSame(Resource old, Path file, BasicFileAttributes state) {
        return old.file().equals(file) && old.bytes() == state.size()
                && old.modifiedNs() == modifiedNs(state);
    }

    private static long modifiedNs(BasicFileAttributes state) {
        return state.lastModifiedTime().to(TimeUnit.NANOSECONDS);
    }

    private static Resource read(Path file, BasicFileAttributes state) throws IOException {
        if (state.size() > MEMORY_FILE_BYTES_MAX) {
            return new Resource(null, file, state.size(), modifiedNs(state));
        }
        ByteBuf body = Unpooled.directBuffer((int) Math.max(state.size(), 1));
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
            long position = 0;
            while (position < state.size()) {
                int step = body.writeBytes(channel, position, (int) (state.size() - position));
                if (step < 0) {
                    throw new IOException(file + " became shorter while it was read");
                }
                position += step;
            }
            return new Resource(body.retain(), file, state.size(), modifiedNs(state));
        } finally {
            body.release();
        }
    }

    private void keep(Key key, Entry entry) {
        Entry old = entries.put(key, entry);
        bytes += memory(entry);
        if (old != null) {
            drop(old, entry.resource);
        }
        Iterator<Entry> eldest = entries.values().iterator();
        while ((entries.size() > ENTRIES_MAX || bytes > bytesMax) && entries.size() > 1) {
            Entry evicted = eldest.next();
            eldest.remove();
            drop(evicted, null);
        }
    }

    @Override
    public void close() {
        entries.values().forEach(entry -> drop(entry, null));
        entries.clear();
    }

    private void forget(Key key) {
        Entry old = entries.remove(key);
        if (old != null) {
            drop(old, null);
        }
    }

    private void drop(Entry old, Resource successor) {
        bytes -= memory(old);
        if (old.resource != successor && old.resource.isInMemory()) {
            old.resource.body().release();
        }
    }

    private static long memory(Entry entry) {
        return entry.resource.isInMemory() ? Math.max(entry.resource.bytes(), 1) : 0;
    }

    /** A range of bytes as key; a hit allocates nothing because one probe object is reused. */
    private static final class Key {
        private byte[] bytes;
        private int from;
        private int to;
        private int hash;

        static Key copy(byte[] bytes, int from, int to) {
            byte[] own = Arrays.copyOfRange(bytes, from, to);
            return new Key().at(own, 0, own.length);
        }

        Key at(byte[] source, int start, int end) {
            bytes = source;
            from = start;
            to = end;
            int sum = 1;
            for (int each = start; each < end; each++) {
                sum = 31 * sum + source[each];
            }
            hash = sum;
            return this;
        }

        @Override
        public int hashCode() {
            return hash;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Key key
                    && Arrays.equals(bytes, from, to, key.bytes, key.from, key.to);
        }
    }
}
