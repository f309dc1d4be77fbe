// The filters of docs/gateway-filters.md compile.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class FilterPageTest {
    private static final Path PAGE = Path.of("../../docs/gateway-filters.md");
    private static final Pattern BLOCK = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);
    private static final Pattern CLASS = Pattern.compile("public class (\\w+)");
    private static final Pattern TENANT = Pattern.compile("class (Tenant\\w*)");

    @Test
    void each_filter_of_the_page_compiles() throws Exception {
        Matcher blocks = BLOCK.matcher(Files.readString(PAGE));
        int count = 0;
        while (blocks.find()) {
            if (blocks.group(1).contains("@Test")) {
                continue;
            }
            Matcher name = CLASS.matcher(blocks.group(1));
            assertTrue(name.find());
            assertEquals(1, FilterCompiler.compile(name.group(1) + ".java", blocks.group(1),
                    Map.of("url", "http://127.0.0.1:9191/allowed")).size());
            count++;
        }
        assertEquals(3, count);
    }

    @Test
    void the_test_of_the_page_passes(@TempDir Path folder) throws Exception {
        List<String> sources = new ArrayList<>(List.of("--release", "17", "-proc:none", "-cp",
                System.getProperty("java.class.path"), "-d", folder.toString()));
        Matcher blocks = BLOCK.matcher(Files.readString(PAGE));
        while (blocks.find()) {
            Matcher name = TENANT.matcher(blocks.group(1));
            if (name.find()) {
                sources.add(Files.writeString(folder.resolve(name.group(1) + ".java"), blocks.group(1))
                        .toString());
            }
        }
        assertEquals(0, ToolProvider.getSystemJavaCompiler().run(null, null, null,
                sources.toArray(String[]::new)));
        try (URLClassLoader loader = new URLClassLoader(new URL[] {folder.toUri().toURL()},
                getClass().getClassLoader())) {
            Class<?> type = loader.loadClass("TenantTest");
            Constructor<?> made = type.getDeclaredConstructor();
            made.setAccessible(true);
            Method test = type.getDeclaredMethod("the_origin_gets_the_plan_of_the_tenant");
            test.setAccessible(true);
            test.invoke(made.newInstance());
        }
    }
}
