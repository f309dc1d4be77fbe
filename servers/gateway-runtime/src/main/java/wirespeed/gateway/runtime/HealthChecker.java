// Asks addresses regularly whether they are well, on connections of its own.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.HealthCheck;
import wirespeed.gateway.core.Origin;

/**
 * Blocking sockets on threads, one for each address and {@link #THREADS_MAX} at most: checks must work
 * when the loops do not, and those of addresses that do not answer must not hold up the others.
 */
final class HealthChecker implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger("wirespeed.gateway");
    private static final int THREADS_MAX = 64;

    private final ScheduledThreadPoolExecutor threads = new ScheduledThreadPoolExecutor(1, task -> {
        Thread thread = new Thread(task, "health-check");
        thread.setDaemon(true);
        return thread;
    });
    private final Map<Address, Watched> watched = new HashMap<>();
    private final String originCa;
    private SSLSocketFactory tls;

    private record Wanted(HealthCheck check, boolean isTls, String tlsName) {
    }

    /**
     * A checker without checks.
     *
     * @param originCa PEM file that certificates of encrypted origins come from; empty for the
     *     platform's
     */
    HealthChecker(String originCa) {
        this.originCa = originCa;
    }

    /** Made when it is first needed: reading the platform's certificates takes time and memory. */
    private synchronized SSLSocketFactory tls() {
        if (tls == null) {
            tls = originCa.isEmpty() ? (SSLSocketFactory) SSLSocketFactory.getDefault()
                    : trusting(originCa);
        }
        return tls;
    }

    private static SSLSocketFactory trusting(String originCa) {
        try (InputStream in = Files.newInputStream(Path.of(originCa))) {
            KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
            trusted.load(null, null);
            int number = 0;
            for (Certificate one : CertificateFactory.getInstance("X.509")
                    .generateCertificates(in)) {
                trusted.setCertificateEntry("ca-" + number++, one);
            }
            TrustManagerFactory managers = TrustManagerFactory.getInstance(
                    TrustManagerFactory.getDefaultAlgorithm());
            managers.init(trusted);
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(null, managers.getTrustManagers(), null);
            return context.getSocketFactory();
        } catch (IOException | GeneralSecurityException e) {
            throw new ConfigError("tls.origin-ca: " + originCa + ": " + e.getMessage());
        }
    }

    private final class Watched implements Runnable {
        final Address address;
        final HealthCheck check;
        final Wanted wanted;
        private ScheduledFuture<?> next;
        private int row;
        private boolean isStopped;

        Watched(Address address, Wanted wanted) {
            this.address = address;
            this.check = wanted.check();
            this.wanted = wanted;
        }

        void schedule(long delayMillis) {
            synchronized (watched) {
                if (!isStopped) {
                    next = threads.schedule(this, delayMillis, TimeUnit.MILLISECONDS);
                }
            }
        }

        void stop(boolean isReplaced) {
            isStopped = true;
            if (!isReplaced) {
                // Without a check its recovery would go unnoticed.
                address.checked(true);
            }
            if (next != null) {
                next.cancel(false);
            }
        }

        @Override
        public void run() {
            try {
                Boolean isGood = ask(address, wanted);
                if (isGood != null) {
                    judge(isGood);
                }
            } catch (RuntimeException | Error fault) {
                ThrottledLog.fault("the check of " + address.id(), fault);
            } finally {
                // Without a next check the address keeps its state.
                int fifth = Math.max(1, check.intervalMillis() / 5);
                schedule(check.intervalMillis() - fifth
                        + ThreadLocalRandom.current().nextInt(2 * fifth));
            }
        }

        private void judge(boolean isGood) {
            synchronized (watched) {
                // Stopped while it asked: the address is no longer this check's to judge.
                if (!isStopped) {
                    count(isGood);
                }
            }
        }

        private void count(boolean isGood) {
            // Counts answers that contradict the present state.
            row = isGood == address.isChecked() ? 0 : row + 1;
            if (row >= (isGood ? check.rise() : check.fall())) {
                row = 0;
                address.checked(isGood);
                LOG.log(System.Logger.Level.INFO, "address " + address.id()
                        + (isGood ? " is healthy again" : " is not healthy"));
            }
        }
    }

    /** Checks what this snapshot wants checked, from now on. */
    void update(Collection<Origin> origins) {
        Map<Address, Wanted> wanted = new HashMap<>();
        for (Origin origin : origins) {
            if (origin.settings().check() != null) {
                origin.endpoints().forEach(one -> wanted.put(one, new Wanted(
                        origin.settings().check(), origin.settings().tls(),
                        origin.settings().tlsName(one))));
            }
        }
        threads.setCorePoolSize(Math.max(1, Math.min(THREADS_MAX, wanted.size())));
        synchronized (watched) {
            watched.values().removeIf(old -> {
                boolean isGone = !old.wanted.equals(wanted.get(old.address));
                if (isGone) {
                    old.stop(wanted.containsKey(old.address));
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

    /** Null where this process has no descriptor left, which says nothing about the address. */
    private Boolean ask(Address address, Wanted wanted) {
        HealthCheck check = wanted.check();
        int port = check.port() == 0 ? address.port() : check.port();
        try (Socket plain = new Socket()) {
            if (!isMade(plain)) {
                return null;
            }
            plain.connect(new InetSocketAddress(address.host(), port), check.timeoutMillis());
            plain.setSoTimeout(check.timeoutMillis());
            Socket socket = wanted.isTls() ? encrypted(plain, wanted.tlsName(), port, tls()) : plain;
            socket.getOutputStream().write(request(address, check));
            return new CheckAnswer(socket, check).isGood();
        } catch (IOException | RuntimeException failed) {
            return false;
        }
    }

    private static byte[] request(Address address, HealthCheck check) {
        StringBuilder head = new StringBuilder("GET " + check.path() + " HTTP/1.1\r\nHost: "
                + (check.host().isEmpty() ? address.authority() : check.host())
                + "\r\nUser-Agent: wirespeed-health\r\nConnection: close\r\n");
        check.fields().forEach((name, value) ->
                head.append(name).append(": ").append(value).append("\r\n"));
        return head.append("\r\n").toString().getBytes(StandardCharsets.ISO_8859_1);
    }

    private static boolean isMade(Socket socket) {
        try {
            // The first call that needs a descriptor.
            socket.setTcpNoDelay(true);
            return true;
        } catch (SocketException none) {
            return false;
        }
    }

    /** The name is verified as it is for traffic. */
    private static Socket encrypted(Socket plain, String name, int port, SSLSocketFactory tls)
            throws IOException {
        SSLSocket socket = (SSLSocket) tls.createSocket(plain, name, port, true);
        SSLParameters parameters = socket.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        socket.setSSLParameters(parameters);
        return socket;
    }

    @Override
    public void close() {
        threads.shutdownNow();
    }
}
