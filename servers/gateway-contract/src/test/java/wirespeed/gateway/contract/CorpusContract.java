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
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** Each case whole and in small pieces, with a request behind it. */
abstract class CorpusContract implements CarrierChoice {
    private static final String BEHIND = "GET /behind HTTP/1.1\r\nHost: a\r\n\r\n";

    /** Whether a refusal must have exactly the status of the case; else any refusal will do. */
    boolean isExact() {
        return true;
    }

    record Case(String name, int status, String bytes) {
    }

    @TestFactory
    Stream<DynamicTest> corpus() throws IOException {
        List<Case> cases = cases();
        assertTrue(cases.size() > 60, "the corpus is incomplete: " + cases.size());
        return cases.stream().map(one -> DynamicTest.dynamicTest(one.name(), () -> run(one)));
    }

    static List<Case> cases() throws IOException {
        List<Case> cases = new ArrayList<>();
        try (Stream<Path> files = Files.list(Path.of("src/test/resources/corpus"))) {
            for (Path file : files.sorted().toList()) {
                int status = 0;
                StringBuilder bytes = new StringBuilder();
                for (String line : Files.readAllLines(file)) {
                    if (line.startsWith("# status: ")) {
                        status = Integer.parseInt(line.substring(10));
                    } else if (!line.startsWith("#")) {
                        bytes.append(unescape(line));
                    }
                }
                cases.add(new Case(file.getFileName().toString(), status, bytes.toString()));
            }
        }
        return cases;
    }

    private static String unescape(String line) {
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
        try (RecordingOrigin origin = new RecordingOrigin();
                Carrier gateway = new Carrier(factory(), options(), "[origins.o]\naddresses ="
                        + " [\"127.0.0.1:" + origin.port() + "\"]\n")) {
            // A long case in single bytes says nothing that its middle pieces do not say.
            int small = one.bytes().length() > 4000 ? 997 : 1;
            for (int piece : new int[] {Integer.MAX_VALUE / 2, small, 7}) {
                try (RawClient client = gateway.client()) {
                    check(one, client, origin, piece);
                }
                origin.seen.clear();
            }
        }
    }

    private void check(Case one, RawClient client, RecordingOrigin origin, int piece) {
        client.sendTolerant(one.bytes() + BEHIND, piece);
        RawClient.Answer answer = client.read();
        String what = one.name() + " in pieces of " + piece + ": " + answer.head();
        if (one.status() == 200) {
            assertEquals(200, answer.status(), what);
            assertEquals(200, client.read().status(), what + "; the request behind");
            assertEquals(2, origin.seen.size(), what);
            assertEquals("GET /behind HTTP/1.1", origin.seen.get(1).line());
        } else if (isExact()) {
            assertEquals(one.status(), answer.status(), what);
            assertTrue(client.isClosed(), what + "; must close");
            assertTrue(reached(one, origin), what + "; reached the origin: " + origin.seen);
        } else {
            lenient(answer, client, origin, what);
        }
        assertTrue(origin.seen.stream().noneMatch(seen -> seen.line().contains("/smuggled")), what);
    }

    /** A body is refused when its head was passed on already; it never becomes a whole request. */
    private static boolean reached(Case one, RecordingOrigin origin) {
        return origin.seen.isEmpty();
    }

    /** The parser of this carrier decides; whatever it lets through must be unambiguous. */
    private static void lenient(RawClient.Answer answer, RawClient client, RecordingOrigin origin,
            String what) {
        boolean isRefused = answer.status() >= 400 || answer.status() == 0;
        if (!isRefused) {
            for (RecordingOrigin.Seen seen : origin.seen) {
                boolean hasBoth = seen.header("Content-Length") != null
                        && seen.header("Transfer-Encoding") != null;
                assertTrue(!hasBoth && !seen.head().contains("\n "), what + seen.head());
            }
        }
    }
}
