// Asks addresses regularly whether they are well, on connections of its own.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.HealthCheck;
import wirespeed.gateway.core.Origin;

/** Blocking sockets on a few threads: checks are rare, and must work when the loops do not. */
final class HealthChecker implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger("wirespeed.gateway");
    private static final int ANSWER_BYTES_MAX = 4096;

    private final ScheduledExecutorService threads = Executors.newScheduledThreadPool(2, task -> {
        Thread thread = new Thread(task, "health-check");
        thread.setDaemon(true);
        return thread;
    });
    private final Map<Address, Watched> watched = new HashMap<>();

    private final class Watched implements Runnable {
        final Address address;
        final HealthCheck check;
        private ScheduledFuture<?> next;
        private int row;
        private boolean isStopped;

        Watched(Address address, HealthCheck check) {
            this.address = address;
            this.check = check;
        }

        void schedule(long delayMillis) {
            synchronized (watched) {
                if (!isStopped) {
                    next = threads.schedule(this, delayMillis, TimeUnit.MILLISECONDS);
                }
            }
        }

        void stop() {
            isStopped = true;
            address.checked(true);
            if (next != null) {
                next.cancel(false);
            }
        }

        @Override
        public void run() {
            boolean isGood = ask(address, check);
            // Counts answers that contradict the present state.
            row = isGood == address.isChecked() ? 0 : row + 1;
            if (row >= (isGood ? check.rise() : check.fall())) {
                row = 0;
                address.checked(isGood);
                LOG.log(System.Logger.Level.INFO, "address " + address.id()
                        + (isGood ? " is healthy again" : " is not healthy"));
            }
            int fifth = Math.max(1, check.intervalMillis() / 5);
            schedule(check.intervalMillis() - fifth
                    + ThreadLocalRandom.current().nextInt(2 * fifth));
        }
    }

    /** Checks what this snapshot wants checked, from now on. */
    void update(Collection<Origin> origins) {
        Map<Address, HealthCheck> wanted = new HashMap<>();
        for (Origin origin : origins) {
            if (origin.settings().check() != null) {
                origin.addresses().forEach(a -> wanted.put(a, origin.settings().check()));
            }
        }
        synchronized (watched) {
            watched.values().removeIf(old -> {
                boolean isGone = !old.check.equals(wanted.get(old.address));
                if (isGone) {
                    old.stop();
                }
                return isGone;
            });
            wanted.forEach((address, check) -> watched.computeIfAbsent(address, fresh -> {
                Watched task = new Watched(address, check);
                task.schedule(0);
                return task;
            }));
        }
    }

    static boolean ask(Address address, HealthCheck check) {
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress(address.host(), address.port()),
                    check.timeoutMillis());
            socket.setSoTimeout(check.timeoutMillis());
            socket.getOutputStream().write(("GET " + check.path() + " HTTP/1.1\r\nHost: "
                    + address.id() + "\r\nUser-Agent: wirespeed-health\r\n"
                    + "Connection: close\r\n\r\n").getBytes(StandardCharsets.ISO_8859_1));
            return isGood(answer(socket.getInputStream(), check), check);
        } catch (IOException | RuntimeException failed) {
            return false;
        }
    }

    private static String answer(InputStream in, HealthCheck check) throws IOException {
        byte[] bytes = new byte[ANSWER_BYTES_MAX];
        int length = 0;
        long end = System.nanoTime() + check.timeoutMillis() * 1_000_000L;
        while (length < bytes.length && System.nanoTime() < end) {
            int count = in.read(bytes, length, bytes.length - length);
            if (count < 0) {
                break;
            }
            length += count;
            if (check.bodyContains().isEmpty() && length >= 12) {
                break;
            }
        }
        return new String(bytes, 0, length, StandardCharsets.ISO_8859_1);
    }

    private static boolean isGood(String answer, HealthCheck check) {
        if (!answer.matches("(?s)HTTP/1\\.[01] \\d{3}.*")) {
            return false;
        }
        int status = Integer.parseInt(answer.substring(9, 12));
        int body = answer.indexOf("\r\n\r\n");
        return status >= check.statusMin() && status <= check.statusMax()
                && (check.bodyContains().isEmpty()
                || body >= 0 && answer.substring(body).contains(check.bodyContains()));
    }

    @Override
    public void close() {
        threads.shutdownNow();
    }
}
