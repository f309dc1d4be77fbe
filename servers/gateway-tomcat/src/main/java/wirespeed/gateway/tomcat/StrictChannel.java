// Tomcat's channels, plain and TLS, with the strict reader between them and its parser.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.function.Supplier;
import org.apache.tomcat.util.net.NioChannel;
import org.apache.tomcat.util.net.NioEndpoint;
import org.apache.tomcat.util.net.NioEndpoint.NioSocketWrapper;
import org.apache.tomcat.util.net.SecureNioChannel;
import org.apache.tomcat.util.net.SocketBufferHandler;
import wirespeed.gateway.core.Limits;

/** What both kinds have in common. */
interface StrictChannel {
    /** What a refused client may still have sent; unread bytes would turn the answer into a reset. */
    int DRAINED_BYTES_MAX = 64 * 1024;

    /** What this connection receives. */
    StrictReader reader();

    /** Makes channels for an endpoint. */
    record Factory(Supplier<Limits> limits, long headMillis, int sendMillis) {
        NioChannel plain(SocketBufferHandler buffers) {
            return new Plain(buffers, this);
        }

        NioChannel secure(SocketBufferHandler buffers, NioEndpoint endpoint) {
            return new Secure(buffers, endpoint, this);
        }
    }

    /** The last words on a connection: 408 for a late head; what nobody reads is taken in. */
    private static void beforeClose(StrictReader reader, NioChannel channel) {
        try {
            if (reader.isLate()) {
                channel.write(StrictReader.late());
            }
            if (reader.hasRefused() && channel.isOpen()) {
                SocketChannel socket = channel.getIOChannel();
                socket.shutdownOutput();
                ByteBuffer waste = ByteBuffer.allocate(4096);
                for (int bytes = 0; bytes < DRAINED_BYTES_MAX; bytes += waste.position()) {
                    waste.clear();
                    if (socket.read(waste) <= 0) {
                        return;
                    }
                }
            }
        } catch (IOException gone) {
            // There is nobody to tell it to.
            return;
        }
    }

    /** Without TLS. */
    final class Plain extends NioChannel implements StrictChannel {
        private final StrictReader reader;
        private final int sendMillis;
        private NioSocketWrapper owner;

        private Plain(SocketBufferHandler buffers, Factory factory) {
            super(buffers);
            reader = new StrictReader(super::read, factory.limits(), factory.headMillis());
            sendMillis = factory.sendMillis();
        }

        @Override
        public void reset(SocketChannel socket, NioSocketWrapper owner) throws IOException {
            super.reset(socket, owner);
            // Tomcat resets a channel that it puts aside to nothing.
            this.owner = owner;
            reader.reset();
        }

        @Override
        public int read(ByteBuffer into) throws IOException {
            // Not in reset: Tomcat sets its one time-out for both directions after it.
            owner.setWriteTimeout(sendMillis);
            return reader.read(into, owner::setReadTimeout);
        }

        @Override
        public StrictReader reader() {
            return reader;
        }

        @Override
        public void close() throws IOException {
            beforeClose(reader, this);
            super.close();
        }
    }

    /** The bytes that TLS protected. */
    final class Secure extends SecureNioChannel implements StrictChannel {
        private final StrictReader reader;
        private final int sendMillis;
        private NioSocketWrapper owner;

        private Secure(SocketBufferHandler buffers, NioEndpoint endpoint, Factory factory) {
            super(buffers, endpoint);
            reader = new StrictReader(super::read, factory.limits(), factory.headMillis());
            sendMillis = factory.sendMillis();
        }

        @Override
        public void reset(SocketChannel socket, NioSocketWrapper owner) throws IOException {
            super.reset(socket, owner);
            // Tomcat resets a channel that it puts aside to nothing.
            this.owner = owner;
            reader.reset();
        }

        @Override
        public int read(ByteBuffer into) throws IOException {
            // Not in reset: Tomcat sets its one time-out for both directions after it.
            owner.setWriteTimeout(sendMillis);
            return reader.read(into, owner::setReadTimeout);
        }

        @Override
        public StrictReader reader() {
            return reader;
        }
    }
}
