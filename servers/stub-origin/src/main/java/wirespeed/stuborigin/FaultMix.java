/** The share of requests for each fault. */
package wirespeed.stuborigin;

import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;

/** Faults with their cumulated shares; the remaining requests get none. */
final class FaultMix {
    private final List<Fault> faults = new ArrayList<>();
    private final List<Double> below = new ArrayList<>();

    /** Parses {@code 500=1,reset-body=0.5}: per cent of the requests. */
    static FaultMix of(String text) {
        FaultMix mix = new FaultMix();
        double sum = 0;
        for (String part : text.isEmpty() ? new String[0] : text.split(",")) {
            String[] pair = part.split("=", 2);
            if (pair.length < 2) {
                throw new BadUsage("give FAULT=PER_CENT, as in 500=1,reset-body=0.5");
            }
            double share = Units.number(pair[1]);
            sum += share;
            if (!(share >= 0 && sum <= 100)) {
                throw new BadUsage("the shares are per cent and sum up to 100 at most");
            }
            mix.faults.add(Fault.named(pair[0].strip()));
            mix.below.add(sum / 100);
        }
        return mix;
    }

    Fault draw(SplittableRandom random) {
        if (faults.isEmpty()) {
            return Fault.NONE;
        }
        double point = random.nextDouble();
        for (int at = 0; at < faults.size(); at++) {
            if (point < below.get(at)) {
                return faults.get(at);
            }
        }
        return Fault.NONE;
    }
}
