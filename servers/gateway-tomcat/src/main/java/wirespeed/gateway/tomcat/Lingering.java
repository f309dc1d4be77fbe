// Takes in what clients still send after their last answer: unread bytes would turn it into a reset.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongSupplier;

/**
 * RFC 9112 §9.6: the half towards the client is shut, and what comes is read and dropped until the client
 * shuts its own, for two seconds at most. One thread for all, so that no request waits for a thread.
 */
final class Lingering implements AutoCloseable {
    private static final long NANOS = 2_000_000_000L;
    private static final int SOCKETS_MAX = 1000;
    private static final int BUFFER_BYTES = 64 * 1024;
    private static final int LOOK_MILLIS = 100;

    private final Queue<SocketChannel> arrived = new ConcurrentLinkedQueue<>();
    private final AtomicInteger count = new AtomicInteger();
    private Selector selector;
    /** How long this thread has run, on a clock that stands still with the process. */
    private long ranNanos;
    private long tickNanos;
    private final LongSupplier nanoTime;
    private volatile boolean isClosed;

    Lingering() {
        this(System::nanoTime);
    }

    Lingering(LongSupplier nanoTime) {
        this.nanoTime = nanoTime;
        tickNanos = nanoTime.getAsLong();
    }

    /** Whether this closes the socket from now on; else who asks has to. */
    boolean take(SocketChannel socket) {
        if (count.incrementAndGet() > SOCKETS_MAX) {
            count.decrementAndGet();
            return false;
        }
        try {
            socket.shutdownOutput();
            Selector own = open();
            if (isClosed) {
                throw new IOException("the process ends");
            }
            arrived.add(socket);
            own.wakeup();
            return true;
        } catch (IOException gone) {
            count.decrementAndGet();
            return false;
        }
    }

    private synchronized Selector open() throws IOException {
        if (selector == null) {
            selector = Selector.open();
            Thread thread = new Thread(this::run, "lingering");
            thread.setDaemon(true);
            thread.start();
        }
        return selector;
    }

    private void run() {
        ByteBuffer waste = ByteBuffer.allocateDirect(BUFFER_BYTES);
        try (Selector own = selector) {
            while (!isClosed) {
                own.select(own.keys().isEmpty() ? 0 : LOOK_MILLIS);
                tick();
                begin();
                for (SelectionKey key : List.copyOf(own.keys())) {
                    if (key.isValid() && ranNanos - (long) key.attachment() >= 0) {
                        end(key);
                    }
                }
                for (SelectionKey key : List.copyOf(own.selectedKeys())) {
                    if (key.isValid() && key.isReadable() && isOver(key, waste)) {
                        end(key);
                    }
                }
                own.selectedKeys().clear();
            }
            begin();
            own.keys().stream().filter(SelectionKey::isValid).toList().forEach(this::end);
        } catch (IOException stopped) {
            // The process has no selectors any more; it ends, and with it these sockets.
            return;
        }
    }

    /** A turn that took longer is time in which this thread could not read: it counts as one turn. */
    private void tick() {
        long now = nanoTime.getAsLong();
        ranNanos += Math.min(now - tickNanos, 2 * LOOK_MILLIS * 1_000_000L);
        tickNanos = now;
    }

    private void begin() {
        long until = ranNanos + NANOS;
        for (SocketChannel socket = arrived.poll(); socket != null; socket = arrived.poll()) {
            try {
                socket.register(selector, SelectionKey.OP_READ, until);
            } catch (IOException | RuntimeException gone) {
                close(socket);
            }
        }
    }

    /** One piece at a time: no client keeps this thread from the others. */
    private static boolean isOver(SelectionKey key, ByteBuffer waste) {
        try {
            return ((SocketChannel) key.channel()).read(waste.clear()) < 0;
        } catch (IOException gone) {
            return true;
        }
    }

    private void end(SelectionKey key) {
        key.cancel();
        close((SocketChannel) key.channel());
    }

    private void close(SocketChannel socket) {
        count.decrementAndGet();
        try {
            socket.close();
        } catch (IOException gone) {
            // The connection is already gone.
            return;
        }
    }

    @Override
    public synchronized void close() {
        isClosed = true;
        if (selector != null) {
            selector.wakeup();
        }
    }
}
