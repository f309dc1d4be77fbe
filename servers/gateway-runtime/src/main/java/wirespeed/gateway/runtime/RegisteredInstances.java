// Reads the instances of a service that a registry lists, each for itself.
package wirespeed.gateway.runtime;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Otherwise a program that registers a malformed instance would take its service down. */
final class RegisteredInstances {
    private static final int INSTANCES_MAX = 1000;

    /** Turns one element of a list into an endpoint. */
    interface Reader {
        /**
         * Reads one.
         *
         * @return null for an instance that takes no requests
         * @throws IllegalArgumentException for one that is malformed
         */
        EndpointResolver.Target read(Object instance);
    }

    private final String registry;
    private final List<String> names;
    /** Why instances are left out: the log says it once, and not with each answer. */
    private final Map<String, String> leftOut = new ConcurrentHashMap<>();

    /**
     * Has read nothing yet.
     *
     * @param registry for the log
     * @param names members of an instance that lead to its name in the registry
     */
    RegisteredInstances(String registry, List<String> names) {
        this.registry = registry;
        this.names = names;
    }

    /** The instances of a list; one that is malformed is left out while there are others. */
    List<EndpointResolver.Target> read(List<?> all, Reader reader) {
        if (leftOut.size() > INSTANCES_MAX) {
            leftOut.clear();
        }
        List<EndpointResolver.Target> good = new ArrayList<>();
        IllegalArgumentException malformed = null;
        for (int i = 0; i < Math.min(all.size(), INSTANCES_MAX); i++) {
            String label = registry + " instance " + label(all.get(i), names, i + 1);
            try {
                EndpointResolver.Target one = reader.read(all.get(i));
                if (one != null) {
                    good.add(one);
                }
                leftOut.remove(label);
            } catch (IllegalArgumentException bad) {
                malformed = new IllegalArgumentException(label + ": " + bad.getMessage(), bad);
                if (!bad.getMessage().equals(leftOut.put(label, bad.getMessage()))) {
                    ThrottledLog.line(label + " is left out: " + bad.getMessage());
                }
            }
        }
        if (good.isEmpty() && malformed != null) {
            throw malformed;
        }
        return good;
    }

    /** Its name in quotes where that is one for a log, else its number. */
    private static String label(Object instance, List<String> names, int number) {
        Object at = instance;
        for (String name : names) {
            at = at instanceof Map<?, ?> fields ? fields.get(name) : null;
        }
        return at instanceof String text && text.matches("[!-~]{1,200}") ? "\"" + text + "\""
                : "number " + number;
    }
}
