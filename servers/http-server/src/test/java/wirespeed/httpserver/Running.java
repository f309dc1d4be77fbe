/** A server that a test started on a free port and stops. */
package wirespeed.httpserver;

import java.io.IOException;
import java.nio.file.Path;
import org.junit.jupiter.api.Assumptions;

/** Skips the test, visibly, if the machine does not have the transport. */
final class Running implements AutoCloseable {
    final Server server;
    private boolean isStopped;

    private Running(Settings settings) throws IOException {
        Throwable unavailable = settings.transport().unavailable();
        Assumptions.assumeTrue(unavailable == null, () -> String.valueOf(unavailable));
        server = Server.start(settings);
    }

    static Settings settings(Transport transport, Path root, int payload, boolean validators) {
        return new Settings("127.0.0.1", 0, root, payload, transport, 1, validators);
    }

    static Running payload(Transport transport, int bytes) throws IOException {
        return new Running(settings(transport, null, bytes, false));
    }

    static Running root(Transport transport, Path root, boolean validators) throws IOException {
        return new Running(settings(transport, root, -1, validators));
    }

    static Running with(Settings settings) throws IOException {
        return new Running(settings);
    }

    RawClient connect() throws IOException {
        return new RawClient(server.port());
    }

    /** Advances the server's clock by so many seconds, once. */
    void advance(int seconds) {
        for (Loop loop : server.loops()) {
            loop.executor.submit(() -> loop.advance(loop.nowS + seconds)).awaitUninterruptibly();
        }
    }

    void stop() {
        if (!isStopped) {
            isStopped = true;
            server.stop();
        }
    }

    @Override
    public void close() {
        stop();
    }
}
