// Tomcat's HTTP/1.1 connector with counted connections and a way to close those that are idle.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.nio.channels.SocketChannel;
import org.apache.coyote.Processor;
import org.apache.coyote.UpgradeToken;
import org.apache.coyote.http11.Http11NioProtocol;
import org.apache.coyote.http11.Http11Processor;
import org.apache.tomcat.util.net.AbstractEndpoint;
import org.apache.tomcat.util.net.NioChannel;
import org.apache.tomcat.util.net.NioEndpoint;
import org.apache.tomcat.util.net.SocketBufferHandler;
import org.apache.tomcat.util.net.SocketWrapperBase;
import wirespeed.gateway.core.Meters;

/** Everything else about it is Tomcat's. */
final class Http11 extends Http11NioProtocol {
    /** A place in Tomcat's request that nobody else uses; its own notes have lower numbers. */
    static final int READER = org.apache.coyote.Constants.MAX_NOTES - 1;

    private final Endpoint endpoint;

    Http11(Meters meters, StrictChannel.Factory channels) {
        this(new Endpoint(meters, channels));
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

    /** Shows the servlet the connection's reader. */
    @Override
    protected Processor createProcessor() {
        Http11Processor made = new Http11Processor(this, adapter) {
            @Override
            public AbstractEndpoint.Handler.SocketState service(SocketWrapperBase<?> connection) throws IOException {
                request.setNote(READER, ((StrictChannel) connection.getSocket()).reader());
                return super.service(connection);
            }
        };
        return made;
    }

    /** What comes after a switch of protocols is no HTTP/1. */
    @Override
    protected Processor createUpgradeProcessor(SocketWrapperBase<?> connection,
            UpgradeToken token) {
        ((StrictChannel) connection.getSocket()).reader().raw();
        return super.createUpgradeProcessor(connection, token);
    }

    private static final class Endpoint extends NioEndpoint {
        private final Meters meters;
        private final StrictChannel.Factory channels;

        Endpoint(Meters meters, StrictChannel.Factory channels) {
            this.meters = meters;
            this.channels = channels;
        }

        @Override
        protected NioChannel createChannel(SocketBufferHandler buffers) {
            return isSSLEnabled() ? channels.secure(buffers, this) : channels.plain(buffers);
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
