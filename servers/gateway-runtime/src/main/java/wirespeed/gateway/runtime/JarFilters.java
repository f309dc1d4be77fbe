// Filters that were compiled elsewhere: a jar with the libraries that they need.
package wirespeed.gateway.runtime;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLConnection;
import java.net.URLStreamHandler;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.ZipEntry;
import java.util.zip.ZipInputStream;
import wirespeed.gateway.core.Filter;

/**
 * Each jar has a class loader of its own, which sees the platform and the filter API besides: two jars
 * may bring two versions of a library, and none meets the gateway's. The jar is in memory, so that its
 * file may be replaced at any time.
 */
final class JarFilters {
    private static final String LIST = "META-INF/services/" + Filter.class.getName();
    /** Of all entries, unpacked. */
    private static final int BYTES_MAX = 64 << 20;

    private JarFilters() {
    }

    /** The classes that the jar lists as filters, as {@link java.util.ServiceLoader} would find them. */
    static List<Class<?>> classes(String fileName, byte[] jar) throws FilterCompiler.Failed {
        Map<String, byte[]> entries = entries(fileName, jar);
        byte[] list = entries.get(LIST);
        if (list == null) {
            throw new FilterCompiler.Failed(fileName + ": it has no " + LIST
                    + " (a text file with the name of a filter class on each line)", null);
        }
        JarLoader loader = new JarLoader(entries);
        List<Class<?>> classes = new ArrayList<>();
        for (String line : new String(list, StandardCharsets.UTF_8).lines().toList()) {
            String name = line.replaceFirst("#.*", "").trim();
            if (!name.isEmpty()) {
                classes.add(filter(fileName, name, loader));
            }
        }
        return classes;
    }

    private static Class<?> filter(String fileName, String name, JarLoader loader)
            throws FilterCompiler.Failed {
        try {
            Class<?> type = Class.forName(name, false, loader);
            if (!Filter.class.isAssignableFrom(type)) {
                throw new FilterCompiler.Failed(fileName + ": " + name + " does not implement "
                        + Filter.class.getName(), null);
            }
            return type;
        } catch (ClassNotFoundException | LinkageError | SecurityException e) {
            // The last one for a class whose package only the platform may have.
            throw new FilterCompiler.Failed(fileName + ": " + e, e);
        }
    }

    private static Map<String, byte[]> entries(String fileName, byte[] jar)
            throws FilterCompiler.Failed {
        Map<String, byte[]> entries = new HashMap<>();
        int left = BYTES_MAX;
        try (ZipInputStream in = new ZipInputStream(new ByteArrayInputStream(jar))) {
            for (ZipEntry entry = in.getNextEntry(); entry != null; entry = in.getNextEntry()) {
                byte[] bytes = in.readNBytes(left + 1);
                if (bytes.length > left) {
                    throw new FilterCompiler.Failed(fileName + ": it holds more than "
                            + (BYTES_MAX >> 20) + " MiB", null);
                }
                left -= bytes.length;
                if (!entry.isDirectory()) {
                    entries.put(entry.getName(), bytes);
                }
            }
        } catch (IOException | IllegalArgumentException broken) {
            throw new FilterCompiler.Failed(fileName + ": " + broken, broken);
        }
        if (entries.isEmpty()) {
            throw new FilterCompiler.Failed(fileName + ": it is empty or not a jar", null);
        }
        return entries;
    }

    private static final class JarLoader extends ClassLoader {
        private final Map<String, byte[]> entries;
        private final URLStreamHandler handler = new URLStreamHandler() {
            @Override
            protected URLConnection openConnection(URL url) {
                return new Entry(url, entries.get(url.getPath().substring(1)));
            }
        };

        JarLoader(Map<String, byte[]> entries) {
            super(new FilterCompiler.ApiLoader("wirespeed.gateway.core."));
            this.entries = entries;
        }

        @Override
        protected Class<?> findClass(String name) throws ClassNotFoundException {
            byte[] bytes = entries.get(name.replace('.', '/') + ".class");
            if (bytes == null) {
                throw new ClassNotFoundException(name);
            }
            return defineClass(name, bytes, 0, bytes.length);
        }

        @Override
        protected URL findResource(String name) {
            try {
                return entries.containsKey(name) ? new URL(null, "filter-jar:/" + name, handler) : null;
            } catch (MalformedURLException impossible) {
                throw new IllegalStateException(impossible);
            }
        }

        /** Without those of the gateway, whose classes a filter does not see. */
        @Override
        public URL getResource(String name) {
            URL own = findResource(name);
            return own == null ? getPlatformClassLoader().getResource(name) : own;
        }

        @Override
        public Enumeration<URL> getResources(String name) throws IOException {
            List<URL> all = new ArrayList<>(Collections.list(getPlatformClassLoader().getResources(name)));
            if (entries.containsKey(name)) {
                all.add(0, findResource(name));
            }
            return Collections.enumeration(all);
        }
    }

    private static final class Entry extends URLConnection {
        private final byte[] bytes;

        Entry(URL url, byte[] bytes) {
            super(url);
            this.bytes = bytes;
        }

        @Override
        public void connect() {
            // It is in memory.
        }

        @Override
        public InputStream getInputStream() throws IOException {
            if (bytes == null) {
                throw new IOException(url + " is not in the jar");
            }
            return new ByteArrayInputStream(bytes);
        }
    }
}
