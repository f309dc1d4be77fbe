// One line an exchange, written by a thread of its own.
package wirespeed.gateway.runtime;

import java.io.BufferedWriter;
import java.io.IOException;
import java.io.OutputStreamWriter;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Instant;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.FinishFilter;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Step;

/** Loops only put a line into a bounded queue; when the disk is too slow, lines are dropped. */
final class AccessLog extends ShippedFilters.Scoped implements FinishFilter {
    private static final int LINES_MAX = 65_536;

    private final ArrayBlockingQueue<String> lines = new ArrayBlockingQueue<>(LINES_MAX);
    private final AtomicLong dropped = new AtomicLong();
    private final Writer writer;
    private final boolean isFile;
    private final Thread thread;
    private volatile boolean isClosed;

    AccessLog(ShippedFilters.Scope scope, String file) {
        super(scope, Phase.POST);
        isFile = !file.isEmpty();
        try {
            writer = new BufferedWriter(isFile
                    ? Files.newBufferedWriter(Path.of(file), StandardOpenOption.CREATE,
                            StandardOpenOption.APPEND)
                    : new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        } catch (IOException e) {
            throw new IllegalArgumentException("file \"" + file + "\" cannot be written: "
                    + e.getMessage(), e);
        }
        thread = new Thread(this::write, "access-log");
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public Step apply(Context context) {
        return Step.NEXT;
    }

    @Override
    public void finished(Context context, int status, long nanos) {
        if (scope.covers(context) && !lines.offer(line(context, status, nanos))) {
            dropped.incrementAndGet();
        }
    }

    private static String line(Context context, int status, long nanos) {
        Request request = context.request();
        return Instant.now() + " " + request.clientAddress() + " " + request.method() + " "
                + request.pathWithParameters() + (request.query() == null ? "" : "?" + request.query()) + " "
                + status + " " + context.category().label() + " " + context.responseBytes() + " "
                + nanos / 1000 + "us own="
                + Math.max(0, nanos - context.originNanos()) / 1000 + "us "
                + (context.address() == null ? "-" : context.address().id()) + "\n";
    }

    private void write() {
        try {
            while (!isClosed || !lines.isEmpty()) {
                String line = lines.poll(200, TimeUnit.MILLISECONDS);
                while (line != null) {
                    writer.write(line);
                    line = lines.poll();
                }
                writer.flush();
            }
            if (isFile) {
                writer.close();
            }
        } catch (IOException e) {
            throw new UncheckedIOException("access log stopped", e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void close() {
        isClosed = true;
        try {
            thread.join(2000);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
