// Raw bytes both ways after the origin has switched protocols.
package wirespeed.gateway.tomcat;

import jakarta.servlet.http.HttpUpgradeHandler;
import jakarta.servlet.http.WebConnection;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;

/**
 * Two threads a tunnel, as everything here blocks. Tomcat makes it, and closes the client's socket
 * when {@link #init} returns: that is why the origin's bytes are copied there.
 */
public final class Tunnel implements HttpUpgradeHandler {
    private Call call;

    /** The connection to the origin, from now on this tunnel's. */
    void connect(Call switched) {
        call = switched;
    }

    @Override
    public void init(WebConnection client) {
        Thread thread = new Thread(() -> toOrigin(client), "gateway-tunnel");
        thread.setDaemon(true);
        thread.start();
        try (client) {
            OriginConnection origin = call.connection();
            OutputStream out = client.getOutputStream();
            byte[] buffer = new byte[Scratch.BODY_BYTES];
            for (int count = origin.readRaw(buffer); count >= 0;
                    count = origin.readRaw(buffer)) {
                out.write(buffer, 0, count);
                out.flush();
            }
        } catch (Exception ended) {
            // Either side may end a tunnel at any time, and neither is told why.
            call.abandon();
        } finally {
            call.abandon();
        }
    }

    private void toOrigin(WebConnection client) {
        try {
            InputStream in = client.getInputStream();
            byte[] buffer = new byte[Scratch.BODY_BYTES];
            for (int count = in.read(buffer); count >= 0; count = in.read(buffer)) {
                call.connection().writeRaw(buffer, count);
            }
        } catch (IOException | IllegalStateException ended) {
            // As above.
            call.abandon();
        } finally {
            call.abandon();
        }
    }

    @Override
    public void destroy() {
        call.abandon();
    }
}
