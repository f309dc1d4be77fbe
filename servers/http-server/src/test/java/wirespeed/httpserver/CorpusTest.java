/** Replays the corpus on each transport: whole, byte by byte, and split everywhere. */
package wirespeed.httpserver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.embedded.EmbeddedChannel;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

class CorpusTest {
    private static final String SECOND = RawClient.get("/second");

    @ParameterizedTest
    @EnumSource(Transport.class)
    void each_case_gets_its_responses_and_nothing_after_an_error(Transport transport)
            throws Exception {
        List<String> wrong = new ArrayList<>();
        try (Running server = Running.payload(transport, 16)) {
            for (Corpus.Case each : Corpus.cases().toList()) {
                check(each, answers(server, each, false), "whole", wrong);
            }
        }
        assertEquals(List.of(), wrong);
    }

    @ParameterizedTest
    @EnumSource(Transport.class)
    void each_case_gets_the_same_responses_byte_by_byte(Transport transport) throws Exception {
        List<String> wrong = new ArrayList<>();
        try (Running server = Running.payload(transport, 16)) {
            for (Corpus.Case each : Corpus.cases().filter(c -> c.bytes().length < 600).toList()) {
                check(each, answers(server, each, true), "byte by byte", wrong);
            }
        }
        assertEquals(List.of(), wrong);
    }

    static Stream<Corpus.Case> cases() throws Exception {
        return Corpus.cases();
    }

    @ParameterizedTest
    @MethodSource("cases")
    void each_case_gets_the_same_responses_wherever_it_is_split(Corpus.Case each) {
        List<String> wrong = new ArrayList<>();
        int step = Math.max(1, each.bytes().length / 600);
        for (int split = 0; split <= each.bytes().length; split += step) {
            check(each, embedded(each.bytes(), split), "split at " + split, wrong);
        }
        assertEquals(List.of(), wrong);
    }

    @Test
    void the_corpus_is_there() throws Exception {
        assertTrue(Corpus.cases().count() > 150);
    }

    private static void check(Corpus.Case each, List<Integer> answers, String how,
                              List<String> wrong) {
        List<Integer> expected = new ArrayList<>(each.statuses());
        if (!each.isEnd()) {
            expected.add(200);
        }
        if (!answers.equals(expected)) {
            wrong.add(each.name() + " " + how + ": " + answers + " instead of " + expected);
        }
    }

    private static List<Integer> answers(Running server, Corpus.Case each, boolean byteByByte)
            throws IOException {
        try (RawClient client = server.connect()) {
            if (byteByByte) {
                for (byte one : each.bytes()) {
                    client.send(new byte[] {one});
                }
                client.send(SECOND);
            } else {
                client.send(each.name().isEmpty() ? new byte[0] : join(each.bytes()));
            }
            client.finish();
            return client.readAll().stream().map(RawClient.Response::status).toList();
        }
    }

    private static byte[] join(byte[] first) {
        byte[] second = SECOND.getBytes(StandardCharsets.US_ASCII);
        byte[] both = java.util.Arrays.copyOf(first, first.length + second.length);
        System.arraycopy(second, 0, both, first.length, second.length);
        return both;
    }

    private static List<Integer> embedded(byte[] bytes, int split) {
        Settings settings = Running.settings(Transport.NIO, null, 16, false);
        EmbeddedChannel channel = new EmbeddedChannel();
        Loop loop = new Loop(channel.eventLoop(), new Payload(16), settings);
        loop.tick();
        channel.pipeline().addLast(new Connection(loop));
        channel.pipeline().fireChannelActive();
        for (byte[] part : new byte[][] {java.util.Arrays.copyOfRange(bytes, 0, split),
            java.util.Arrays.copyOfRange(bytes, split, bytes.length),
            SECOND.getBytes(StandardCharsets.US_ASCII)}) {
            if (channel.isOpen()) {
                channel.writeInbound(Unpooled.wrappedBuffer(part));
            }
        }
        StringBuilder sent = new StringBuilder();
        for (ByteBuf out = channel.readOutbound(); out != null; out = channel.readOutbound()) {
            sent.append(out.toString(StandardCharsets.ISO_8859_1));
            out.release();
        }
        channel.finishAndReleaseAll();
        loop.content.close();
        List<Integer> statuses = new ArrayList<>();
        Matcher lines = Pattern.compile("HTTP/1\\.1 (\\d{3}) ").matcher(sent);
        while (lines.find()) {
            statuses.add(Integer.valueOf(lines.group(1)));
        }
        return statuses;
    }
}
