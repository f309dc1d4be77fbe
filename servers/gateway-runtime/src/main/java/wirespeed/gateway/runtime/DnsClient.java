// Asks name servers for the addresses of a name, and how long they are valid (RFC 1035).
package wirespeed.gateway.runtime;

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.UnknownHostException;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import wirespeed.gateway.core.IpAddress;

/** One server after the other; by TCP where an answer does not fit into a datagram. Blocks. */
final class DnsClient implements EndpointResolver.Lookup {
    private static final int A = 1;
    private static final int AAAA = 28;
    private static final int INTERNET = 1;
    private static final int RECURSION_DESIRED = 0x0100;
    private static final int RESPONSE = 0x8000;
    private static final int TRUNCATED = 0x0200;
    private static final int NO_SUCH_NAME = 3;
    private static final int TIMEOUT_MILLIS = 2000;
    private static final int DATAGRAM_BYTES = 4096;
    private static final int HEAD_BYTES = 12;
    private static final int LABEL_BYTES_MAX = 63;
    private static final SecureRandom RANDOM = new SecureRandom();

    private final List<InetSocketAddress> servers;

    DnsClient(List<InetSocketAddress> servers) {
        this.servers = List.copyOf(servers);
    }

    @Override
    public EndpointResolver.Found find(String host) throws IOException {
        EndpointResolver.Found ipv4 = ask(host, A);
        EndpointResolver.Found ipv6;
        try {
            ipv6 = ask(host, AAAA);
        } catch (IOException none) {
            if (ipv4.literals().isEmpty()) {
                throw none;
            }
            return ipv4;
        }
        List<String> all = new ArrayList<>(ipv4.literals());
        all.addAll(ipv6.literals());
        return new EndpointResolver.Found(all, Math.min(ipv4.seconds(), ipv6.seconds()));
    }

    private EndpointResolver.Found ask(String host, int type) throws IOException {
        IOException last = new IOException("no DNS server is configured");
        for (InetSocketAddress server : servers) {
            byte[] query = query(host, type);
            try {
                byte[] answer = byDatagram(server, query);
                boolean isTruncated = (ByteBuffer.wrap(answer).getShort(2) & TRUNCATED) != 0;
                return read(isTruncated ? byStream(server, query) : answer, query, type);
            } catch (UnknownHostException none) {
                throw none;
            } catch (IOException | BufferUnderflowException | IndexOutOfBoundsException failed) {
                last = new IOException(server + ": " + failed, failed);
            }
        }
        throw last;
    }

    private static byte[] query(String host, int type) throws UnknownHostException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        ByteBuffer head = ByteBuffer.allocate(HEAD_BYTES);
        head.putShort((short) RANDOM.nextInt()).putShort((short) RECURSION_DESIRED)
                .putShort((short) 1);
        bytes.writeBytes(head.array());
        String name = host.endsWith(".") ? host.substring(0, host.length() - 1) : host;
        for (String label : name.split("\\.", -1)) {
            byte[] text = label.getBytes(StandardCharsets.US_ASCII);
            if (text.length == 0 || text.length > LABEL_BYTES_MAX) {
                throw new UnknownHostException("\"" + host + "\" is not a name");
            }
            bytes.write(text.length);
            bytes.writeBytes(text);
        }
        bytes.writeBytes(new byte[] {0, 0, (byte) type, 0, INTERNET});
        return bytes.toByteArray();
    }

    /** From a port of its own, connected: what others send does not arrive. */
    private static byte[] byDatagram(InetSocketAddress server, byte[] query) throws IOException {
        try (DatagramSocket socket = new DatagramSocket()) {
            socket.connect(server);
            socket.send(new DatagramPacket(query, query.length));
            long end = System.nanoTime() + TIMEOUT_MILLIS * 1_000_000L;
            DatagramPacket answer = new DatagramPacket(new byte[DATAGRAM_BYTES], DATAGRAM_BYTES);
            do {
                socket.setSoTimeout((int) Math.max(1, (end - System.nanoTime()) / 1_000_000));
                socket.receive(answer);
            } while (!answers(answer.getData(), answer.getLength(), query)
                    && System.nanoTime() - end < 0);
            return Arrays.copyOf(answer.getData(), answer.getLength());
        }
    }

    private static boolean answers(byte[] bytes, int length, byte[] query) {
        return length >= query.length && bytes[0] == query[0] && bytes[1] == query[1];
    }

    private static byte[] byStream(InetSocketAddress server, byte[] query) throws IOException {
        try (Socket socket = new Socket()) {
            socket.connect(server, TIMEOUT_MILLIS);
            socket.setSoTimeout(TIMEOUT_MILLIS);
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
            ByteArrayOutputStream framed = new ByteArrayOutputStream();
            framed.write(query.length >> 8);
            framed.write(query.length);
            framed.writeBytes(query);
            framed.writeTo(out);
            DataInputStream in = new DataInputStream(socket.getInputStream());
            byte[] answer = in.readNBytes(in.readUnsignedShort());
            if (!answers(answer, answer.length, query)) {
                throw new IOException("an answer to another question");
            }
            return answer;
        }
    }

    /** The addresses of an answer, whatever alias they have; its shortest time counts for all. */
    private static EndpointResolver.Found read(byte[] bytes, byte[] query, int type)
            throws IOException {
        ByteBuffer answer = ByteBuffer.wrap(bytes);
        int flags = answer.getShort(2) & 0xffff;
        int code = flags & 0xf;
        boolean isSameQuestion = answers(bytes, bytes.length, query) && (flags & RESPONSE) != 0
                && answer.getShort(4) == 1;
        if (!isSameQuestion || code != 0 && code != NO_SUCH_NAME) {
            throw new IOException("the server failed, code " + code);
        }
        if (code == NO_SUCH_NAME) {
            throw new UnknownHostException("the name does not exist");
        }
        answer.position(query.length);
        List<String> literals = new ArrayList<>();
        int seconds = Integer.MAX_VALUE;
        for (int left = answer.getShort(6) & 0xffff; left > 0; left--) {
            skipName(answer);
            int kind = answer.getShort();
            answer.getShort();
            seconds = Math.min(seconds, Math.max(0, answer.getInt()));
            byte[] data = new byte[answer.getShort() & 0xffff];
            answer.get(data);
            if (kind == type && data.length == (type == A ? 4 : 16)) {
                literals.add(IpAddress.text(data));
            }
        }
        return new EndpointResolver.Found(literals, seconds);
    }

    /** Labels, or a pointer to some that came before. */
    private static void skipName(ByteBuffer answer) {
        int length = answer.get() & 0xff;
        while (length != 0) {
            if (length >= 0xc0) {
                answer.get();
                return;
            }
            answer.position(answer.position() + length);
            length = answer.get() & 0xff;
        }
    }
}
