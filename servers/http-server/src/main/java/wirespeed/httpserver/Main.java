/** Entry point: reads the command line, then serves until it is stopped. */
package wirespeed.httpserver;

import java.io.IOException;
import java.util.Arrays;
import sun.misc.Signal;

/** The HTTP server under test. */
public final class Main {
    private Main() {
    }

    /** Runs until SIGTERM or SIGINT; exit codes are in the help. */
    public static void main(String[] args) {
        try {
            run(args);
        } catch (BadUsage mistake) {
            fail(2, mistake.getMessage());
        } catch (IOException failure) {
            fail(1, failure.getMessage());
        }
    }

    private static void run(String... args) throws IOException {
        if (Arrays.asList(args).contains("--help")) {
            System.out.print(Settings.help());
            return;
        }
        CommandLine line = new CommandLine(Settings.OPTIONS, args);
        if (line.has(Settings.MAKE_PAYLOADS)) {
            PayloadMaker.make(line.get(Settings.MAKE_PAYLOADS), line.words());
            return;
        }
        Settings settings = Settings.of(line);
        Throwable unavailable = settings.transport().unavailable();
        if (unavailable != null) {
            throw new BadUsage("--transport " + settings.transport().word()
                    + " is not available here: " + Transport.reason(unavailable)
                    + "; --transport nio always is");
        }
        Server server = Server.start(settings);
        // A shutdown hook cannot choose the exit code: the JVM would exit with 143.
        Runnable stop = () -> {
            server.stop();
            System.exit(0);
        };
        for (String name : new String[] {"TERM", "INT"}) {
            Signal.handle(new Signal(name), signal -> {
                Thread thread = new Thread(stop, "stop");
                // It would be a daemon like the signal thread, and the JVM would end first.
                thread.setDaemon(false);
                thread.start();
            });
        }
        // Printed last: a program that reads it may send a signal at once.
        System.out.println("http-server: " + server.description());
    }

    private static void fail(int code, String message) {
        System.err.println("http-server: " + message);
        System.exit(code);
    }
}
