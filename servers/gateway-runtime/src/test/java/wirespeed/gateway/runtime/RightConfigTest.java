// Configurations that are right, close to mistakes that are refused.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class RightConfigTest {
    private static final String ORIGIN = "[origins.o]\naddresses = [\"127.0.0.1:8080\"]\n";

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

    @Test
    void a_list_of_cors_may_be_one_text() {
        String cors = ORIGIN + "[[filter]]\ntype = \"cors\"\nallow-origins = [\"https://shop.example\"]\n";
        for (String option : List.of("allow-headers", "allow-methods", "expose-headers")) {
            assertEquals("", mistakes(cors + option + " = [\"X-One, X-Two\", \"X-Three,X-Four\"]\n"), option);
            for (String bad : List.of("X-One,", "X One, X-Two", ", X-Two", "")) {
                assertTrue(mistakes(cors + option + " = [\"" + bad + "\"]\n").contains("is not a token"), bad);
            }
        }
    }

    @Test
    void what_a_group_holds_may_have_segments_that_are_left() {
        String rewrite = ORIGIN + "[[filter]]\ntype = \"rewrite\"\npattern = \"^(/a/b)/c\"\nreplacement = \"";
        for (String right : List.of("$1/../../d", "/x/../$1/..", "/x$1/../..", "/..$1", "/d?a=/../..")) {
            assertEquals("", mistakes(rewrite + right + "\"\n"), right);
        }
        for (String bad : List.of("/..", "/../d$1", "/x/../../$1", "/d/../..?a=$1")) {
            assertTrue(mistakes(rewrite + bad + "\"\n").contains("climbs above the root"), bad);
        }
    }

    @Test
    void cookies_may_have_names_that_fields_may_not() {
        for (String name : List.of("user[id]", "a b", "a/b", "a\u00fcb", "{x}")) {
            String route = ORIGIN + "[[route]]\norigins = [\"o\"]\ncookies = { \"" + name + "\" = \"1\" }\n";
            assertEquals("", mistakes(route + "sticky = \"cookie:" + name + "\"\n"));
            assertEquals("", mistakes(ORIGIN + "hash-key = \"cookie:" + name + "\"\n"));
        }
        for (String name : List.of("", " a", "a ", "a=b", "a;b", "a,b", "a\\tb", "a\\u0001")) {
            String route = ORIGIN + "[[route]]\norigins = [\"o\"]\n";
            assertTrue(mistakes(route + "cookies = { \"" + name + "\" = \"1\" }\n").contains("no request has"),
                    name);
            assertTrue(mistakes(route + "sticky = \"cookie:" + name + "\"\n").contains("unknown key"), name);
        }
    }
}
