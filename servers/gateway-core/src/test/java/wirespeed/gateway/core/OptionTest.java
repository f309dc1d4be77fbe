// Option values, their messages, and the generated page.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;

class OptionTest {
    @Test
    void every_default_is_a_value_of_its_own_option() {
        for (Option option : OptionTable.all()) {
            if (!option.defaultText().isEmpty()) {
                option.parse(option.defaultText());
            }
            assertTrue(option.text().endsWith("."), option.key());
        }
    }

    @Test
    void values_have_units() {
        OptionValues values = new OptionValues("timeouts");
        values.put("head", "2s");
        assertEquals(2000, values.millis("head"));
        assertEquals(75_000, values.millis("keep-alive"));
        OptionValues limits = new OptionValues("limits");
        limits.put("head", "32KiB");
        assertEquals(32768, limits.bytes("head"));
    }

    @Test
    void a_bad_value_is_named_with_its_bounds() {
        OptionValues values = new OptionValues("server");
        assertEquals("unknown value \"tcp\" (nio, epoll, io_uring)", message(values, "transport", "tcp"));
        assertEquals("2000 is out of range (0 to 1024)", message(values, "threads", 2000L));
        assertTrue(message(values, "drain", "5").contains("duration"));
        assertEquals("transport", OptionTable.nearest("server", "transprt"));
        for (String huge : new String[] {"17179869184GiB", "17179869185GiB", "8589934592GiB"}) {
            assertTrue(message(new OptionValues("limits"), "body", huge).contains("out of range"), huge);
        }
    }

    private static String message(OptionValues values, String name, Object value) {
        return assertThrows(IllegalArgumentException.class,
                () -> values.put(name, value)).getMessage();
    }

    @Test
    void lists_come_as_text_or_list() {
        OptionValues values = new OptionValues("origin");
        values.put("addresses", "a:1, b:2");
        assertEquals(List.of("a:1", "b:2"), values.texts("addresses"));
    }

    @Test
    void the_page_in_docs_is_the_generated_one() throws Exception {
        Path page = Path.of("../../docs/gateway-options.md");
        assertEquals(OptionPage.page(), Files.readString(page),
                "docs/gateway-options.md is stale; print it with OptionPage");
    }
}
