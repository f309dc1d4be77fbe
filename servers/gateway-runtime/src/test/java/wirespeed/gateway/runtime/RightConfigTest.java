// Configurations that are right, close to mistakes that are refused.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class RightConfigTest {
    /** The mistakes, each in a line; empty for none. */
    private static String mistakes(String text) {
        try {
            GatewayRuntime.check(ConfigReader.read(text, "gateway.toml", Map.of(), Map.of()));
            return "";
        } catch (ConfigError refused) {
            return String.join("\n", refused.mistakes());
        }
    }

    private static String bound(String name, String addresses, String key) {
        return "[origins." + name + "]\naddresses = [" + addresses + "]\npersistence = \"cookie\"\n"
                + "persistence-name = \"session\"\npersistence-key = \"" + key + "\"\n";
    }

    @Test
    void one_cookie_may_stand_for_one_set_of_addresses() {
        String routes = "[[route]]\norigins = [\"a\"]\n[[route]]\nprefix = \"/b\"\norigins = [\"b\"]\n";
        String two = "\"127.0.0.1:1\", \"127.0.0.1:2\"";
        String turned = "\"127.0.0.1:2 backup\", \"127.0.0.1:1*3\"";
        assertEquals("", mistakes(bound("a", two, "k") + bound("b", turned, "k") + routes));
        for (String other : List.of(bound("b", two, "l"), bound("b", "\"127.0.0.1:1\"", "k"))) {
            String text = bound("a", two, "k") + other + routes;
            assertTrue(mistakes(text).contains("persistence-name \"session\""), text);
        }
    }

    @Test
    void origins_of_a_route_that_keeps_a_client_at_one_of_them_may_have_one_cookie() {
        String origins = bound("a", "\"127.0.0.1:1\"", "k") + bound("b", "\"127.0.0.1:2\"", "k");
        String canary = "[[route]]\norigins = [\"a*9\", \"b\"]\n";
        assertEquals("", mistakes(origins + canary + "sticky = \"client\"\n"));
        for (String bad : List.of("", "sticky = \"path\"\n",
                "sticky = \"client\"\n[[route]]\nprefix = \"/b\"\norigins = [\"b\"]\n")) {
            assertTrue(mistakes(origins + canary + bad).contains("persistence-name \"session\""), bad);
        }
    }
}
