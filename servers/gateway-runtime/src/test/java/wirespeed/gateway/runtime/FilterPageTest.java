// The filters of docs/gateway-filters.md compile.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

class FilterPageTest {
    private static final Path PAGE = Path.of("../../docs/gateway-filters.md");
    private static final Pattern BLOCK = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);
    private static final Pattern CLASS = Pattern.compile("public class (\\w+)");

    @Test
    void each_filter_of_the_page_compiles() throws Exception {
        Matcher blocks = BLOCK.matcher(Files.readString(PAGE));
        int count = 0;
        while (blocks.find()) {
            Matcher name = CLASS.matcher(blocks.group(1));
            assertTrue(name.find());
            assertEquals(1, FilterCompiler.compile(name.group(1) + ".java", blocks.group(1),
                    Map.of("url", "http://127.0.0.1:9191/allowed")).size());
            count++;
        }
        assertEquals(3, count);
    }
}
