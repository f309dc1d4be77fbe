// ErrorPageContract on gateway-netty, and what clients that do not read a page take of memory.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.util.internal.PlatformDependent;
import java.net.Socket;
import java.nio.file.Files;
import java.util.Map;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.netty.Main;
import wirespeed.gateway.runtime.Launcher;

class NettyErrorPageTest extends ErrorPageContract {
    private static final int CLIENTS = 250;
    private static final long GROWN_MAX = 10L << 20;

    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("server.transport", "epoll", "server.threads", "2");
    }

    /** A page of 64 KiB for each of them would be 15 MiB. */
    @Test
    void clients_that_read_nothing_share_one_page() throws Exception {
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n"
                + "[[route]]\nprefix = \"/o\"\norigins = [\"o\"]\n"
                + "[[filter]]\ntype = \"error-page\"\nstatuses = [\"404\"]\nfile = \""
                + Files.write(folder.resolve("large.html"), new byte[64 * 1024]) + "\"\n");
        assertEquals(404, client(gateway).get("/nowhere").status());
        long before = PlatformDependent.usedDirectMemory();
        for (int i = 0; i < CLIENTS; i++) {
            Socket socket = closedLater(new Socket());
            socket.setReceiveBufferSize(4096);
            socket.setSoTimeout(60_000);
            socket.connect(gateway.address);
            socket.getOutputStream().write("GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n".repeat(50).getBytes());
            assertEquals('H', socket.getInputStream().read());
        }
        long grown = PlatformDependent.usedDirectMemory() - before;
        assertTrue(grown < GROWN_MAX, grown + " bytes");
    }
}
