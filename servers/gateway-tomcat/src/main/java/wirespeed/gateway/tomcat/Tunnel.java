// Raw bytes both ways after the origin has switched protocols.
package wirespeed.gateway.tomcat;

import jakarta.servlet.http.HttpUpgradeHandler;
import jakarta.servlet.http.WebConnection;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.SocketTimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Two threads a tunnel, as everything here blocks. Tomcat makes it, and closes the client's socket
 * when {@link #init} returns: that is why the origin's bytes are copied there. A tunnel through which
 * nothing goes in either direction for the origin's body-idle ends, so that peers that are gone hold
 * no threads.
 */
public final class Tunnel implements HttpUpgradeHandler {
    private final AtomicBoolean isOver = new AtomicBoolean();
    private Call call;
    private Plant plant;
    private volatile long clientNanos;

    /** The connection to the origin, from now on this tunnel's; a permit of {@code tunnels} with it. */
    void connect(Call switched, Plant shared) {
        call = switched;
        plant = shared;
    }

    @Override
    public void init(WebConnection client) {
        clientNanos = System.nanoTime();
        plant.tunnelThreads().execute(() -> toOrigin(client));
        try (client) {
            OriginConnection origin = call.connection();
            OutputStream out = client.getOutputStream();
            byte[] buffer = new byte[Scratch.BODY_BYTES];
            for (int count = read(origin, buffer); count >= 0; count = read(origin, buffer)) {
                out.write(buffer, 0, count);
                out.flush();
            }
        } catch (Exception ended) {
            // Either side may end a tunnel at any time, without a reason.
            call.abandon();
        } finally {
            destroy();
        }
    }

    /** Data that the client sent in the meantime counts as activity, too. */
    private int read(OriginConnection origin, byte[] buffer) throws IOException {
        while (true) {
            long begin = System.nanoTime();
            try {
                return origin.readRaw(buffer);
            } catch (SocketTimeoutException idle) {
                if (clientNanos - begin < 0) {
                    throw idle;
                }
            }
        }
    }

    private void toOrigin(WebConnection client) {
        try {
            InputStream in = client.getInputStream();
            byte[] buffer = new byte[Scratch.BODY_BYTES];
            for (int count = read(in, buffer); count >= 0; count = read(in, buffer)) {
                clientNanos = System.nanoTime();
                call.connection().writeRaw(buffer, count);
            }
            // Not closed at once: that would take back what is on its way.
            call.connection().endRaw();
        } catch (IOException | IllegalStateException ended) {
            // As above.
            call.abandon();
        }
    }

    /** Tomcat reports the end of a client in one of two ways. */
    private static int read(InputStream in, byte[] buffer) throws IOException {
        try {
            return in.read(buffer);
        } catch (EOFException end) {
            return -1;
        }
    }

    @Override
    public void destroy() {
        call.abandon();
        if (isOver.compareAndSet(false, true)) {
            plant.tunnels().release();
        }
    }
}
