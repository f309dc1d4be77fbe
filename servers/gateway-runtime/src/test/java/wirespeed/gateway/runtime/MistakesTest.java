// Each mistake in docs/mistakes/gateway.md gets exactly the messages that the page shows.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

class MistakesTest {
    private static final Path PAGE = Path.of("../../docs/mistakes/gateway.md");
    private static final Pattern ENTRY = Pattern.compile(
            "(```toml gateway.toml\n(.*?)```\n```text\n)(.*?)(```\n)", Pattern.DOTALL);
    private static final int ENTRIES_LEAST = 30;

    /** {@code UPDATE_MISTAKES=1 mvn … -Dtest=MistakesTest} writes the present messages into the page. */
    @Test
    void each_mistake_gets_the_messages_of_the_page() throws IOException {
        String page = Files.readString(PAGE);
        int[] entries = {0};
        String present = ENTRY.matcher(page).replaceAll(entry -> {
            entries[0]++;
            return Matcher.quoteReplacement(entry.group(1) + messages(entry.group(2)) + entry.group(4));
        });
        if (System.getenv("UPDATE_MISTAKES") != null) {
            Files.writeString(PAGE, present);
            page = present;
        }
        assertEquals(present, page);
        assertTrue(entries[0] >= ENTRIES_LEAST, entries[0] + " entries");
    }

    private static String messages(String text) {
        try {
            Config config = ConfigReader.read(text, "gateway.toml", Map.of(), Map.of());
            GatewayRuntime.check(config);
            return "";
        } catch (ConfigError refused) {
            return String.join("\n", refused.mistakes()) + "\n";
        }
    }
}
