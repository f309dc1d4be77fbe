/** Options, units, distributions, fault mixes. */
package wirespeed.stuborigin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.EnumMap;
import java.util.Map;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

class SettingsTest {
    /** The page shows the help unchanged; this test ensures it. */
    @Test
    void the_documentation_shows_this_help() throws Exception {
        Path page = Path.of(System.getProperty("basedir", "."), "../../docs/http-server.md");
        String text = Files.readString(page);
        assertTrue(text.contains("```text\n" + Settings.help() + "```"),
                "docs/http-server.md shows another help than --help of stub-origin");
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', value = {
        "--latncy 1ms            | --latncy is not an option; did you mean --latency?",
        "--latency 50            | --latency 50: give a time up to 60s with its unit, as in 50ms, 1.5s",
        "--latency 61s           | --latency 61s: give a time up to 60s with its unit, as in 50ms, 1.5s",
        "--latency fast          | --latency fast: give a time up to 60s with its unit, as in 50ms, 1.5s",
        "--latency 1.2.3s        | --latency 1.2.3s: '1.2.3' is not a number",
        "--distribution normal   | --distribution normal: give constant, uniform or exponential",
        "--chunked 0             | --chunked 0: give a size from 1 to 16777216 bytes, as in 128, 1KiB, 1MiB",
        "--payload 17MiB         | --payload 17MiB: give a size from 0 to 16777216 bytes, as in 128, 1KiB, 1MiB",
        "--faults 500            | --faults 500: give FAULT=PER_CENT, as in 500=1,reset-body=0.5",
        "--faults 500=60,503=50  | --faults 500=60,503=50: the shares are per cent and sum up to 100 at most",
        "--faults 500=-1         | --faults 500=-1: the shares are per cent and sum up to 100 at most",
        "--faults 500=NaN        | --faults 500=NaN: the shares are per cent and sum up to 100 at most",
        "--seed x                | --seed x: 'x' is not a number",
        "--port                  | --port needs a value: --port PORT"})
    void a_mistake_is_one_line_that_says_what_is_valid(String line, String message) {
        BadUsage mistake = assertThrows(BadUsage.class,
                () -> Settings.of(new CommandLine(Settings.OPTIONS, line.strip().split(" +"))));
        assertEquals(message, mistake.getMessage());
    }

    @Test
    void an_unknown_fault_names_the_known_ones() {
        BadUsage mistake = assertThrows(BadUsage.class, () -> FaultMix.of("hang=1"));
        assertTrue(mistake.getMessage().contains("stall-body"), mistake.getMessage());
    }

    @Test
    void defaults_are_those_of_the_published_stub() {
        Settings settings = Settings.of(new CommandLine(Settings.OPTIONS));
        assertEquals(1024, settings.payloadBytes());
        assertEquals(50_000_000, settings.latencyNs());
        assertEquals(Distribution.CONSTANT, settings.distribution());
    }

    @ParameterizedTest
    @EnumSource(Distribution.class)
    void a_distribution_has_its_mean_and_its_bounds(Distribution distribution) {
        long mean = 50_000_000;
        SplittableRandom random = new SplittableRandom(5);
        double sum = 0;
        long max = 0;
        for (int each = 0; each < 200_000; each++) {
            long drawn = distribution.draw(mean, random);
            assertTrue(drawn >= 0);
            sum += drawn;
            max = Math.max(max, drawn);
        }
        assertEquals(mean, sum / 200_000, mean * 0.01);
        long bound = switch (distribution) {
            case CONSTANT -> mean;
            case UNIFORM -> 2 * mean;
            case EXPONENTIAL -> Distribution.CUT * mean;
        };
        assertTrue(max <= bound && max >= bound / 2, "largest is " + max);
        assertEquals(0, distribution.draw(0, random));
    }

    @Test
    void faults_have_the_requested_shares() {
        FaultMix mix = FaultMix.of("500=10,drip=2.5");
        SplittableRandom random = new SplittableRandom(5);
        Map<Fault, Integer> counts = new EnumMap<>(Fault.class);
        for (int each = 0; each < 100_000; each++) {
            counts.merge(mix.draw(random), 1, Integer::sum);
        }
        assertEquals(10_000, counts.get(Fault.STATUS_500), 500);
        assertEquals(2_500, counts.get(Fault.DRIP), 250);
        assertEquals(87_500, counts.get(Fault.NONE), 700);
    }
}
