// The corpus of requests that servers are known to read differently.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.TestInstance;

/** Each case whole and in small pieces, with a request behind it; all at one gateway. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class CorpusContract implements CarrierChoice {
    private static final String BEHIND = "GET /behind HTTP/1.1\r\nHost: a\r\n\r\n";
    private static final Path FOLDER = Path.of("src/test/resources/corpus");

    private RecordingOrigin origin;
    private Carrier gateway;

    record Case(String name, int status, String bytes) {
    }

    @BeforeAll
    void open() throws IOException {
        origin = new RecordingOrigin();
        gateway = new Carrier(factory(), options(), "[origins.o]\naddresses = [\"127.0.0.1:"
                + origin.port() + "\"]\n");
    }

    @AfterAll
    void close() throws IOException {
        gateway.close();
        origin.close();
    }

    @TestFactory
    Stream<DynamicTest> corpus() throws IOException {
        List<Case> cases = cases();
        assertTrue(cases.size() > 300, "the corpus is incomplete: " + cases.size());
        return cases.stream().map(one -> DynamicTest.dynamicTest(one.name(), () -> run(one)));
    }

    /** Those with a file each, and those of the tables. */
    static List<Case> cases() throws IOException {
        List<Case> cases = new ArrayList<>();
        try (Stream<Path> files = Files.list(FOLDER)) {
            for (Path file : files.sorted().toList()) {
                if (file.toString().endsWith(".cases")) {
                    table(Files.readAllLines(file), cases);
                } else {
                    cases.add(single(file));
                }
            }
        }
        return cases;
    }

    private static Case single(Path file) throws IOException {
        int status = 0;
        StringBuilder bytes = new StringBuilder();
        for (String line : Files.readAllLines(file)) {
            if (line.startsWith("# status: ")) {
                status = Integer.parseInt(line.substring(10));
            } else if (!line.startsWith("#")) {
                bytes.append(unescape(line));
            }
        }
        return new Case(file.getFileName().toString(), status, bytes.toString());
    }

    /** A line "== STATUS WHAT" for each case, and its bytes below. */
    private static void table(List<String> lines, List<Case> cases) {
        for (String line : lines) {
            if (line.startsWith("== ")) {
                cases.add(new Case(line.substring(7), Integer.parseInt(line.substring(3, 6)), ""));
            } else if (!line.startsWith("#")) {
                Case last = cases.remove(cases.size() - 1);
                cases.add(new Case(last.name(), last.status(), last.bytes() + unescape(line)));
            }
        }
    }

    /** With \\r, \\n, \\t and \\xHH for the bytes that a file of text cannot hold. */
    static String unescape(String line) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < line.length(); i++) {
            char c = line.charAt(i);
            if (c != '\\') {
                text.append(c);
                continue;
            }
            i++;
            switch (line.charAt(i)) {
                case 'r' -> text.append('\r');
                case 'n' -> text.append('\n');
                case 't' -> text.append('\t');
                case 'x' -> {
                    text.append((char) Integer.parseInt(line.substring(i + 1, i + 3), 16));
                    i += 2;
                }
                default -> text.append(line.charAt(i));
            }
        }
        return text.toString();
    }

    private void run(Case one) throws IOException {
        // A long case in single bytes says nothing that its middle pieces do not say.
        int small = one.bytes().length() > 4000 ? 997 : 1;
        for (int piece : new int[] {Integer.MAX_VALUE / 2, small, 7}) {
            origin.seen.clear();
            try (RawClient client = gateway.client()) {
                check(one, client, piece);
            }
        }
    }

    private void check(Case one, RawClient client, int piece) {
        client.sendTolerant(one.bytes() + BEHIND, piece);
        RawClient.Answer answer = client.read();
        String what = one.name() + " in pieces of " + piece + ": " + answer.head();
        if (one.status() == 200) {
            assertEquals(200, answer.status(), what);
            assertEquals(200, client.read().status(), what + "; the request behind");
            assertEquals(2, origin.seen.size(), what);
            assertEquals("GET /behind HTTP/1.1", origin.seen.get(1).line());
        } else {
            assertEquals(one.status(), answer.status(), what);
            assertTrue(client.isClosed(), what + "; must close");
            // A request that breaks off in its body does not count there.
            assertTrue(origin.seen.isEmpty(), what + "; reached the origin: " + origin.seen);
        }
    }
}
