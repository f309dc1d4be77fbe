// Hears what the gateway writes into its own log.
package wirespeed.gateway.contract;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;

/**
 * Warnings and worse, of the whole process, until it is closed. What a garbage collection finds lost
 * is kept apart: it may be another test's, whose gateway was closed with something in its hands.
 */
final class LogEar extends Handler implements AutoCloseable {
    final List<String> said = new CopyOnWriteArrayList<>();
    final List<String> lost = new CopyOnWriteArrayList<>();
    private final Logger root = Logger.getLogger("");

    LogEar() {
        root.addHandler(this);
    }

    @Override
    public void publish(LogRecord line) {
        if (line.getLevel().intValue() >= Level.WARNING.intValue()) {
            String text = line.getMessage() + " " + line.getThrown();
            (text.contains("LEAK: ") ? lost : said).add(text);
        }
    }

    @Override
    public void flush() {
        // Nothing is kept back.
    }

    @Override
    public void close() {
        root.removeHandler(this);
    }
}
