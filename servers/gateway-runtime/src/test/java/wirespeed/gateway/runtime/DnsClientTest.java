// Answers of DNS servers about a service, some records of which are malformed.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Test;

class DnsClientTest {
    private static final byte[] WHOLE = record(8080, "a.test");

    /** The data of a SRV record: priority 1, weight 2, port, and the labels of a name. */
    private static byte[] record(int port, String name) {
        ByteArrayOutputStream data = new ByteArrayOutputStream();
        data.writeBytes(new byte[] {0, 1, 0, 2, (byte) (port >> 8), (byte) port});
        for (String label : name.split("\\.")) {
            data.write(label.length());
            data.writeBytes(label.getBytes(StandardCharsets.ISO_8859_1));
        }
        data.write(0);
        return data.toByteArray();
    }

    /** What a client reads of these records. */
    private static List<EndpointResolver.Target> find(byte[]... records) throws Exception {
        return ask(client -> client.findTargets("_http._tcp.shop.test"), question -> answer(question, records))
                .targets();
    }

    private interface Question<T> {
        T ask(DnsClient client) throws IOException;
    }

    private static <T> T ask(Question<T> question, UnaryOperator<byte[]> answers) throws Exception {
        try (DatagramSocket server = new DatagramSocket(0, InetAddress.getLoopbackAddress())) {
            Thread thread = new Thread(() -> serve(server, answers), "names");
            thread.setDaemon(true);
            thread.start();
            return question.ask(new DnsClient(List.of((InetSocketAddress) server.getLocalSocketAddress())));
        }
    }

    private static void serve(DatagramSocket server, UnaryOperator<byte[]> answers) {
        byte[] bytes = new byte[512];
        try {
            while (true) {
                DatagramPacket packet = new DatagramPacket(bytes, bytes.length);
                server.receive(packet);
                byte[] question = Arrays.copyOf(bytes, packet.getLength());
                packet.setData(answers.apply(question));
                server.send(packet);
            }
        } catch (IOException closed) {
            // The test is over.
        }
    }

    private static byte[] answer(byte[] question, byte[][] records) {
        ByteArrayOutputStream answer = new ByteArrayOutputStream();
        question[2] = (byte) 0x85;
        question[3] = (byte) 0x80;
        question[7] = (byte) records.length;
        answer.writeBytes(question);
        for (byte[] data : records) {
            answer.writeBytes(new byte[] {(byte) 0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 9, 0, (byte) data.length});
            answer.writeBytes(data);
        }
        return answer.toByteArray();
    }

    @Test
    void a_malformed_record_of_a_service_does_not_take_the_others_with_it() throws Exception {
        List<EndpointResolver.Target> whole = List.of(new EndpointResolver.Target("a.test", 8080, 1, 2, 9));
        byte[] endless = {0, 1, 0, 2, 31, (byte) 144, 63, 'b'};
        byte[] outside = {0, 1, 0, 2, 31, (byte) 144, (byte) 0xff, (byte) 0xff};
        for (byte[] bad : List.of(new byte[] {0, 1}, endless, outside, record(0, "b.test"),
                record(80, "b\n.test"), record(80, "b:80.test"))) {
            assertEquals(whole, find(WHOLE, bad), Arrays.toString(bad));
            assertEquals(whole, find(bad, WHOLE), Arrays.toString(bad));
            assertThrows(IOException.class, () -> find(bad), Arrays.toString(bad));
        }
    }

    /** RFC 2308 §5: an answer without records says in the zone's SOA how long it is valid. */
    private static byte[] absent(byte[] question, int seconds, int minimum) {
        ByteArrayOutputStream answer = new ByteArrayOutputStream();
        answer.writeBytes(answer(question, new byte[0][]));
        answer.writeBytes(new byte[] {(byte) 0xc0, 12, 0, 6, 0, 1, 0, 0, 0, (byte) seconds, 0, 24,
            (byte) 0xc0, 12, (byte) 0xc0, 12});
        answer.writeBytes(new byte[19]);
        answer.write(minimum);
        byte[] whole = answer.toByteArray();
        whole[9] = 1;
        return whole;
    }

    private static byte[] address(byte[] question, int seconds) {
        ByteArrayOutputStream answer = new ByteArrayOutputStream();
        answer.writeBytes(answer(question, new byte[0][]));
        answer.writeBytes(new byte[] {(byte) 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, (byte) seconds, 0, 4, 10, 0, 0, 1});
        byte[] whole = answer.toByteArray();
        whole[7] = 1;
        return whole;
    }

    private static boolean isForIpv4(byte[] question) {
        return question[question.length - 3] == 1;
    }

    @Test
    void that_a_name_has_no_addresses_is_valid_as_long_as_its_zone_says() throws Exception {
        Question<EndpointResolver.Found> name = client -> client.find("shop.test");
        assertEquals(5, ask(name, question -> absent(question, 5, 60)).seconds());
        assertEquals(7, ask(name, question -> absent(question, 60, 7)).seconds());
        assertEquals(0, ask(name, question -> answer(question, new byte[0][])).seconds());
        assertEquals(0, ask(name, question -> Arrays.copyOf(absent(question, 60, 60), question.length + 20)).seconds());
        EndpointResolver.Found found = ask(name, question -> isForIpv4(question) ? address(question, 20)
                : absent(question, 5, 5));
        assertEquals(List.of("10.0.0.1"), found.literals());
        assertEquals(20, found.seconds());
    }

    @Test
    void that_there_is_no_such_service_is_valid_as_long_as_its_zone_says() throws Exception {
        Question<EndpointResolver.Service> service = client -> client.findTargets("_http._tcp.shop.test");
        assertEquals(new EndpointResolver.Service(List.of(), 6), ask(service, question -> absent(question, 6, 60)));
        assertEquals(new EndpointResolver.Service(List.of(), 0),
                ask(service, question -> answer(question, new byte[0][])));
        assertEquals(9, ask(service, question -> answer(question, new byte[][] {WHOLE})).seconds());
    }

    @Test
    void a_lone_dot_says_that_there_is_no_such_service() throws Exception {
        assertEquals(List.of(), find(new byte[] {0, 0, 0, 0, 0, 0, 0}));
    }
}
