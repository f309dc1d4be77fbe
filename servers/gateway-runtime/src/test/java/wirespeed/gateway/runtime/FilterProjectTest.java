// The project that --new-filter makes compiles, passes its test, and loads.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import javax.tools.ToolProvider;
import javax.xml.parsers.DocumentBuilderFactory;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class FilterProjectTest {
    private static final String LIST = "META-INF/services/wirespeed.gateway.core.Filter";
    private static final Pattern PLUGIN = Pattern.compile(
            "<artifactId>(maven-\\w+-plugin)</artifactId>\\s*<version>(.+?)</version>");

    @TempDir
    Path folder;
    private Path project;
    private Path classes;

    @BeforeEach
    void make() throws IOException {
        Path jar = Files.createFile(folder.resolve("a & b.jar"));
        project = folder.resolve("mine");
        classes = Files.createDirectory(folder.resolve("classes"));
        assertTrue(FilterProject.make(project, jar).contains("mvn package"));
    }

    private void compile() throws IOException {
        try (Stream<Path> sources = Files.walk(project)) {
            Stream<String> java = sources.map(Path::toString).filter(path -> path.endsWith(".java"));
            String[] words = Stream.concat(Stream.of("--release", "17", "-proc:none", "-cp",
                    System.getProperty("java.class.path"), "-d", classes.toString()), java).toArray(String[]::new);
            assertEquals(0, ToolProvider.getSystemJavaCompiler().run(null, null, null, words));
        }
    }

    @Test
    void its_tests_pass() throws Exception {
        compile();
        try (URLClassLoader loader = new URLClassLoader(new URL[] {classes.toUri().toURL()},
                getClass().getClassLoader())) {
            Class<?> type = loader.loadClass("filters.TenantFilterTest");
            Constructor<?> made = type.getDeclaredConstructor();
            made.setAccessible(true);
            List<Method> tests = Arrays.stream(type.getDeclaredMethods())
                    .filter(method -> method.isAnnotationPresent(Test.class)).toList();
            assertEquals(2, tests.size());
            for (Method test : tests) {
                test.setAccessible(true);
                test.invoke(made.newInstance());
            }
        }
    }

    @Test
    void its_jar_lists_a_filter_that_loads() throws Exception {
        compile();
        ByteArrayOutputStream jar = new ByteArrayOutputStream();
        try (ZipOutputStream zip = new ZipOutputStream(jar)) {
            entry(zip, LIST, project.resolve("src/main/resources").resolve(LIST));
            entry(zip, "filters/TenantFilter.class", classes.resolve("filters/TenantFilter.class"));
        }
        assertEquals(List.of("filters.TenantFilter"), JarFilters.classes("filters.jar", jar.toByteArray())
                .stream().map(Class::getName).toList());
    }

    private static void entry(ZipOutputStream zip, String name, Path file) throws IOException {
        zip.putNextEntry(new ZipEntry(name));
        zip.write(Files.readAllBytes(file));
    }

    @Test
    void its_build_names_the_jar_of_the_gateway_and_the_versions_of_this_one() throws Exception {
        Path pom = project.resolve("pom.xml");
        String jar = DocumentBuilderFactory.newInstance().newDocumentBuilder().parse(pom.toFile())
                .getElementsByTagName("gateway.jar").item(0).getTextContent();
        assertEquals(folder.resolve("a & b.jar").toString(), jar);
        String own = Files.readString(Path.of("../pom.xml"));
        String text = Files.readString(pom);
        List<MatchResult> plugins = PLUGIN.matcher(text).results().toList();
        assertEquals(5, plugins.size());
        List<String> known = PLUGIN.matcher(own).results().map(one -> one.group(1) + " " + one.group(2)).toList();
        plugins.forEach(one -> assertTrue(known.contains(one.group(1) + " " + one.group(2)), one.group()));
        String junit = own.replaceAll("(?s).*<junit.version>(.+?)</junit.version>.*", "$1");
        assertTrue(text.contains("<version>" + junit + "</version>"), junit);
    }

    @Test
    void a_folder_that_exists_is_left_alone() {
        assertThrows(ConfigError.class, () -> FilterProject.make(folder, folder.resolve("a & b.jar")));
        Path other = folder.resolve("other");
        assertThrows(ConfigError.class, () -> FilterProject.make(other, classes));
        assertTrue(Files.notExists(other));
    }
}
