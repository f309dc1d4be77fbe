/** The distribution of latencies. */
package wirespeed.stuborigin;

import java.util.Locale;
import java.util.SplittableRandom;

/** Three distributions around one mean. */
enum Distribution {
    CONSTANT {
        @Override
        long draw(long meanNs, SplittableRandom random) {
            return meanNs;
        }
    },
    /** From 0 to twice the mean. */
    UNIFORM {
        @Override
        long draw(long meanNs, SplittableRandom random) {
            return meanNs == 0 ? 0 : random.nextLong(2 * meanNs + 1);
        }
    },
    /** Cut at {@link #CUT} times the mean, so that one request cannot outlast a trial. */
    EXPONENTIAL {
        @Override
        long draw(long meanNs, SplittableRandom random) {
            return (long) Math.min(-Math.log(1 - random.nextDouble()) * meanNs,
                    (double) CUT * meanNs);
        }
    };

    static final int CUT = 20;

    abstract long draw(long meanNs, SplittableRandom random);

    static Distribution named(String word) {
        for (Distribution each : values()) {
            if (each.name().toLowerCase(Locale.ROOT).equals(word)) {
                return each;
            }
        }
        throw new BadUsage("give constant, uniform or exponential");
    }
}
