// A DNS server that gives all names the same addresses.
package wirespeed.gateway.contract;

import java.io.IOException;
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.util.concurrent.atomic.AtomicInteger;

/** Its answers are valid for a second, those about addresses for {@link #seconds}. */
final class NameServer implements AutoCloseable {
    private final DatagramSocket socket =
            new DatagramSocket(0, InetAddress.getLoopbackAddress());
    volatile int last;
    /** Another address of the name; 0 for none. */
    volatile int more;
    /** Further addresses behind these two. */
    volatile int[] others = {};
    volatile boolean isSilent;
    /** The network loses each question when it is sent for the first time. */
    volatile boolean isFirstLost;
    /** The server of a service, by its label, about whose addresses nothing is answered. */
    volatile char silentAbout;
    /** Questions about the servers of a service. */
    final AtomicInteger services = new AtomicInteger();
    /** Questions about IPv4 addresses. */
    final AtomicInteger addresses = new AtomicInteger();
    /** How long these are valid, at most 127. */
    volatile int seconds = 1;
    private int lastNumber = -1;
    /** Priority, weight and port of each server of every service; their names are those of addresses. */
    volatile int[][] targets = {};
    /** Sends before each answer one with another address, to another question. */
    volatile boolean isForged;
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
                if (isLost(bytes)) {
                    continue;
                }
                if (isForged) {
                    byte[] other = answer(bytes);
                    other[13] = 'x';
                    other[other.length - 1] = 99;
                    packet.setData(other);
                    socket.send(packet);
                }
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

    private boolean isLost(byte[] question) {
        int number = (question[0] & 0xff) << 8 | question[1] & 0xff;
        boolean isFirst = number != lastNumber;
        lastNumber = number;
        return isFirstLost && isFirst || question[12] == 1 && question[13] == silentAbout;
    }

    /** RFC 1035 §4: the question comes back with answers that point to its name. */
    private byte[] answer(byte[] question) {
        int end = 12;
        while (question[end] != 0) {
            end += question[end] + 1;
        }
        boolean isForA = question[end + 2] == 1;
        if (question[end + 2] == 33) {
            services.incrementAndGet();
            return services(question, end + 5);
        }
        if (isForA) {
            addresses.incrementAndGet();
        }
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
            byte[] record = {(byte) 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, (byte) seconds, 0, 4, 127, 0, 0,
                (byte) (i == 0 ? last : i == 1 ? more : further[i - 2])};
            System.arraycopy(record, 0, answer, end + 16 * i, record.length);
        }
        return answer;
    }

    /** RFC 2782: each target is a label before the name that was asked for. */
    private byte[] services(byte[] question, int end) {
        int[][] all = targets;
        int length = 12 + 6 + 4;
        byte[] answer = java.util.Arrays.copyOf(question, end + length * all.length);
        answer[2] = (byte) 0x85;
        answer[3] = (byte) 0x80;
        answer[7] = (byte) all.length;
        answer[9] = 0;
        answer[11] = 0;
        for (int i = 0; i < all.length; i++) {
            byte[] record = {(byte) 0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 1, 0, 10, (byte) (all[i][0] >> 8),
                (byte) all[i][0], (byte) (all[i][1] >> 8), (byte) all[i][1], (byte) (all[i][2] >> 8),
                (byte) all[i][2], 1, (byte) ('a' + i), (byte) 0xc0, 12};
            System.arraycopy(record, 0, answer, end + length * i, record.length);
        }
        return answer;
    }

    @Override
    public void close() {
        socket.close();
    }
}
