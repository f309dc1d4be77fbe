// The client's side failed: it is gone, too slow, or sent an invalid body.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.io.InputStream;
import java.net.SocketTimeoutException;
import org.apache.coyote.BadRequestException;
import wirespeed.gateway.core.Refusal;

/** Kept apart from failures of the origin, which throw from the same loops. */
final class ClientFailure extends IOException {
    private static final long serialVersionUID = 1L;
    private final int status;

    /**
     * A failure.
     *
     * @param status the status that the client gets; 0 when the client is gone
     */
    ClientFailure(int status, String message, Throwable cause) {
        super(message, cause);
        this.status = status;
    }

    int status() {
        return status;
    }

    static int read(InputStream in, byte[] buffer) throws ClientFailure {
        try {
            return in.read(buffer, 0, buffer.length);
        } catch (IOException | IllegalStateException failed) {
            throw of(failed);
        }
    }

    static int available(InputStream in) throws ClientFailure {
        try {
            return in.available();
        } catch (IOException failed) {
            throw of(failed);
        }
    }

    /** Tomcat wraps a time-out in the middle of a chunk into a failure of the body's syntax. */
    private static boolean isLate(Throwable failed) {
        Throwable cause = failed;
        while (cause != null && !(cause instanceof SocketTimeoutException)) {
            cause = cause.getCause();
        }
        return cause != null;
    }

    static ClientFailure of(Refusal refusal) {
        return new ClientFailure(refusal.status(), refusal.getMessage(), refusal);
    }

    private static ClientFailure of(Exception failed) {
        if (isLate(failed)) {
            return new ClientFailure(408, "request body did not arrive in time", failed);
        }
        for (Throwable cause = failed; cause != null; cause = cause.getCause()) {
            if (cause instanceof Refused refused) {
                return new ClientFailure(refused.status(), refused.getMessage(), failed);
            }
        }
        // Tomcat gets frames that are well-formed: what it calls a bad request is one that has ended.
        boolean isGone = failed instanceof BadRequestException
                || failed instanceof java.io.EOFException;
        return new ClientFailure(0, isGone ? "the client is gone" : String.valueOf(failed),
                failed);
    }
}
