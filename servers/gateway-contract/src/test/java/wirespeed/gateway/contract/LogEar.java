// Hears what the gateway writes into its own log.
package wirespeed.gateway.contract;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;

/** Warnings and worse, of the whole process, until it is closed. */
final class LogEar extends Handler implements AutoCloseable {
    final List<String> said = new CopyOnWriteArrayList<>();
    private final Logger root = Logger.getLogger("");

    LogEar() {
        root.addHandler(this);
    }

    @Override
    public void publish(LogRecord line) {
        if (line.getLevel().intValue() >= Level.WARNING.intValue()) {
            said.add(line.getMessage() + " " + line.getThrown());
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
