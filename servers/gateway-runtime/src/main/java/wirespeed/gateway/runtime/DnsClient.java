// Asks DNS servers for addresses and services of a name, and how long they are valid (RFC 1035, 2782).
package wirespeed.gateway.runtime;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
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
    private static final int SOA = 6;
    private static final int AAAA = 28;
    private static final int SRV = 33;
    private static final int INTERNET = 1;
    private static final int RECURSION_DESIRED = 0x0100;
    private static final int RESPONSE = 0x8000;
    private static final int TRUNCATED = 0x0200;
    private static final int NO_SUCH_NAME = 3;
    private static final int TIMEOUT_MILLIS = 2000;
    /** After as long the question or its answer counts as lost, and is sent again. */
    private static final int RESEND_MILLIS = 500;
    private static final int DATAGRAM_BYTES = 4096;
    private static final int HEAD_BYTES = 12;
    private static final int LABEL_BYTES_MAX = 63;
    /** Of an answer; each one is checked, balanced and counted. */
    private static final int ADDRESSES_MAX = 256;
    private static final int TARGETS_MAX = 64;
    /** Priority, weight and port stand before the name of a target. */
    private static final int SRV_HEAD_BYTES = 6;
    private static final int JUMPS_MAX = 16;
    private static final int NAME_CHARS_MAX = 256;
    private static final SecureRandom RANDOM = new SecureRandom();

    /**
     * One record of an answer.
     *
     * @param at where its data begins in the message
     */
    private record Resource(int type, int seconds, int at, int length) {
    }

    /**
     * What a server said.
     *
     * @param absentSeconds how long the absence of further records is valid (RFC 2308 §5)
     */
    private record Answer(ByteBuffer message, List<Resource> resources, int absentSeconds) {
        List<Resource> of(int type) {
            return resources.stream().filter(one -> one.type() == type).toList();
        }

        /** The shortest time, also that of aliases on the way. */
        int seconds() {
            return resources.stream().mapToInt(Resource::seconds).min().orElse(Integer.MAX_VALUE);
        }
    }

    private final List<InetSocketAddress> servers;

    DnsClient(List<InetSocketAddress> servers) {
        this.servers = List.copyOf(servers);
    }

    @Override
    public EndpointResolver.Found find(String host) throws IOException {
        Answer ipv4 = ask(host, A);
        List<String> all = new ArrayList<>(addresses(ipv4, A));
        int seconds = ipv4.seconds();
        int absentSeconds = ipv4.absentSeconds();
        boolean isWhole = true;
        try {
            Answer ipv6 = ask(host, AAAA);
            all.addAll(addresses(ipv6, AAAA));
            seconds = Math.min(seconds, ipv6.seconds());
            absentSeconds = Math.min(absentSeconds, ipv6.absentSeconds());
        } catch (UnknownHostException none) {
            // Some servers say so of a name that has addresses of IPv4 only.
        } catch (IOException unanswered) {
            if (all.isEmpty()) {
                throw unanswered;
            }
            isWhole = false;
        }
        // Most names lack addresses of one kind, and need not be asked for soon because of that.
        return new EndpointResolver.Found(all, all.isEmpty() ? Math.min(seconds, absentSeconds) : seconds,
                isWhole);
    }

    @Override
    public EndpointResolver.Service findTargets(String service) throws IOException {
        Answer answer = ask(service, SRV);
        List<EndpointResolver.Target> targets = new ArrayList<>();
        IOException malformed = null;
        for (Resource one : answer.of(SRV)) {
            try {
                EndpointResolver.Target target = target(answer, one);
                if (target != null && targets.size() < TARGETS_MAX) {
                    targets.add(target);
                }
            } catch (IOException | IndexOutOfBoundsException | IllegalArgumentException bad) {
                String why = bad instanceof IndexOutOfBoundsException ? "its name does not end" : bad.getMessage();
                malformed = new IOException("a malformed SRV record: " + why, bad);
                ThrottledLog.line("the name " + service + ": a malformed SRV record is left out: " + why);
            }
        }
        if (targets.isEmpty() && malformed != null) {
            throw malformed;
        }
        boolean isAbsent = answer.of(SRV).isEmpty();
        return new EndpointResolver.Service(targets,
                isAbsent ? Math.min(answer.seconds(), answer.absentSeconds()) : answer.seconds());
    }

    /** RFC 2782; null for a lone dot, which says that the service is not offered. */
    private static EndpointResolver.Target target(Answer answer, Resource one) throws IOException {
        if (one.length() <= SRV_HEAD_BYTES) {
            throw new IOException("it is too short");
        }
        ByteBuffer message = answer.message();
        String name = name(message, one.at() + SRV_HEAD_BYTES);
        return name.isEmpty() ? null : new EndpointResolver.Target(name,
                message.getShort(one.at() + 4) & 0xffff, message.getShort(one.at()) & 0xffff,
                message.getShort(one.at() + 2) & 0xffff, answer.seconds());
    }

    /** Labels, each a length and its characters, or a pointer to some that came before. */
    private static String name(ByteBuffer message, int from) throws IOException {
        StringBuilder name = new StringBuilder();
        int jumps = 0;
        int at = from;
        for (int length = message.get(at) & 0xff; length != 0; length = message.get(at) & 0xff) {
            if (length >= 0xc0) {
                if (++jumps > JUMPS_MAX) {
                    throw new IOException("a name that leads to itself");
                }
                at = (length & 0x3f) << 8 | message.get(at + 1) & 0xff;
                continue;
            }
            for (int i = 1; i <= length; i++) {
                name.append((char) (message.get(at + i) & 0xff));
            }
            name.append('.');
            if (name.length() > NAME_CHARS_MAX) {
                throw new IOException("a name that is too long");
            }
            at += length + 1;
        }
        return name.length() == 0 ? "" : name.substring(0, name.length() - 1);
    }

    private Answer ask(String host, int type) throws IOException {
        IOException last = new IOException("no DNS server is configured");
        for (InetSocketAddress server : servers) {
            byte[] query = query(host, type);
            try {
                byte[] answer = byDatagram(server, query);
                boolean isTruncated = (ByteBuffer.wrap(answer).getShort(2) & TRUNCATED) != 0;
                return read(isTruncated ? byStream(server, query) : answer, query);
            } catch (UnknownHostException none) {
                throw none;
            } catch (IOException | BufferUnderflowException | IndexOutOfBoundsException
                    | IllegalArgumentException failed) {
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
            DatagramPacket question = new DatagramPacket(query, query.length);
            DatagramPacket answer = new DatagramPacket(new byte[DATAGRAM_BYTES], DATAGRAM_BYTES);
            long end = System.nanoTime() + TIMEOUT_MILLIS * 1_000_000L;
            socket.send(question);
            while (true) {
                socket.setSoTimeout(Math.min(RESEND_MILLIS, leftMillis(end)));
                answer.setLength(DATAGRAM_BYTES);
                try {
                    socket.receive(answer);
                } catch (SocketTimeoutException lost) {
                    socket.send(question);
                    continue;
                }
                if (answers(answer.getData(), answer.getLength(), query)) {
                    return Arrays.copyOf(answer.getData(), answer.getLength());
                }
            }
        }
    }

    private static int leftMillis(long endNanos) throws SocketTimeoutException {
        long left = (endNanos - System.nanoTime()) / 1_000_000;
        if (left <= 0) {
            throw new SocketTimeoutException("no answer in time");
        }
        return (int) left;
    }

    /** Its number, and the question word for word: whoever guesses the number has not seen the name. */
    private static boolean answers(byte[] bytes, int length, byte[] query) {
        if (length < query.length || bytes[0] != query[0] || bytes[1] != query[1]) {
            return false;
        }
        for (int i = HEAD_BYTES; i < query.length; i++) {
            if (lower(bytes[i]) != lower(query[i])) {
                return false;
            }
        }
        return true;
    }

    private static int lower(byte character) {
        return character >= 'A' && character <= 'Z' ? character + 'a' - 'A' : character;
    }

    private static byte[] byStream(InetSocketAddress server, byte[] query) throws IOException {
        try (Socket socket = new Socket()) {
            long end = System.nanoTime() + TIMEOUT_MILLIS * 1_000_000L;
            socket.connect(server, TIMEOUT_MILLIS);
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
            ByteArrayOutputStream framed = new ByteArrayOutputStream();
            framed.write(query.length >> 8);
            framed.write(query.length);
            framed.writeBytes(query);
            framed.writeTo(out);
            byte[] size = read(socket, 2, end);
            byte[] answer = read(socket, (size[0] & 0xff) << 8 | size[1] & 0xff, end);
            if (!answers(answer, answer.length, query)) {
                throw new IOException("an answer to another question");
            }
            return answer;
        }
    }

    /** All bytes by one deadline: a server that sends them singly must not hold the thread. */
    private static byte[] read(Socket socket, int count, long endNanos) throws IOException {
        byte[] bytes = new byte[count];
        for (int filled = 0; filled < count;) {
            socket.setSoTimeout(leftMillis(endNanos));
            int read = socket.getInputStream().read(bytes, filled, count - filled);
            if (read < 0) {
                throw new EOFException("the server closed within its answer");
            }
            filled += read;
        }
        return bytes;
    }

    /** The addresses of an answer, whatever alias they have. */
    private static List<String> addresses(Answer answer, int type) {
        return answer.of(type).stream().filter(one -> one.length() == (type == A ? 4 : 16))
                .limit(ADDRESSES_MAX).map(one -> IpAddress.text(Arrays.copyOfRange(
                        answer.message().array(), one.at(), one.at() + one.length()))).toList();
    }

    private static Answer read(byte[] bytes, byte[] query) throws IOException {
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
        List<Resource> resources = resources(answer, answer.getShort(6) & 0xffff);
        return new Answer(answer, resources, absentSeconds(answer));
    }

    /** The records of the section that begins here. */
    private static List<Resource> resources(ByteBuffer answer, int count) {
        List<Resource> resources = new ArrayList<>();
        for (int left = count; left > 0; left--) {
            skipName(answer);
            int type = answer.getShort();
            answer.getShort();
            int seconds = Math.max(0, answer.getInt());
            int length = answer.getShort() & 0xffff;
            resources.add(new Resource(type, seconds, answer.position(), length));
            answer.position(answer.position() + length);
        }
        return resources;
    }

    /** RFC 2308 §5: the zone says it behind the answers; 0 where it does not. */
    private static int absentSeconds(ByteBuffer answer) {
        try {
            return resources(answer, answer.getShort(8) & 0xffff).stream()
                    .filter(one -> one.type() == SOA && one.length() > Integer.BYTES)
                    .mapToInt(one -> Math.min(one.seconds(), Math.max(0,
                            answer.getInt(one.at() + one.length() - Integer.BYTES)))).min().orElse(0);
        } catch (BufferUnderflowException | IndexOutOfBoundsException | IllegalArgumentException malformed) {
            return 0;
        }
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
