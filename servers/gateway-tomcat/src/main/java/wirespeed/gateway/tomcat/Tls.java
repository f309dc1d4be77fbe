// Encryption towards origins, with the JDK's TLS.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.net.Socket;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.X509Certificate;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.IntSupplier;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.apache.hc.client5.http.ssl.ClientTlsStrategyBuilder;
import org.apache.hc.client5.http.ssl.TlsSocketStrategy;
import org.apache.hc.core5.http.protocol.HttpContext;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.runtime.ServerCertificate;

/** They are always verified, their names too. */
final class Tls {
    static {
        // Before the first socket: an end without the alert of TLS is none (RFC 9112 §9.8), but
        // sockets of the JDK accept it as one without this property.
        System.setProperty("com.sun.net.ssl.requireCloseNotify", "true");
    }

    private static final String MILLIS = "wirespeed.handshake-millis";

    private Tls() {
    }

    /** Bounds a handshake; asked for its milliseconds when it begins. */
    static void within(HttpContext context, IntSupplier millis) {
        context.setAttribute(MILLIS, millis);
    }

    /**
     * How connections to origins are encrypted, when an origin asks for it.
     *
     * @param ends closes the socket of a handshake that takes too long
     */
    static TlsSocketStrategy toOrigins(OptionValues options, ScheduledExecutorService ends) {
        String file = options.text("origin-ca");
        try {
            SSLContext context = file.isEmpty() ? SSLContext.getDefault() : trusting(file);
            TlsSocketStrategy strategy = ClientTlsStrategyBuilder.create().setSslContext(context)
                    .setTlsVersions("TLSv1.3", "TLSv1.2").buildClassic();
            return (socket, host, port, attachment, of) -> {
                int millis = ((IntSupplier) of.getAttribute(MILLIS)).getAsInt();
                // HttpClient has set the time to connect, and sets its own behind this. It bounds each
                // read only, and an origin may send byte by byte.
                socket.setSoTimeout(millis);
                Future<?> end = ends.schedule(() -> close(socket), millis, TimeUnit.MILLISECONDS);
                try {
                    return strategy.upgrade(socket, host, port, attachment, of);
                } finally {
                    end.cancel(false);
                }
            };
        } catch (GeneralSecurityException e) {
            throw new IllegalArgumentException("tls.origin-ca: " + e.getMessage(), e);
        }
    }

    private static void close(Socket socket) {
        try {
            socket.close();
        } catch (IOException closedAlready) {
            // Then nothing waits.
        }
    }

    private static SSLContext trusting(String file) throws GeneralSecurityException {
        KeyStore store = authorities("tls.origin-ca", file);
        TrustManagerFactory trust = TrustManagerFactory.getInstance(
                TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }

    /** The certificates in a file, as trusted ones. */
    static KeyStore authorities(String option, String file) {
        try {
            KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
            store.load(null, null);
            int number = 0;
            for (X509Certificate one : ServerCertificate.certificates(option, file)) {
                store.setCertificateEntry("ca-" + number++, one);
            }
            return store;
        } catch (GeneralSecurityException | IOException e) {
            throw new IllegalArgumentException(option + ": " + e.getMessage(), e);
        }
    }
}
