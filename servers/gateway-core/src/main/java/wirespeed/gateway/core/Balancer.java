// Chooses one of an origin's addresses.
package wirespeed.gateway.core;

import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;

/** Works on an array of usable addresses; weights count in each method. */
public abstract class Balancer {
    /** The methods by their name in the configuration. */
    public enum Method {
        ROUND_ROBIN("round-robin"), LEAST_CONNECTIONS("least-connections"),
        RANDOM_TWO("random-two"), HASH("hash");

        private final String label;

        Method(String label) {
            this.label = label;
        }

        public String label() {
            return label;
        }

        /** The method with this name; refuses others by listing what there is. */
        public static Method parse(String label) {
            for (Method method : values()) {
                if (method.label.equals(label)) {
                    return method;
                }
            }
            throw new IllegalArgumentException("unknown balancing method \"" + label + "\""
                    + " (round-robin, least-connections, random-two, hash)");
        }
    }

    /**
     * Chooses among the first {@code count} addresses.
     *
     * @param key what {@link Method#HASH} hashes; ignored by the others
     */
    abstract Address choose(Address[] usable, int count, String key);

    static Balancer of(Method method) {
        return switch (method) {
            case ROUND_ROBIN -> new RoundRobin();
            case LEAST_CONNECTIONS -> new LeastConnections();
            case RANDOM_TWO -> new RandomTwo();
            case HASH -> new Rendezvous();
        };
    }

    private static int totalWeight(Address[] usable, int count) {
        int total = 0;
        for (int i = 0; i < count; i++) {
            total += usable[i].weight();
        }
        return total;
    }

    private static int weighted(Address[] usable, int count, int point) {
        for (int i = 0; i < count; i++) {
            point -= usable[i].weight();
            if (point < 0) {
                return i;
            }
        }
        return count - 1;
    }

    /** Turns a counter into a point on the line of weights; a large stride spreads equal runs. */
    private static final class RoundRobin extends Balancer {
        private final AtomicInteger turn = new AtomicInteger();

        @Override
        Address choose(Address[] usable, int count, String key) {
            int total = totalWeight(usable, count);
            int stride = coprimeStride(total);
            long point = (turn.getAndIncrement() & 0xffffffffL) * stride % total;
            return usable[weighted(usable, count, (int) point)];
        }

        /** A step near the golden section that visits every point once a round. */
        private static int coprimeStride(int total) {
            int stride = Math.max(1, (int) (total * 0.618));
            while (gcd(stride, total) != 1) {
                stride++;
            }
            return stride;
        }

        private static int gcd(int a, int b) {
            return b == 0 ? a : gcd(b, a % b);
        }
    }

    private static final class LeastConnections extends Balancer {
        @Override
        Address choose(Address[] usable, int count, String key) {
            // Among equal loads chance decides, by weight.
            int start = weighted(usable, count, ThreadLocalRandom.current().nextInt(
                    totalWeight(usable, count)));
            Address best = usable[start];
            for (int i = 1; i < count; i++) {
                Address other = usable[(start + i) % count];
                if (isLessLoaded(other, best)) {
                    best = other;
                }
            }
            return best;
        }
    }

    /**
     * Whether {@code a} with this request carries no more than {@code b} without it, by their weights. What
     * is nearer than one request counts as equal: an idle *1 is not emptier than a *9 with one request.
     */
    private static boolean isLessLoaded(Address a, Address b) {
        return (a.inFlight().get() + 1L) * b.weight() <= (long) b.inFlight().get() * a.weight();
    }

    /** The less loaded of two: near to the best choice, and no herd runs to one address. */
    private static final class RandomTwo extends Balancer {
        @Override
        Address choose(Address[] usable, int count, String key) {
            ThreadLocalRandom random = ThreadLocalRandom.current();
            int total = totalWeight(usable, count);
            int first = weighted(usable, count, random.nextInt(total));
            int second = weighted(usable, count, random.nextInt(total));
            if (first == second) {
                second = (first + 1) % count;
            }
            return isLessLoaded(usable[second], usable[first]) ? usable[second] : usable[first];
        }
    }

    /**
     * Highest random weight. Like a ring it moves only the keys of an address that comes or goes,
     * spreads exactly by weight, and needs no table; with the tens of addresses that an origin has,
     * hashing all of them is cheap.
     */
    private static final class Rendezvous extends Balancer {
        @Override
        Address choose(Address[] usable, int count, String key) {
            long keyHash = key == null ? ThreadLocalRandom.current().nextLong() : hash(key);
            Address best = usable[0];
            double bestScore = Double.NEGATIVE_INFINITY;
            for (int i = 0; i < count; i++) {
                double score = score(keyHash, usable[i].id(), usable[i].weight());
                if (score > bestScore) {
                    bestScore = score;
                    best = usable[i];
                }
            }
            return best;
        }
    }

    /** FNV-1a, 64 bits. */
    static long hash(String text) {
        long hash = 0xcbf29ce484222325L;
        for (int i = 0; i < text.length(); i++) {
            hash = (hash ^ text.charAt(i)) * 0x100000001b3L;
        }
        return mix(hash);
    }

    /**
     * By which a key chooses: the largest wins. A weight that changes moves only keys to or from the one
     * that it belongs to; with 0 it wins over none.
     */
    static double score(long keyHash, String name, int weight) {
        return -weight / Math.log(unit(mix(keyHash ^ hash(name))));
    }

    /** A hash as a number between 0 and 1, and never one of them. */
    static double unit(long hash) {
        return ((hash >>> 12) + 0.5) * 0x1.0p-52;
    }

    /** The finaliser of SplitMix64. */
    private static long mix(long z) {
        z = (z ^ z >>> 30) * 0xbf58476d1ce4e5b9L;
        z = (z ^ z >>> 27) * 0x94d049bb133111ebL;
        return z ^ z >>> 31;
    }
}
