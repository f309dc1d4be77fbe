// The body of an answer to the gateway's own question, bounded in bytes and in time.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** The time limit of the JDK's client ends with the head, and it knows none for bytes. */
final class BoundedBody {
    private BoundedBody() {
    }

    /**
     * Reads it, blocking.
     *
     * @throws IllegalArgumentException for another status than 200, and for a longer body
     */
    static String read(HttpResponse<InputStream> answer, int bytesMax, Duration patience) {
        try (InputStream in = answer.body()) {
            CompletableFuture.delayedExecutor(patience.toMillis(), TimeUnit.MILLISECONDS,
                    Runnable::run).execute(() -> cut(in));
            byte[] bytes = in.readNBytes(bytesMax + 1);
            if (answer.statusCode() != 200 || bytes.length > bytesMax) {
                throw new IllegalArgumentException("status " + answer.statusCode() + ", "
                        + bytes.length + " bytes");
            }
            return new String(bytes, StandardCharsets.UTF_8);
        } catch (IOException broken) {
            throw new UncheckedIOException(broken);
        }
    }

    private static void cut(InputStream in) {
        try {
            in.close();
        } catch (IOException alreadyBroken) {
            // The reader fails, too.
        }
    }
}
