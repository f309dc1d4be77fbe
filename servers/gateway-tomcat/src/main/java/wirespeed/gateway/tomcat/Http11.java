// Tomcat's HTTP/1.1 connector with counted connections and a way to close those that are idle.
package wirespeed.gateway.tomcat;

import java.nio.channels.SocketChannel;
import org.apache.coyote.http11.Http11NioProtocol;
import org.apache.tomcat.util.net.NioEndpoint;
import org.apache.tomcat.util.net.SocketWrapperBase;
import wirespeed.gateway.core.Meters;

/** Everything else about it is Tomcat's. */
final class Http11 extends Http11NioProtocol {
    private final Endpoint endpoint;

    Http11(Meters meters) {
        this(new Endpoint(meters));
    }

    private Http11(Endpoint endpoint) {
        super(endpoint);
        this.endpoint = endpoint;
    }

    /** Closes connections that wait for a next request; those with one are left alone. */
    void closeIdle() {
        for (SocketWrapperBase<?> connection : endpoint.getConnections()) {
            // Tomcat holds this lock as long as a request of the connection runs.
            if (connection.getLock().tryLock()) {
                try {
                    connection.close();
                } finally {
                    connection.getLock().unlock();
                }
            }
        }
    }

    private static final class Endpoint extends NioEndpoint {
        private final Meters meters;

        Endpoint(Meters meters) {
            this.meters = meters;
        }

        @Override
        protected boolean setSocketOptions(SocketChannel socket) {
            meters.add(Meters.Count.CONNECTIONS_ACCEPTED, 1);
            return super.setSocketOptions(socket);
        }

        @Override
        protected void countUpOrAwaitConnection() throws InterruptedException {
            super.countUpOrAwaitConnection();
            meters.add(Meters.Count.CONNECTIONS_OPEN, 1);
        }

        @Override
        protected long countDownConnection() {
            meters.add(Meters.Count.CONNECTIONS_OPEN, -1);
            return super.countDownConnection();
        }
    }
}
