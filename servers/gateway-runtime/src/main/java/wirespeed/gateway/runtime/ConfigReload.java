// Takes a configuration file over again: when it has changed, and at SIGHUP.
package wirespeed.gateway.runtime;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;

/** A file that cannot be applied changes nothing; the log says why. */
final class ConfigReload implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger("wirespeed.gateway");
    /** Between looking whether the watch was switched on meanwhile. */
    private static final long OFF_MILLIS = 1000;

    private final GatewayRuntime runtime;
    private final ConfigStore store;
    private final Thread thread;
    private volatile boolean isClosed;
    private String seenCertificates = "";
    private String readCertificates = "";

    ConfigReload(GatewayRuntime runtime, ConfigStore store) {
        this.runtime = runtime;
        this.store = store;
        thread = new Thread(this::watch, "config-watch");
        thread.setDaemon(true);
    }

    void start() {
        seenCertificates = certificates();
        if (store.file() != null || !seenCertificates.isEmpty()) {
            thread.start();
        }
    }

    /** SIGHUP: reads the file, changed or not, and reopens the logs. */
    void hangUp() {
        runtime.reopenLogs();
        readCertificates("SIGHUP");
        if (store.file() == null) {
            LOG.log(System.Logger.Level.INFO, "SIGHUP: there is no --config to read again");
            return;
        }
        try {
            reload();
        } catch (IOException | RuntimeException refused) {
            LOG.log(System.Logger.Level.ERROR, "SIGHUP: " + store.file() + " is not applied: "
                    + refused.getMessage());
        }
    }

    private void reload() throws IOException {
        synchronized (store) {
            String text = Files.readString(store.file());
            runtime.apply(store.check(text));
            store.read(text);
        }
        LOG.log(System.Logger.Level.INFO, store.file() + " is applied: snapshot "
                + runtime.gateway().snapshot().version());
    }

    private void watch() {
        String seen = store.file() == null ? "" : state(store.file());
        readCertificates = seenCertificates;
        String refused = "";
        while (!isClosed) {
            try {
                int millis = runtime.gateway().options("server").millis("config-watch");
                Thread.sleep(millis == 0 ? OFF_MILLIS : millis);
                if (millis > 0) {
                    followCertificates();
                }
                if (store.file() == null) {
                    continue;
                }
                String now = state(store.file());
                if (millis == 0) {
                    seen = now;
                    continue;
                }
                // Two equal looks: an editor may still be writing.
                boolean isStable = now.equals(seen);
                seen = now;
                if (isStable && !now.equals(refused) && !isKnown()) {
                    refused = now;
                    reload();
                }
            } catch (InterruptedException stopped) {
                return;
            } catch (IOException | RuntimeException bad) {
                LOG.log(System.Logger.Level.ERROR, store.file()
                        + " has changed and is not applied: " + bad.getMessage());
            }
        }
    }

    /** Two equal looks, as above: chain and key are two files. */
    private void followCertificates() {
        String now = certificates();
        if (now.equals(seenCertificates) && !now.equals(readCertificates)) {
            readCertificates = now;
            readCertificates("certificates have changed");
        }
        seenCertificates = now;
    }

    private void readCertificates(String why) {
        try {
            runtime.gateway().readCertificates();
        } catch (RuntimeException bad) {
            LOG.log(System.Logger.Level.ERROR, why + ": the old ones stay: " + bad.getMessage());
        }
    }

    private String certificates() {
        StringBuilder states = new StringBuilder();
        try {
            for (File file : ServerCertificate.files(runtime.gateway().options("tls"))) {
                states.append(state(file.toPath())).append('\n');
            }
        } catch (IllegalArgumentException beingReplaced) {
            states.append("unreadable");
        }
        return states.toString();
    }

    private boolean isKnown() throws IOException {
        // Not between the moments in which the admin port replaces the one and the other.
        synchronized (store) {
            return Files.readString(store.file()).equals(store.text());
        }
    }

    private static String state(Path file) {
        try {
            BasicFileAttributes now = Files.readAttributes(file, BasicFileAttributes.class);
            return now.lastModifiedTime() + " " + now.size() + " " + now.fileKey();
        } catch (IOException missing) {
            return "missing";
        }
    }

    @Override
    public void close() {
        isClosed = true;
        thread.interrupt();
    }
}
