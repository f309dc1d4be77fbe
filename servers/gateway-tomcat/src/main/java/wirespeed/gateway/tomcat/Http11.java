// Tomcat's HTTP/1.1 connector with counted connections and a way to close idle ones.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.apache.coyote.Processor;
import org.apache.coyote.UpgradeToken;
import org.apache.coyote.http11.Http11NioProtocol;
import org.apache.coyote.http11.Http11Processor;
import org.apache.tomcat.util.net.AbstractEndpoint;
import org.apache.tomcat.util.net.Acceptor;
import org.apache.tomcat.util.net.NioChannel;
import org.apache.tomcat.util.net.NioEndpoint;
import org.apache.tomcat.util.net.SocketBufferHandler;
import org.apache.tomcat.util.net.SocketWrapperBase;
import wirespeed.gateway.core.Listener;
import wirespeed.gateway.core.Meters;

/** Everything else about it is Tomcat's. */
final class Http11 extends Http11NioProtocol {
    /** A slot in Tomcat's request that no other code uses; its own notes have lower numbers. */
    static final int READER = org.apache.coyote.Constants.MAX_NOTES - 1;

    private final Endpoint endpoint;

    Http11(Listener listener, Meters meters, StrictChannel.Factory channels) {
        this(new Endpoint(listener, meters, channels));
    }

    private Http11(Endpoint endpoint) {
        super(endpoint);
        this.endpoint = endpoint;
    }

    /** Opens the socket, with which its start has nothing to do any more. */
    void bind() throws Exception {
        endpoint.open();
    }

    /** Gives the socket back; for one whose process does not start. */
    void unbind() {
        try {
            endpoint.unbind();
        } catch (Exception ended) {
            throw new IllegalStateException(ended);
        }
    }

    /** The threads of this connector serve the others, too: their number is one for all. */
    void shareThreads(List<Http11> others) {
        endpoint.setName("http-nio");
        endpoint.createExecutor();
        others.forEach(other -> other.setExecutor(endpoint.getExecutor()));
    }

    /** Closes the listener once the connections that wait in its queue are accepted. */
    void closeListener() {
        endpoint.isEnding = true;
        closeServerSocketGraceful();
    }

    /**
     * Closes connections that wait for a next request; those with one are left alone, also while its
     * head is on its way.
     *
     * @param isFirstDue whether connections without a request so far may still send one
     * @return how many were left alone, tunnels not counted
     */
    int closeIdle(boolean isFirstDue) {
        int busy = 0;
        for (SocketWrapperBase<?> connection : endpoint.getConnections()) {
            StrictReader reader = connection.getSocket() instanceof StrictChannel channel
                    ? channel.reader() : null;
            // Tomcat holds this lock as long as a request of the connection runs.
            if (!connection.getLock().tryLock()) {
                busy += reader != null && reader.isRaw() ? 0 : 1;
                continue;
            }
            try {
                if (reader != null && reader.isAwaited(isFirstDue)) {
                    busy++;
                } else {
                    connection.close();
                }
            } finally {
                connection.getLock().unlock();
            }
        }
        return busy;
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

    /** Data after a switch of protocols is not HTTP/1. */
    @Override
    protected Processor createUpgradeProcessor(SocketWrapperBase<?> connection,
            UpgradeToken token) {
        ((StrictChannel) connection.getSocket()).reader().raw();
        return super.createUpgradeProcessor(connection, token);
    }

    private static final class Endpoint extends NioEndpoint {
        private static final int ACCEPTOR_TURNS_MAX = 1000;
        private final Listener listener;
        private final Meters meters;
        private final StrictChannel.Factory channels;
        private volatile boolean isEnding;
        private boolean isTaking;
        private boolean wasDestroyed;

        Endpoint(Listener listener, Meters meters, StrictChannel.Factory channels) {
            this.listener = listener;
            this.meters = meters;
            this.channels = channels;
        }

        /** Before Tomcat starts anything: all listeners can be opened, or none is. */
        void open() throws Exception {
            super.bind();
        }

        /** Encryption is prepared after it, and what fails there has nothing to do with the address. */
        @Override
        protected void initServerSocket() throws Exception {
            try {
                super.initServerSocket();
            } catch (Exception cause) {
                throw listener.refused(cause);
            }
        }

        @Override
        public void bind() {
            // It is open.
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

        /** Tomcat's acceptor drops the connection that it accepts last; a client may have sent a request. */
        @Override
        protected synchronized void destroySocket(SocketChannel socket) {
            if (!isEnding || isTaking) {
                wasDestroyed = true;
                super.destroySocket(socket);
                return;
            }
            isTaking = true;
            wasDestroyed = false;
            boolean isTaken = setSocketOptions(socket);
            isTaking = false;
            if (!isTaken && !wasDestroyed) {
                super.destroySocket(socket);
            }
        }

        @Override
        protected void doCloseServerSocket() throws IOException {
            if (isEnding && getServerSocket() instanceof ServerSocketChannel listener) {
                takeWaiting(listener);
            }
            super.doCloseServerSocket();
        }

        /** Connections that wait in a listener's queue are reset when it closes. */
        private void takeWaiting(ServerSocketChannel listener) throws IOException {
            // Turns and numbers, not times: a process that stands still here loses none of them.
            for (int turns = 0; acceptor.getState() != Acceptor.AcceptorState.ENDED; turns++) {
                if (turns == ACCEPTOR_TURNS_MAX) {
                    return;
                }
                LockSupport.parkNanos(1_000_000);
            }
            listener.configureBlocking(false);
            // No more than these wait; who comes later may be refused.
            for (int taken = 0; taken <= getAcceptCount(); taken++) {
                SocketChannel waiting = listener.accept();
                if (waiting == null) {
                    return;
                }
                try {
                    countUpOrAwaitConnection();
                } catch (InterruptedException stopped) {
                    Thread.currentThread().interrupt();
                    waiting.close();
                    return;
                }
                // Taken in, as the acceptor's last one is.
                destroySocket(waiting);
            }
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
