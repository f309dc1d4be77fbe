// The heap memory allocated for reading a head, which happens twice per request.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import org.junit.jupiter.api.Test;

class HeadAllocationTest {
    private static final int HEADS = 1000;
    private static final byte[] RESPONSE = Ascii.bytes("HTTP/1.1 200 OK\r\nServer: s\r\n"
            + "Content-Type: text/plain\r\nContent-Length: 10\r\nETag: \"1\"\r\nVary: Accept\r\n\r\n");

    private static long allocated(int heads) {
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        long own = Thread.currentThread().getId();
        long before = threads.getThreadAllocatedBytes(own);
        for (int i = 0; i < heads; i++) {
            HeadCheck.response(RESPONSE, 0, RESPONSE.length, Limits.DEFAULT);
        }
        return threads.getThreadAllocatedBytes(own) - before;
    }

    @Test
    void a_head_takes_its_bytes_and_little_more() {
        allocated(HEADS);
        long each = allocated(HEADS) / HEADS;
        assertTrue(each < RESPONSE.length + 320, each + " bytes for a head of " + RESPONSE.length);
    }
}
