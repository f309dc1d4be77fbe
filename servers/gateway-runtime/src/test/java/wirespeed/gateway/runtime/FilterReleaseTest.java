// Filters that are no longer used leave nothing behind.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.management.ManagementFactory;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.core.Filter;

class FilterReleaseTest {
    private static final int ROUNDS = 30;
    private static final String SOURCE = """
            import wirespeed.gateway.core.*;
            public class Jay implements Filter {
                private final Runnable made = () -> System.identityHashCode(this);
                public Phase phase() { return Phase.POST; }
                public int order() { return MARK; }
                public Step apply(Context context) { return Step.NEXT; }
            }
            """;

    private final ReferenceQueue<ClassLoader> released = new ReferenceQueue<>();

    private static String source(boolean isGroovy, int mark) {
        String source = SOURCE.replace("MARK", String.valueOf(mark));
        return isGroovy ? source.replace("() -> System", "{ -> System").replace("(this);",
                "(this) };") : source;
    }

    /** As the folder does it: compiled, used, dropped, forgotten. */
    private void swap(int round, List<WeakReference<ClassLoader>> loaders) throws Exception {
        for (String name : List.of("Jay.java", "Jay.groovy")) {
            List<Filter> filters = FilterCompiler.compile(name,
                    source(name.endsWith("y"), round), Map.of());
            assertEquals(round, filters.get(0).order());
            loaders.add(new WeakReference<>(filters.get(0).getClass().getClassLoader(),
                    released));
            FilterFolder.forget(filters);
        }
    }

    @Test
    void class_loaders_are_released() throws Exception {
        List<WeakReference<ClassLoader>> loaders = new ArrayList<>();
        // The compilers themselves load classes at first, and reflection after 15 calls.
        for (int round = 0; round < 20; round++) {
            swap(round, loaders);
        }
        awaitRelease(loaders);
        int before = ManagementFactory.getClassLoadingMXBean().getLoadedClassCount();
        for (int round = 0; round < ROUNDS; round++) {
            swap(round, loaders);
        }
        awaitRelease(loaders);
        int grown = ManagementFactory.getClassLoadingMXBean().getLoadedClassCount() - before;
        // Those of one language alone would be two a round; compilers and reflection still add a few dozen.
        assertTrue(grown < 3 * ROUNDS / 2, grown + " classes more after " + 2 * ROUNDS
                + " compilations");
    }

    private void awaitRelease(List<WeakReference<ClassLoader>> loaders) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(50);
        // A few may hang on in caches of the compilers until the next compilation.
        while (loaders.stream().filter(one -> one.get() != null).count() > 4) {
            assertTrue(System.nanoTime() < end, loaders.stream().filter(one -> one.get() != null)
                    .count() + " class loaders of " + loaders.size() + " are still held");
            System.gc();
            // Soft references of Groovy go at the next collection, when the clock has moved on.
            released.remove(100);
        }
    }
}
