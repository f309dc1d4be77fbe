/** Errors on the command line, and the one line for each. */
package wirespeed.httpserver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class OptionsTest {
    /** The page shows the help unchanged; this test ensures it. */
    @Test
    void the_documentation_shows_this_help() throws Exception {
        Path page = Path.of(System.getProperty("basedir", "."), "../../docs/http-server.md");
        String text = Files.readString(page);
        assertTrue(text.contains("```text\n" + Settings.help() + "```"),
                "docs/http-server.md shows another help than --help of http-server");
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', value = {
        "                               | give one of --root DIR and --payload SIZE",
        "--payload 1 --root /           | give one of --root DIR and --payload SIZE",
        "--prt 1                        | --prt is not an option; did you mean --port?",
        "--colour                       | --colour is not an option; --help lists the options",
        "--port                         | --port needs a value: --port PORT",
        "--port x --payload 1           | --port x: give a number from 0 to 65535",
        "--port 65536 --payload 1       | --port 65536: give a number from 0 to 65535",
        "--port 1 --port 2 --payload 1  | --port is given twice; give it once",
        "--threads 0 --payload 1        | --threads 0: give a number from 1 to 1024",
        "--transport kqueue --payload 1 | --transport kqueue: give nio, epoll or io_uring",
        "--payload 1x                   | --payload 1x: give a size from 0 to 16MiB, as in 128, 1KiB, 10MiB",
        "--payload -1                   | --payload -1: give a size from 0 to 16MiB, as in 128, 1KiB, 10MiB",
        "--payload 17MiB                | --payload 17MiB: give a size from 0 to 16MiB, as in 128, 1KiB, 10MiB",
        "--root /nowhere                | --root /nowhere: is not a folder; name one that exists",
        "--payload 1 --validators       | --validators needs --root DIR; a payload has no date",
        "--validators=yes --payload 1   | --validators takes no value",
        "--payload 1 word               | word: unexpected argument; --help lists the options"})
    void a_mistake_is_one_line_that_says_what_is_valid(String line, String message) {
        String[] args = line == null ? new String[0] : line.strip().split(" +");
        BadUsage mistake = assertThrows(BadUsage.class,
                () -> Settings.of(new CommandLine(Settings.OPTIONS, args)));
        assertEquals(message, mistake.getMessage());
    }

    @Test
    void options_are_read_in_both_spellings() {
        Settings settings = Settings.of(new CommandLine(Settings.OPTIONS, "--payload=1KiB", "--port",
                "81", "--transport=io_uring", "--threads", "3", "--host", "::1"));
        assertEquals(new Settings("::1", 81, null, 1024, Transport.IO_URING, 3, false), settings);
    }

    @Test
    void help_names_each_option_once_with_its_default() {
        String help = Settings.help();
        for (Option<?> option : Settings.OPTIONS) {
            assertTrue(help.contains("--" + option.name()), option.name());
        }
        assertTrue(help.contains("(default 8080)"), help);
    }

    @Test
    void payload_files_hold_the_bytes_of_the_payload(@TempDir Path folder) throws Exception {
        PayloadMaker.make(folder.resolve("new"), java.util.List.of("0", "16", "70KiB"));
        assertEquals(0, Files.size(folder.resolve("new/0")));
        assertTrue(java.util.Arrays.equals(PayloadMaker.payload(70 * 1024),
                Files.readAllBytes(folder.resolve("new/70KiB"))));
        assertThrows(BadUsage.class,
                () -> PayloadMaker.make(folder.resolve("none"), java.util.List.of("16", "x")));
        assertTrue(Files.notExists(folder.resolve("none")));
    }
}
