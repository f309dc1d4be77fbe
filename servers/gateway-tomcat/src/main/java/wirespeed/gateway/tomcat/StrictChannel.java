// Tomcat's channels, plain and TLS, with the strict reader between them and its parser.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.SocketChannel;
import java.util.function.Supplier;
import org.apache.tomcat.util.net.NioChannel;
import org.apache.tomcat.util.net.NioEndpoint;
import org.apache.tomcat.util.net.NioEndpoint.NioSocketWrapper;
import org.apache.tomcat.util.net.SecureNioChannel;
import org.apache.tomcat.util.net.SocketBufferHandler;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Limits;
import wirespeed.gateway.core.Meters;

/** The parts that both kinds have in common. */
interface StrictChannel {
    ByteBuffer NOTHING = ByteBuffer.allocate(0);

    /** What this connection receives. */
    StrictReader reader();

    /** Makes channels for an endpoint. */
    record Factory(Supplier<Limits> limits, long headMillis, int sendMillis,
            Lingering lingering, Meters meters) {
        NioChannel plain(SocketBufferHandler buffers) {
            return new Plain(buffers, this);
        }

        NioChannel secure(SocketBufferHandler buffers, NioEndpoint endpoint) {
            return new Secure(buffers, endpoint, this);
        }
    }

    /** The last words on a connection: 408 for a late head. */
    private static void beforeEnd(StrictReader reader, NioChannel channel, Meters meters) {
        try {
            if (reader.isCutLate()) {
                meters.refused(Category.CLIENT_BAD, 408);
                channel.write(StrictReader.late());
            }
        } catch (IOException gone) {
            // The client is gone and cannot be notified.
            return;
        }
    }

    /** Whether the socket is handed over to {@code lingering}, which reads and drops the rest. */
    private static boolean isHandedOver(StrictReader reader, NioChannel channel,
            NioSocketWrapper owner, Lingering lingering) {
        SocketChannel socket = channel.getIOChannel();
        if (!reader.hasRest() || socket == null || !socket.isOpen()) {
            return false;
        }
        // Tomcat's poller must not see it any more, whoever closes.
        SelectionKey key = socket.keyFor(owner.getPoller().getSelector());
        if (key != null) {
            key.cancel();
        }
        return lingering.take(socket);
    }

    /** Without TLS. */
    final class Plain extends NioChannel implements StrictChannel {
        private final StrictReader reader;
        private final int sendMillis;
        private final Lingering lingering;
        private final Meters meters;
        private NioSocketWrapper owner;
        private boolean isHandedOver;

        private Plain(SocketBufferHandler buffers, Factory factory) {
            super(buffers);
            reader = new StrictReader(super::read, factory.limits(), factory.headMillis());
            sendMillis = factory.sendMillis();
            lingering = factory.lingering();
            meters = factory.meters();
        }

        @Override
        public void reset(SocketChannel socket, NioSocketWrapper owner) throws IOException {
            super.reset(socket, owner);
            // Tomcat resets a channel that it puts aside to nothing.
            this.owner = owner;
            isHandedOver = false;
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
            if (isHandedOver) {
                return;
            }
            beforeEnd(reader, this, meters);
            isHandedOver = isHandedOver(reader, this, owner, lingering);
            if (!isHandedOver) {
                super.close();
            }
        }
    }

    /** The bytes that TLS protected. */
    final class Secure extends SecureNioChannel implements StrictChannel {
        private final StrictReader reader;
        private final int sendMillis;
        private final Lingering lingering;
        private final Meters meters;
        private NioSocketWrapper owner;
        private boolean isHandedOver;
        /** Of the record that was read last; empty between requests. */
        private ByteBuffer record = NOTHING;

        private Secure(SocketBufferHandler buffers, NioEndpoint endpoint, Factory factory) {
            super(buffers, endpoint);
            reader = new StrictReader(this::decrypted, factory.limits(), factory.headMillis());
            sendMillis = factory.sendMillis();
            lingering = factory.lingering();
            meters = factory.meters();
        }

        @Override
        public void reset(SocketChannel socket, NioSocketWrapper owner) throws IOException {
            super.reset(socket, owner);
            // Tomcat resets a channel that it puts aside to nothing.
            this.owner = owner;
            isHandedOver = false;
            record = NOTHING;
            reader.reset();
        }

        /**
         * Decrypting gives whole records, and Tomcat fails where one does not fit into a buffer that
         * is not its own.
         */
        private int decrypted(ByteBuffer into) throws IOException {
            if (!record.hasRemaining()) {
                int size = getSslEngine().getSession().getApplicationBufferSize();
                ByteBuffer next = record.capacity() < size ? ByteBuffer.allocate(size)
                        : record.clear();
                int count = received(next);
                record = count > 0 ? next.flip() : NOTHING;
                if (count <= 0) {
                    return count;
                }
            }
            int count = Math.min(into.remaining(), record.remaining());
            into.put(into.position(), record, record.position(), count);
            into.position(into.position() + count);
            record.position(record.position() + count);
            return count;
        }

        /** RFC 8446 §6.1: the client's alert is the end of what it sends, and no failure. */
        private int received(ByteBuffer into) throws IOException {
            try {
                return getSslEngine().isInboundDone() ? -1 : super.read(into);
            } catch (IOException failed) {
                if (getSslEngine().isInboundDone()) {
                    return -1;
                }
                throw failed;
            }
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

        /** TLS says its own end; the socket stays. */
        @Override
        public void close() throws IOException {
            beforeEnd(reader, this, meters);
            super.close();
        }

        @Override
        public void close(boolean isForced) throws IOException {
            if (isHandedOver) {
                return;
            }
            // Behind a late head is a rest, too.
            beforeEnd(reader, this, meters);
            if (!reader.hasRest()) {
                super.close(isForced);
                return;
            }
            try {
                close();
            } finally {
                isHandedOver = isHandedOver(reader, this, owner, lingering);
                if (!isHandedOver) {
                    super.close(isForced);
                }
            }
        }
    }
}
