// Certificates of both sides: which one a client gets, how they change, and what origins receive.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.security.cert.X509Certificate;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.KeyManager;
import javax.net.ssl.SNIHostName;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedTrustManager;
import javax.net.ssl.SSLException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.runtime.ConfigStore;

@Timeout(240)
abstract class CertificateContract extends CarrierContract {
    /** What is tested is which certificate comes, and not whether it is good. */
    private static final TrustManager TRUSTING = new X509ExtendedTrustManager() {
        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket) {
            // Everybody.
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket) {
            // Everybody.
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine) {
            // Everybody.
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine) {
            // Everybody.
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type) {
            // Everybody.
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type) {
            // Everybody.
        }

        @Override
        public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
        }
    };

    @TempDir
    Path folder;

    private String config(Certificate certificate, String tls) {
        return "[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n"
                + "[timeouts]\nhead = \"2m\"\n[server]\nconfig-watch = \"50ms\"\n"
                + "[tls]\ncertificate = \"" + certificate.certificate + "\"\nkey = \""
                + certificate.key + "\"\n" + tls;
    }

    private SSLSocket connect(Carrier gateway, String name, KeyManager... keys) throws Exception {
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys, new TrustManager[] {TRUSTING}, new SecureRandom());
        SSLSocket socket = closedLater((SSLSocket) context.getSocketFactory().createSocket(
                gateway.address.getAddress(), gateway.address.getPort()));
        socket.setSoTimeout(60_000);
        if (name != null) {
            SSLParameters parameters = socket.getSSLParameters();
            parameters.setServerNames(List.of(new SNIHostName(name)));
            socket.setSSLParameters(parameters);
        }
        socket.startHandshake();
        return socket;
    }

    private static String subject(SSLSocket socket) throws Exception {
        return ((X509Certificate) socket.getSession().getPeerCertificates()[0])
                .getSubjectX500Principal().getName();
    }

    private static String get(SSLSocket socket, String more) throws IOException {
        socket.getOutputStream().write(("GET /x HTTP/1.1\r\nHost: a\r\n" + more + "\r\n")
                .getBytes(StandardCharsets.US_ASCII));
        return answer(socket);
    }

    private static String answer(SSLSocket socket) throws IOException {
        StringBuilder answer = new StringBuilder();
        while (answer.indexOf("GET /x HTTP/1.1|") < 0) {
            int b = socket.getInputStream().read();
            if (b < 0) {
                throw new IOException("closed after " + answer);
            }
            answer.append((char) b);
        }
        return answer.toString();
    }

    @Test
    void a_client_gets_the_certificate_of_the_name_that_it_asks_for() throws Exception {
        Certificate usual = new Certificate(folder.resolve("usual"));
        Certificate shop = new Certificate(folder.resolve("shop"), "shop",
                "SAN=dns:shop.test,dns:*.shop.test");
        Carrier gateway = start(config(usual, "more-certificates = [\"" + shop.certificate + " "
                + shop.key + "\"]\n"));
        for (Map.Entry<String, String> asked : Map.of("shop.test", "CN=shop", "a.shop.test",
                "CN=shop", "other.test", "CN=localhost").entrySet()) {
            SSLSocket socket = connect(gateway, asked.getKey());
            assertEquals(asked.getValue(), subject(socket), asked.getKey());
            get(socket, "");
        }
        assertEquals("CN=localhost", subject(connect(gateway, null)));
    }

    @Test
    void certificates_change_and_no_connection_is_dropped() throws Exception {
        Certificate first = new Certificate(folder.resolve("now"), "first", "SAN=dns:a");
        Certificate next = new Certificate(folder.resolve("next"), "second", "SAN=dns:a");
        Carrier gateway = start(config(first, ""));
        gateway.runtime.follow(new ConfigStore(null, "", Map.of(), Map.of()));
        SSLSocket old = connect(gateway, null);
        assertEquals("CN=first", subject(old));
        Files.copy(next.certificate, first.certificate,
                java.nio.file.StandardCopyOption.REPLACE_EXISTING);
        Files.copy(next.key, first.key, java.nio.file.StandardCopyOption.REPLACE_EXISTING);
        long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(1);
        String now = "";
        while (!now.equals("CN=second")) {
            assertTrue(System.nanoTime() < end, "still " + now);
            SSLSocket fresh = connect(gateway, null);
            now = subject(fresh);
            get(fresh, "");
            get(old, "");
        }
        Files.writeString(first.certificate, "nothing of the kind");
        assertThrows(IllegalArgumentException.class,
                () -> gateway.runtime.gateway().readCertificates());
        assertEquals("CN=second", subject(connect(gateway, null)));
        get(old, "");
    }

    @Test
    void a_key_of_another_certificate_changes_nothing() throws Exception {
        Certificate usual = new Certificate(folder.resolve("usual"), "usual", "SAN=dns:a");
        Certificate shop = new Certificate(folder.resolve("shop"), "shop", "SAN=dns:shop.test");
        Certificate fresh = new Certificate(folder.resolve("fresh"), "fresh", "SAN=dns:a");
        Carrier gateway = start(config(usual, "more-certificates = [\"" + shop.certificate + " "
                + shop.key + "\"]\n").replace("50ms", "1h"));
        String keyOfUsual = Files.readString(usual.key);
        for (Path wrong : List.of(usual.key, shop.key)) {
            // The first pair is good in the second turn: of a broken set nothing may be taken.
            Files.copy(fresh.certificate, usual.certificate,
                    java.nio.file.StandardCopyOption.REPLACE_EXISTING);
            Files.writeString(usual.key, Files.readString(fresh.key));
            Files.writeString(wrong, keyOfUsual);
            Throwable told = assertThrows(IllegalArgumentException.class,
                    () -> gateway.runtime.gateway().readCertificates());
            assertTrue(told.getMessage().contains(wrong + "\" is not the key"), told.toString());
            SSLSocket socket = connect(gateway, null);
            assertEquals("CN=usual", subject(socket));
            get(socket, "");
            assertEquals("CN=shop", subject(connect(gateway, "shop.test")));
        }
    }

    @Test
    void certificates_that_change_all_the_time_fail_no_request() throws Exception {
        Certificate now = new Certificate(folder.resolve("now"), "first", "SAN=dns:a");
        Certificate next = new Certificate(folder.resolve("next"), "second", "SAN=dns:a");
        String[] chains = {Files.readString(now.certificate), Files.readString(next.certificate)};
        String[] keys = {Files.readString(now.key), Files.readString(next.key)};
        Carrier gateway = start(config(now, "").replace("50ms", "1h"));
        SSLSocket old = connect(gateway, null);
        for (int turn = 1; turn <= 40; turn++) {
            Files.writeString(now.certificate, chains[turn % 2]);
            Files.writeString(now.key, keys[turn % 2]);
            gateway.runtime.gateway().readCertificates();
            if (turn % 10 < 2) {
                SSLSocket fresh = connect(gateway, null);
                assertEquals(turn % 2 == 1 ? "CN=second" : "CN=first", subject(fresh));
                get(fresh, "");
                fresh.close();
            }
            get(old, "");
        }
    }

    @Test
    void clients_show_certificates_and_origins_receive_them() throws Exception {
        Certificate server = new Certificate(folder.resolve("server"));
        Certificate client = new Certificate(folder.resolve("client"), "kim", "SAN=dns:kim");
        Carrier gateway = start(config(server, "client-auth = \"optional\"\nclient-ca = \""
                + client.certificate + "\"\n"));
        get(connect(gateway, null, client.keys()),
                "X-Forwarded-Client-Cert: Subject=\"CN=boss\"\r\n");
        get(connect(gateway, null), "X-Forwarded-Client-Cert: Subject=\"CN=boss\"\r\n");
        String told = origin.seen.get(0).header("X-Forwarded-Client-Cert");
        assertTrue(told.matches("Hash=[0-9a-f]{64};Subject=\"CN=kim\""), told);
        assertNull(origin.seen.get(1).header("X-Forwarded-Client-Cert"));
    }

    @Test
    void a_page_for_one_certificate_is_stored_for_others_only_if_public()
            throws Exception {
        Certificate server = new Certificate(folder.resolve("server"));
        Certificate kim = new Certificate(folder.resolve("kim"), "kim", "SAN=dns:kim");
        Certificate lee = new Certificate(folder.resolve("lee"), "lee", "SAN=dns:lee");
        Path both = Files.writeString(folder.resolve("both.pem"),
                Files.readString(kim.certificate) + Files.readString(lee.certificate));
        Carrier gateway = start(config(server, "client-auth = \"required\"\nclient-ca = \""
                + both + "\"\n[cache]\nenabled = true\n"));
        assertEquals("kim lee", pages(gateway, kim, lee, "max-age=60"));
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        String shared = pages(gateway, kim, lee, "max-age=60, public");
        while (shared.equals("kim lee") && System.nanoTime() < end) {
            // A client may have its answer just before that is stored.
            shared = pages(gateway, kim, lee, "max-age=60, public");
        }
        assertTrue(shared.equals("kim kim") || shared.equals("lee lee"), shared);
    }

    /** For whom the page is that each of the two gets. */
    private String pages(Carrier gateway, Certificate one, Certificate other, String control)
            throws Exception {
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "Cache-Control: " + control + "\r\nX-For: "
                    + seen.header("X-Forwarded-Client-Cert").replaceAll(".*CN=(\\w+).*", "$1")
                    + "\r\n", "GET /x HTTP/1.1|");
            return true;
        };
        String first = get(connect(gateway, null, one.keys()), "");
        String second = get(connect(gateway, null, other.keys()), "");
        return (first + second).replaceAll("(?s).*?X-For: (\\w+)\r\n.*?X-For: (\\w+)\r\n.*",
                "$1 $2");
    }

    @Test
    void a_client_without_the_certificate_that_is_required_is_refused() throws Exception {
        Certificate server = new Certificate(folder.resolve("server"));
        Certificate client = new Certificate(folder.resolve("client"), "kim", "SAN=dns:kim");
        Certificate stranger = new Certificate(folder.resolve("stranger"), "x", "SAN=dns:x");
        Carrier gateway = start(config(server, "client-auth = \"required\"\nclient-ca = \""
                + client.certificate + "\"\n"));
        assertThrows(IOException.class, () -> get(connect(gateway, null), ""));
        assertThrows(IOException.class, () -> get(connect(gateway, null, stranger.keys()), ""));
        get(connect(gateway, null, client.keys()), "");
        assertEquals(1, origin.seen.size());
    }

    @Test
    void a_client_that_speaks_tls_gets_408_for_a_late_head() throws Exception {
        Certificate server = new Certificate(folder.resolve("server"));
        Carrier gateway = start(config(server, "").replace("head = \"2m\"", "head = \"4s\""));
        // What a first handshake loads is not to take the time that the late one has.
        get(connect(gateway, null), "");
        // The handshake takes of the same four seconds.
        inTime(3900, () -> {
            SSLSocket late = connect(gateway, null);
            late.getOutputStream().write("GET / HTTP/1.1\r\nHo".getBytes());
            assertEquals("HTTP/1.1 408", begin(late));
        });
    }

    private static String begin(SSLSocket socket) throws IOException {
        return new String(socket.getInputStream().readNBytes(12), StandardCharsets.US_ASCII);
    }

    @Test
    void a_client_whose_head_is_refused_gets_the_response_though_much_follows_it() throws Exception {
        Certificate server = new Certificate(folder.resolve("server"));
        Carrier gateway = start(config(server, ""));
        for (int bytes : new int[] {100, 3_000, 12_000}) {
            for (int i = 0; i < 3; i++) {
                SSLSocket refused = connect(gateway, null);
                refused.getOutputStream().write(("GET /x HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n"
                        + "b".repeat(bytes)).getBytes());
                assertEquals("HTTP/1.1 400", begin(refused), bytes + " bytes behind it");
            }
        }
    }

    @Test
    void a_client_that_goes_on_sending_after_a_refused_head_reads_the_answer() throws Exception {
        Certificate server = new Certificate(folder.resolve("server"));
        Carrier gateway = start(config(server, ""));
        // The gateway reads on for two seconds.
        inTime(1500, () -> sendOn(gateway));
    }

    private void sendOn(Carrier gateway) throws Exception {
        SSLSocket other = connect(gateway, null);
        SSLSocket refused = connect(gateway, null);
        refused.getOutputStream().write("POST /x HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n".getBytes());
        // A reset would end this, and a client that cannot write may not read either.
        long end = System.nanoTime() + 600_000_000;
        for (int i = 0; i < 20 && System.nanoTime() < end; i++) {
            Thread.sleep(20);
            // Code that ends a connection must not wait for new connections.
            get(other, "");
            refused.getOutputStream().write(new byte[4096]);
        }
        assertEquals("HTTP/1.1 400", begin(refused));
        assertTrue(refused.getInputStream().readAllBytes().length > 0);
    }

    @Test
    void long_pieces_pass_over_tls() throws Exception {
        Certificate server = new Certificate(folder.resolve("server"));
        Carrier gateway = start(config(server, ""));
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "", "GET /x HTTP/1.1|");
            return true;
        };
        SSLSocket client = connect(gateway, null);
        for (int bytes : new int[] {1_000, 3_000, 12_000}) {
            get(client, "X-Long: " + "h".repeat(bytes) + "\r\n");
        }
        for (int bytes : new int[] {3_000, 16_000, 40_000}) {
            client.getOutputStream().write(("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: " + bytes
                    + "\r\n\r\n" + "b".repeat(bytes)).getBytes(StandardCharsets.US_ASCII));
            answer(client);
            get(client, "");
        }
        assertEquals(9, origin.seen.size());
    }

    /** Whether a client that offers this alone agrees with the gateway. */
    private static boolean agrees(Certificate certificate, Carrier gateway, String protocol,
            String cipher) throws Exception {
        try (SSLSocket socket = (SSLSocket) certificate.context().getSocketFactory().createSocket(
                "127.0.0.1", gateway.address.getPort())) {
            socket.setSoTimeout(60_000);
            socket.setEnabledProtocols(new String[] {protocol});
            socket.setEnabledCipherSuites(new String[] {cipher});
            socket.startHandshake();
            return true;
        } catch (SSLException refused) {
            return false;
        }
    }

    @Test
    void versions_and_ciphers_are_those_of_the_configuration() throws Exception {
        String strong = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
        String other = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
        String weak = "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA";
        try (RecordingOrigin own = new RecordingOrigin()) {
            Certificate certificate = new Certificate(folder);
            String toml = "[origins.o]\naddresses = [\"127.0.0.1:" + own.port() + "\"]\n[tls]\n"
                    + "certificate = \"" + certificate.certificate + "\"\nkey = \"" + certificate.key
                    + "\"\n";
            try (Carrier usual = new Carrier(factory(), options(), toml)) {
                assertTrue(agrees(certificate, usual, "TLSv1.2", strong));
                assertTrue(agrees(certificate, usual, "TLSv1.2", other));
                assertFalse(agrees(certificate, usual, "TLSv1.2", weak));
                assertTrue(agrees(certificate, usual, "TLSv1.3", "TLS_AES_128_GCM_SHA256"));
            }
            try (Carrier one = new Carrier(factory(), options(), toml + "ciphers = [\"" + other
                    + "\"]\n")) {
                assertFalse(agrees(certificate, one, "TLSv1.2", strong));
                assertTrue(agrees(certificate, one, "TLSv1.2", other));
                assertTrue(agrees(certificate, one, "TLSv1.3", "TLS_AES_128_GCM_SHA256"));
            }
            try (Carrier modern = new Carrier(factory(), options(), toml + "min-version = \"1.3\"\n")) {
                assertFalse(agrees(certificate, modern, "TLSv1.2", strong));
                assertTrue(agrees(certificate, modern, "TLSv1.3", "TLS_AES_128_GCM_SHA256"));
            }
            IllegalArgumentException refused = assertThrows(IllegalArgumentException.class,
                    () -> new Carrier(factory(), options(), toml + "ciphers = [\"AES128\"]\n").close());
            assertTrue(refused.getMessage().contains("AES128"), refused.getMessage());
        }
    }
}
