// A filter that asks for a name and a password (RFC 7617).
package wirespeed.gateway.runtime;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import wirespeed.gateway.core.Ascii;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Step;

/**
 * A password costs milliseconds to check, so that is done on threads apart, once in some minutes for each
 * client. A client that tries many delays only clients that are not known yet, and those within a bound.
 */
final class BasicAuthentication extends ShippedFilters.Scoped {
    private static final int REMEMBERED = 10_000;
    private static final int REMEMBERED_MINUTES = 5;
    private static final int THREADS = 2;
    private static final int WAITING_MAX = 200;
    private static final int CHARS_MAX = 1024;
    /** For names that there are not: they must take as long as the others. */
    private static final CryptHash NOBODY = new CryptHash(5000, "nobody", "");

    private record Credentials(String name, String password) {
    }

    private final Map<String, CryptHash> users = new HashMap<>();
    private final String challenge;
    private final String identityHeader;
    private final Cache<KeyHash, String> known = Caffeine.newBuilder().maximumSize(REMEMBERED)
            .expireAfterWrite(REMEMBERED_MINUTES, TimeUnit.MINUTES).build();
    private final ThreadPoolExecutor checks = new ThreadPoolExecutor(THREADS, THREADS, 10,
            TimeUnit.SECONDS, new ArrayBlockingQueue<>(WAITING_MAX), task -> {
                Thread thread = new Thread(task, "passwords");
                thread.setDaemon(true);
                return thread;
            });

    BasicAuthentication(ShippedFilters.Scope scope, OptionValues values) {
        super(scope, Phase.PRE);
        checks.allowCoreThreadTimeOut(true);
        String realm = values.text("realm");
        if (!Ascii.isValue(realm) || realm.indexOf('"') >= 0 || realm.indexOf('\\') >= 0) {
            throw new IllegalArgumentException("realm: \"" + realm + "\" holds a quotation mark, a"
                    + " backslash or a control character");
        }
        challenge = "Basic realm=\"" + realm + "\", charset=\"UTF-8\"";
        identityHeader = values.text("identity-header");
        if (!identityHeader.isEmpty()) {
            new Headers().add(identityHeader, "");
        }
        String file = values.text("users-file");
        try {
            int number = 0;
            for (String line : Files.readAllLines(Path.of(file))) {
                number++;
                read(line.trim(), number);
            }
        } catch (IOException unreadable) {
            throw new IllegalArgumentException("users-file \"" + file + "\" cannot be read: "
                    + unreadable.getMessage(), unreadable);
        }
    }

    private void read(String line, int number) {
        if (line.isEmpty() || line.startsWith("#")) {
            return;
        }
        int colon = line.indexOf(':');
        CryptHash hash = colon < 1 ? null : CryptHash.parse(line.substring(colon + 1));
        if (hash == null || !Ascii.isValue(line.substring(0, colon))) {
            throw new IllegalArgumentException("users-file, line " + number + ": write NAME:HASH, with the"
                    + " hash that \"openssl passwd -6\" prints");
        }
        users.put(line.substring(0, colon), hash);
    }

    @Override
    public Step apply(Context context) {
        Headers headers = context.request().headers();
        List<String> lines = headers.all("Authorization");
        headers.remove("Authorization");
        if (!identityHeader.isEmpty()) {
            headers.remove(identityHeader);
        }
        Credentials given = lines.size() == 1 ? credentials(lines.get(0)) : null;
        if (given == null) {
            return refused(context, "a name and a password are missing");
        }
        KeyHash key = KeyHash.of(lines.get(0));
        String name = known.getIfPresent(key);
        return name == null ? checked(context, given, key) : accepted(context, name);
    }

    private static Credentials credentials(String line) {
        if (line.length() > CHARS_MAX || !line.regionMatches(true, 0, "Basic ", 0, 6)) {
            return null;
        }
        try {
            String pair = new String(Base64.getDecoder().decode(line.substring(6).trim()),
                    StandardCharsets.UTF_8);
            int colon = pair.indexOf(':');
            return colon < 1 ? null : new Credentials(pair.substring(0, colon), pair.substring(colon + 1));
        } catch (IllegalArgumentException malformed) {
            return null;
        }
    }

    private Step checked(Context context, Credentials given, KeyHash key) {
        CryptHash hash = users.getOrDefault(given.name(), NOBODY);
        CompletableFuture<Boolean> isRight;
        try {
            isRight = CompletableFuture.supplyAsync(() -> hash.isOf(given.password()), checks);
        } catch (RejectedExecutionException busy) {
            return Step.fail(503, new IllegalStateException("too many passwords wait to be checked"));
        }
        return Step.later(isRight, () -> {
            if (!isRight.join()) {
                return refused(context, "the name or the password is wrong");
            }
            known.put(key, given.name());
            return accepted(context, given.name());
        });
    }

    private Step accepted(Context context, String name) {
        if (!identityHeader.isEmpty()) {
            context.request().headers().set(identityHeader, name);
        }
        return Step.NEXT;
    }

    private Step refused(Context context, String reason) {
        return Authentication.refused(context, challenge, reason);
    }

    @Override
    public void close() {
        checks.shutdownNow();
    }
}
