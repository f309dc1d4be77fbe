/** The corpus of requests: one file per case, whose name starts with the expected statuses. */
package wirespeed.httpserver;

import java.io.IOException;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;

/** {@code 405-400-chunk-size-empty.http}: the responses are 405, then 400. */
final class Corpus {
    private Corpus() {
    }

    /** One case. */
    record Case(String name, byte[] bytes) {
        List<Integer> statuses() {
            return Arrays.stream(name.split("-")).takeWhile(word -> word.matches("[2-5]\\d\\d"))
                    .map(Integer::valueOf).toList();
        }

        /** Whether further bytes on the connection must not get a response. */
        boolean isEnd() {
            int last = statuses().get(statuses().size() - 1);
            return name.endsWith("-closes") || name.contains("501-coding")
                    || last != 200 && last != 405 && last != 501;
        }

        @Override
        public String toString() {
            return name;
        }
    }

    static Stream<Case> cases() throws IOException, URISyntaxException {
        Path folder = Path.of(Corpus.class.getResource("/corpus").toURI());
        try (Stream<Path> files = Files.list(folder)) {
            return files.filter(file -> file.toString().endsWith(".http")).sorted().map(Corpus::read)
                    .toList().stream();
        }
    }

    private static Case read(Path file) {
        try {
            return new Case(file.getFileName().toString().replace(".http", ""),
                    Files.readAllBytes(file));
        } catch (IOException unreadable) {
            throw new java.io.UncheckedIOException(unreadable);
        }
    }
}
