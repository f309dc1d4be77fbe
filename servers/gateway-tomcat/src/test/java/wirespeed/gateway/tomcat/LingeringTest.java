// A client that goes on sending is reset after two seconds, and not after a pause of the process.
package wirespeed.gateway.tomcat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

class LingeringTest {
    private final AtomicLong now = new AtomicLong();

    @Test
    void time_in_which_the_process_stood_still_does_not_count() throws Exception {
        try (Lingering lingering = new Lingering(now::get);
                ServerSocketChannel listener = ServerSocketChannel.open().bind(
                        new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
                Socket client = new Socket(InetAddress.getLoopbackAddress(),
                        listener.socket().getLocalPort())) {
            SocketChannel last = listener.accept();
            last.configureBlocking(false);
            assertTrue(lingering.take(last));
            client.setSoTimeout(60_000);
            assertEquals(-1, client.getInputStream().read());
            for (int pauses = 0; pauses < 3; pauses++) {
                now.addAndGet(TimeUnit.SECONDS.toNanos(10));
                // Longer than a turn of the thread: a reset would be here by now.
                Thread.sleep(300);
                client.getOutputStream().write('a');
            }
            long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(1);
            while (!isReset(client)) {
                assertTrue(System.nanoTime() < end, "it is read for ever");
                now.addAndGet(TimeUnit.MILLISECONDS.toNanos(100));
                Thread.sleep(10);
            }
        }
    }

    private static boolean isReset(Socket client) {
        try {
            client.getOutputStream().write('a');
            return false;
        } catch (IOException reset) {
            return true;
        }
    }
}
