// Turns one file into filters, each file in a class loader of its own.
package wirespeed.gateway.runtime;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Modifier;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.tools.Diagnostic;
import javax.tools.DiagnosticCollector;
import javax.tools.ForwardingJavaFileManager;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileManager;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;
import wirespeed.gateway.core.Filter;

/** Java by the JDK's compiler, Groovy statically compiled; the message of a failure has the line. */
final class FilterCompiler {
    /** A file that gives no filter. */
    static final class Failed extends Exception {
        private static final long serialVersionUID = 1L;

        Failed(String message, Throwable cause) {
            super(message, cause);
        }
    }

    private FilterCompiler() {
    }

    /**
     * The filters of one file, source or jar.
     *
     * @param parameters for constructors that take them
     */
    static List<Filter> load(String fileName, byte[] content, Map<String, String> parameters)
            throws Failed {
        return fileName.endsWith(".jar")
                ? instances(fileName, JarFilters.classes(fileName, content), parameters)
                : compile(fileName, new String(content, StandardCharsets.UTF_8), parameters);
    }

    /** The filters of a source. */
    static List<Filter> compile(String fileName, String source, Map<String, String> parameters)
            throws Failed {
        return instances(fileName, fileName.endsWith(".groovy")
                ? GroovyFilters.compile(fileName, source) : java(fileName, source), parameters);
    }

    private static List<Filter> instances(String fileName, List<Class<?>> classes,
            Map<String, String> parameters) throws Failed {
        List<Filter> filters = new ArrayList<>();
        for (Class<?> type : classes) {
            boolean isFilter = Filter.class.isAssignableFrom(type) && !type.isInterface()
                    && !Modifier.isAbstract(type.getModifiers());
            if (isFilter && !type.isAnonymousClass()) {
                filters.add(instance(fileName, type, parameters));
            }
        }
        if (filters.isEmpty()) {
            throw new Failed(fileName + ": no class implements " + Filter.class.getName(), null);
        }
        return filters;
    }

    private static Filter instance(String fileName, Class<?> type, Map<String, String> parameters)
            throws Failed {
        try {
            Filter filter = made(type, parameters);
            if (filter.name() == null || filter.phase() == null) {
                throw new Failed(fileName + ": " + type.getName() + " has no name or no phase",
                        null);
            }
            return filter;
        } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
            Throwable cause = e.getCause() == null ? e : e.getCause();
            throw new Failed(fileName + ": " + type.getName() + " cannot be made: " + cause, e);
        }
    }

    private static Filter made(Class<?> type, Map<String, String> parameters)
            throws ReflectiveOperationException {
        for (Constructor<?> constructor : type.getDeclaredConstructors()) {
            if (List.of(constructor.getParameterTypes()).equals(List.of(Map.class))) {
                return (Filter) constructor.newInstance(parameters);
            }
        }
        return (Filter) type.getDeclaredConstructor().newInstance();
    }

    private static List<Class<?>> java(String fileName, String source) throws Failed {
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        if (compiler == null) {
            throw new Failed(fileName + ": this Java has no compiler; run the gateway on a JDK",
                    null);
        }
        DiagnosticCollector<JavaFileObject> diagnostics = new DiagnosticCollector<>();
        Map<String, byte[]> compiled = new HashMap<>();
        try (StandardJavaFileManager files = compiler.getStandardFileManager(diagnostics, null,
                null); JavaFileManager memory = new Memory(files, compiled)) {
            boolean isFine = compiler.getTask(null, memory, diagnostics,
                    List.of("--release", "17", "-proc:none", "-cp",
                            System.getProperty("java.class.path")),
                    null, List.of(new Source(fileName, source))).call();
            if (!isFine) {
                throw new Failed(message(fileName, diagnostics), null);
            }
        } catch (IOException e) {
            throw new Failed(fileName + ": " + e, e);
        }
        return load(fileName, compiled);
    }

    private static String message(String fileName,
            DiagnosticCollector<JavaFileObject> diagnostics) {
        StringBuilder message = new StringBuilder();
        for (Diagnostic<?> diagnostic : diagnostics.getDiagnostics()) {
            if (diagnostic.getKind() == Diagnostic.Kind.ERROR) {
                message.append(message.length() == 0 ? "" : "\n").append(fileName).append(':')
                        .append(diagnostic.getLineNumber()).append(": ")
                        .append(diagnostic.getMessage(java.util.Locale.ROOT).replace('\n', ' '));
            }
        }
        // It may fail itself, such as on an expression too deep for its stack, and says that elsewhere.
        return message.length() == 0 ? fileName + ": the compiler has failed" : message.toString();
    }

    private static List<Class<?>> load(String fileName, Map<String, byte[]> compiled)
            throws Failed {
        BytesLoader loader = new BytesLoader(compiled);
        List<Class<?>> classes = new ArrayList<>();
        try {
            for (String name : compiled.keySet()) {
                classes.add(Class.forName(name, false, loader));
            }
        } catch (ClassNotFoundException | LinkageError e) {
            throw new Failed(fileName + ": " + e, e);
        }
        return classes;
    }

    /** Shows filters the platform and the filter API, nothing else of the gateway. */
    static final class ApiLoader extends ClassLoader {
        private final List<String> visible;

        ApiLoader(String... visible) {
            super(FilterCompiler.class.getClassLoader());
            this.visible = List.of(visible);
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            for (String prefix : visible) {
                if (name.startsWith(prefix)) {
                    return super.loadClass(name, resolve);
                }
            }
            try {
                return getPlatformClassLoader().loadClass(name);
            } catch (ClassNotFoundException none) {
                throw new ClassNotFoundException(name + " is not part of what filters may use", none);
            }
        }
    }

    private static final class BytesLoader extends ClassLoader {
        private final Map<String, byte[]> compiled;

        BytesLoader(Map<String, byte[]> compiled) {
            super(new ApiLoader("wirespeed.gateway.core."));
            this.compiled = compiled;
        }

        @Override
        protected Class<?> findClass(String name) throws ClassNotFoundException {
            byte[] bytes = compiled.get(name);
            if (bytes == null) {
                throw new ClassNotFoundException(name);
            }
            return defineClass(name, bytes, 0, bytes.length);
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!compiled.containsKey(name)) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> loaded = findLoadedClass(name);
                return loaded == null ? findClass(name) : loaded;
            }
        }
    }

    private static final class Source extends SimpleJavaFileObject {
        private final String source;

        Source(String fileName, String source) {
            super(URI.create("string:///" + fileName), Kind.SOURCE);
            this.source = source;
        }

        @Override
        public CharSequence getCharContent(boolean ignoreEncodingErrors) {
            return source;
        }
    }

    private static final class Memory extends ForwardingJavaFileManager<StandardJavaFileManager> {
        private final Map<String, byte[]> compiled;

        Memory(StandardJavaFileManager files, Map<String, byte[]> compiled) {
            super(files);
            this.compiled = compiled;
        }

        @Override
        public JavaFileObject getJavaFileForOutput(Location location, String className,
                JavaFileObject.Kind kind, javax.tools.FileObject sibling) {
            return new SimpleJavaFileObject(URI.create("bytes:///" + className), kind) {
                @Override
                public OutputStream openOutputStream() {
                    return new ByteArrayOutputStream() {
                        @Override
                        public void close() {
                            compiled.put(className, toByteArray());
                        }
                    };
                }
            };
        }
    }
}
