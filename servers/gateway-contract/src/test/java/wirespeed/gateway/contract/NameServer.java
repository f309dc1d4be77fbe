// A name server that knows one name.
package wirespeed.gateway.contract;

import java.io.IOException;
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.InetAddress;

/** Answers each question about an A record with addresses that are valid for a second. */
final class NameServer implements AutoCloseable {
    private final DatagramSocket socket =
            new DatagramSocket(0, InetAddress.getLoopbackAddress());
    volatile int last;
    /** Another address of the name; 0 for none. */
    volatile int more;
    /** Further addresses behind these two. */
    volatile int[] others = {};
    volatile boolean isSilent;
    /** RFC 1035 4.1.1: 0 for an answer, 2 for a fault of the server, 3 for no such name. */
    volatile int code;

    NameServer(int last) throws IOException {
        this.last = last;
        Thread thread = new Thread(this::serve, "names");
        thread.setDaemon(true);
        thread.start();
    }

    int port() {
        return socket.getLocalPort();
    }

    private void serve() {
        byte[] bytes = new byte[512];
        try {
            while (true) {
                DatagramPacket packet = new DatagramPacket(bytes, bytes.length);
                socket.receive(packet);
                if (!isSilent) {
                    packet.setData(answer(bytes));
                    socket.send(packet);
                }
                packet.setData(bytes);
            }
        } catch (IOException closed) {
            // The test is over.
        }
    }

    /** RFC 1035 §4: the question comes back with answers that point to its name. */
    private byte[] answer(byte[] question) {
        int end = 12;
        while (question[end] != 0) {
            end += question[end] + 1;
        }
        boolean isForA = question[end + 2] == 1;
        end += 5;
        int[] further = others;
        int count = !isForA || code != 0 ? 0 : more == 0 ? 1 : 2 + further.length;
        byte[] answer = java.util.Arrays.copyOf(question, end + 16 * count);
        answer[2] = (byte) 0x85;
        answer[3] = (byte) (0x80 | code);
        answer[7] = (byte) count;
        answer[9] = 0;
        answer[11] = 0;
        for (int i = 0; i < count; i++) {
            byte[] record = {(byte) 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0,
                (byte) (i == 0 ? last : i == 1 ? more : further[i - 2])};
            System.arraycopy(record, 0, answer, end + 16 * i, record.length);
        }
        return answer;
    }

    @Override
    public void close() {
        socket.close();
    }
}
