// Among many routes the one is found that comparing all of them finds.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertSame;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;

class PrefixRoutesPropertyTest {
    private static final Origin ORIGIN = new Origin("o", List.of(new Address("h", 1)),
            Balancer.Method.ROUND_ROBIN, Origin.Settings.DEFAULT);

    @Provide
    Arbitrary<String> paths() {
        return Arbitraries.of("a", "ab", "/", "b").list().ofMaxSize(7)
                .map(parts -> "/" + String.join("", parts));
    }

    @Provide
    Arbitrary<List<String>> prefixes() {
        return paths().list().ofMaxSize(40);
    }

    @Property
    void looking_up_finds_what_comparing_finds(@ForAll("prefixes") List<String> prefixes,
            @ForAll("paths") String path) {
        List<Route> routes = new ArrayList<>();
        for (String prefix : prefixes) {
            // Every third one takes another method only.
            List<String> methods = routes.size() % 3 == 0 ? List.of("PUT") : List.of();
            routes.add(new Route("r" + routes.size(), "", prefix, methods, Map.of(),
                    List.of(new Route.Target(ORIGIN, 1)), false, false, Route.Bounds.NONE));
        }
        PrefixRoutes group = new PrefixRoutes(routes);
        Request request = new Request("GET", path, 1, new Headers());
        assertSame(group.compared(request), group.lookedUp(request));
    }
}
