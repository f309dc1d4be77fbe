// The stored responses of the cache, found by target, owner and the fields that a response varies by.
package wirespeed.gateway.runtime;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import wirespeed.gateway.core.Headers;

/**
 * Bounded in bytes, whatever clients and origins send: keys are hashes, and a stored response weighs
 * its body, its fields and its URI.
 */
final class CacheTable {
    private static final int INVALIDATED_SECONDS = 600;
    private static final int INVALIDATED_MAX = 100_000;
    private static final int VARIANTS_BYTES_MAX = 32 << 20;
    private static final int VARIANTS_BYTES = 300;
    private static final Pattern HOST = Pattern.compile("(https?://[^/:?]+?)\\.?(?=[/:?]|$)");

    /**
     * A target of one owner.
     *
     * @param uri hash of the URI
     * @param owner route and origin: two routes may lead one URI to the pages of two tenants
     */
    record Target(KeyHash uri, String owner) {
    }

    /**
     * What a request asks for.
     *
     * @param uri "scheme://host/path?query"
     * @param fields the request's before the gateway changed them: what Vary is about
     * @param begun the generation in which it was asked
     */
    record Asked(String uri, Target target, Headers fields, long begun) {
        /** The same with fields that stay what they are. */
        Asked kept() {
            return new Asked(uri, target, fields.copy(), begun);
        }
    }

    /**
     * The fields that distinguish requests for one target; a new set forgets all that was stored.
     *
     * @param names of the fields that the response varies by
     * @param key of a response that does not vary
     */
    private record Variants(List<String> names, KeyHash key) {
    }

    private record Entry(String uri, StoredResponse response) {
        int weight() {
            return uri.length() + response.weight();
        }
    }

    private final Cache<KeyHash, Entry> entries;
    /** By URI, then by owner: a change of a URI is a change for all of its owners. */
    private final Cache<KeyHash, Map<String, Variants>> variants = Caffeine.newBuilder()
            .maximumWeight(VARIANTS_BYTES_MAX)
            .weigher((KeyHash uri, Map<String, Variants> owners) -> weight(owners)).build();
    /** When a URI was last changed: an answer that was asked for before is not stored after. */
    private final Cache<KeyHash, Long> invalidated = Caffeine.newBuilder()
            .maximumSize(INVALIDATED_MAX)
            .expireAfterWrite(INVALIDATED_SECONDS, TimeUnit.SECONDS).build();
    private final AtomicLong generations = new AtomicLong();
    private volatile long purged;

    CacheTable(long bytesMax) {
        entries = Caffeine.newBuilder().maximumWeight(bytesMax)
                .weigher((KeyHash key, Entry entry) -> entry.weight()).build();
    }

    private static int weight(Map<String, Variants> owners) {
        return owners.values().stream().flatMap(known -> known.names().stream())
                .mapToInt(name -> name.length() + 64).sum() + owners.size() * VARIANTS_BYTES;
    }

    Asked asked(String uri, String owner, Headers fields) {
        return new Asked(uri, new Target(KeyHash.of(uri), owner), fields, generations.get());
    }

    StoredResponse find(Asked asked) {
        KeyHash key = key(asked);
        Entry found = key == null ? null : entries.getIfPresent(key);
        return found == null ? null : found.response();
    }

    /** Of the variant that was asked for; null while nothing of its target is known. */
    private KeyHash key(Asked asked) {
        Map<String, Variants> owners = variants.getIfPresent(asked.target().uri());
        Variants known = owners == null ? null : owners.get(asked.target().owner());
        return known == null ? null : key(asked, known);
    }

    private static KeyHash key(Asked asked, Variants known) {
        if (known.names().isEmpty()) {
            return known.key();
        }
        StringBuilder variant = new StringBuilder().append(known.key().high()).append(' ')
                .append(known.key().low());
        for (String name : known.names()) {
            List<String> lines = asked.fields().all(name);
            // RFC 9111 §4.1: a field that is absent is not equal to an empty one.
            variant.append(lines.isEmpty() ? "\n-" : "\n+").append(String.join(",", lines));
        }
        return KeyHash.of(variant.toString());
    }

    void put(Asked asked, StoredResponse stored) {
        Target target = asked.target();
        Long changed = invalidated.getIfPresent(target.uri());
        if (changed != null && changed > asked.begun() || purged > asked.begun()) {
            return;
        }
        List<String> names = varyNames(stored.headers());
        Map<String, Variants> owners = variants.asMap().compute(target.uri(), (same, before) ->
                with(before == null ? Map.of() : before, asked, names));
        entries.put(key(asked, owners.get(target.owner())), new Entry(asked.uri(), stored));
    }

    private Map<String, Variants> with(Map<String, Variants> before, Asked asked,
            List<String> names) {
        String owner = asked.target().owner();
        Variants known = before.get(owner);
        if (known != null && known.names().equals(names)) {
            return before;
        }
        Map<String, Variants> after = new HashMap<>(before);
        after.put(owner, new Variants(names, KeyHash.of(asked.uri() + '\n' + owner + '\n'
                + generations.incrementAndGet())));
        return Map.copyOf(after);
    }

    /** Lower-case and in order; "*" where no request is equal to another. */
    static List<String> varyNames(Headers headers) {
        return headers.all("Vary").stream().flatMap(line -> Arrays.stream(line.split(",")))
                .map(name -> name.trim().toLowerCase(Locale.ROOT)).filter(name -> !name.isEmpty())
                .sorted().distinct().toList();
    }

    /** Forgets what is stored for the requests that this one is equal to. */
    void drop(Asked asked) {
        KeyHash key = key(asked);
        if (key != null) {
            entries.invalidate(key);
        }
    }

    /** A URI was changed, for whoever asks for it. */
    void changed(String uri) {
        KeyHash target = KeyHash.of(uri);
        invalidated.put(target, generations.incrementAndGet());
        variants.invalidate(target);
    }

    /** Drops what begins with this "scheme://host/path"; the answer is how many URIs. */
    int purge(String prefix) {
        purged = generations.incrementAndGet();
        String wanted = withoutDot(prefix);
        Set<String> uris = new HashSet<>();
        entries.asMap().forEach((key, entry) -> {
            if (withoutDot(entry.uri()).startsWith(wanted)) {
                uris.add(entry.uri());
                entries.invalidate(key);
            }
        });
        return uris.size();
    }

    /** With the host as it is compared: in lower case, and without a dot at its end. */
    private static String withoutDot(String uri) {
        Matcher begin = HOST.matcher(uri);
        return begin.lookingAt() ? begin.group(1).toLowerCase(Locale.ROOT) + uri.substring(begin.end())
                : uri;
    }

    /** How many URIs are known, after those above the bound have left. */
    long uris() {
        variants.cleanUp();
        return variants.estimatedSize();
    }

    /** How many responses are stored, after those above the bound have left. */
    long size() {
        entries.cleanUp();
        return entries.estimatedSize();
    }
}
