// One line an exchange, written by a thread of its own.
package wirespeed.gateway.runtime;

import java.io.BufferedWriter;
import java.io.IOException;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Filter;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.FinishFilter;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Step;

/** Loops only put a line into a bounded queue; when the disk is too slow, lines are dropped. */
final class AccessLog extends ShippedFilters.Scoped implements FinishFilter {
    private static final System.Logger LOG = System.getLogger("wirespeed.gateway");
    private static final long SAID_EVERY_NANOS = TimeUnit.MINUTES.toNanos(1);
    private static final int LINES_MAX = 65_536;
    private static final int CHARS_MAX = 8 << 20;
    /** From the first line to the write of all: to wake the thread costs a loop more than a line. */
    private static final int GATHER_MILLIS = 20;
    private static final int CLOSING_WAITS = 40;
    private static final int CLOSING_WAIT_MILLIS = 50;

    private final LineQueue lines = new LineQueue(LINES_MAX, CHARS_MAX);
    private final AtomicLong dropped = new AtomicLong();
    private final Path file;
    private final AccessLogFormat format;
    private Writer writer;
    private long saidNanos;
    private volatile boolean mustReopen;
    private final Thread thread;
    private volatile boolean isClosed;

    AccessLog(ShippedFilters.Scope scope, String file, String format) {
        super(scope, Phase.POST);
        this.format = new AccessLogFormat(format);
        this.file = file.isEmpty() ? null : Path.of(file);
        try {
            writer = open();
        } catch (IOException e) {
            throw new IllegalArgumentException("file \"" + file + "\" cannot be written: "
                    + e.getMessage(), e);
        }
        thread = new Thread(this::write, "access-log");
        thread.setDaemon(true);
        thread.start();
    }

    /** Refuses a format or a folder that is wrong, and makes nothing. */
    static List<Filter> checked(OptionValues values) {
        new AccessLogFormat(values.text("format"));
        String file = values.text("file");
        Path folder = file.isEmpty() ? null : Path.of(file).toAbsolutePath().getParent();
        if (folder != null && !Files.isWritable(folder)) {
            throw new IllegalArgumentException("file \"" + file + "\" cannot be written: " + folder
                    + " is not a folder that this user may write");
        }
        return List.of();
    }

    private Writer open() throws IOException {
        // Of Files' own writer, a character without an encoding would fail each later write, too.
        return new BufferedWriter(new OutputStreamWriter(file == null ? System.out
                : Files.newOutputStream(file, StandardOpenOption.CREATE, StandardOpenOption.APPEND),
                StandardCharsets.UTF_8));
    }

    /** The file has been renamed: from the next line on a new one is written. */
    void reopen() {
        mustReopen = file != null;
    }

    @Override
    public Step apply(Context context) {
        return Step.NEXT;
    }

    @Override
    public void finished(Context context, int status, long nanos) {
        if (scope.covers(context) && !lines.offer(format.line(context, status, nanos))) {
            dropped.incrementAndGet();
            ThrottledLog.line("access log " + (file == null ? "" : file)
                    + ": lines are dropped, because they are not written fast enough");
        }
    }

    /** Lines that were not written: the disk was full or too slow. */
    long dropped() {
        return dropped.get();
    }

    private void write() {
        try {
            while (!isClosed || !lines.isEmpty()) {
                String line = lines.poll(200);
                if (line != null && !isClosed) {
                    Thread.sleep(GATHER_MILLIS);
                }
                writeAll(line);
            }
            if (file != null) {
                writer.close();
            }
        } catch (IOException e) {
            dropped.incrementAndGet();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** A full disk costs lines and not the log: the next ones are tried again. */
    private void writeAll(String first) {
        try {
            if (mustReopen) {
                mustReopen = false;
                openAnew();
            }
            for (String line = first; line != null; line = lines.poll()) {
                writer.write(line);
            }
            writer.flush();
        } catch (IOException failed) {
            failed(failed);
        }
    }

    /** If the file cannot be opened, the log stays where it was: in the renamed file. */
    private void openAnew() {
        try {
            Writer fresh = open();
            try (Writer before = writer) {
                writer = fresh;
            }
        } catch (IOException failed) {
            failed(failed);
        }
    }

    private void failed(IOException why) {
        long now = System.nanoTime();
        if (dropped.getAndIncrement() == 0 || now - saidNanos > SAID_EVERY_NANOS) {
            saidNanos = now;
            LOG.log(System.Logger.Level.ERROR, "access log " + file + ": " + why);
        }
    }

    @Override
    public void close() {
        isClosed = true;
        try {
            // In short waits: time in which this process stood still gave the thread none.
            for (int i = 0; i < CLOSING_WAITS && thread.isAlive(); i++) {
                thread.join(CLOSING_WAIT_MILLIS);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
