// Each listener shows the certificates as they were read, whatever becomes of their files.
package wirespeed.gateway.tomcat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.tomcat.util.net.SSLContext;
import org.apache.tomcat.util.net.SSLHostConfig;
import org.apache.tomcat.util.net.SSLHostConfigCertificate;
import org.apache.tomcat.util.net.jsse.JSSEImplementation;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.runtime.ConfigReader;

class ShownCertificatesTest {
    private static final char[] PASSWORD = "secret".toCharArray();
    @TempDir
    private Path folder;

    private Path pem(String name, String what, byte[] bytes) throws Exception {
        return Files.writeString(folder.resolve(name), "-----BEGIN " + what + "-----\n"
                + Base64.getMimeEncoder().encodeToString(bytes) + "\n-----END " + what + "-----\n");
    }

    private OptionValues files() throws Exception {
        Path file = folder.resolve("store.p12");
        assertEquals(0, new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "keytool")
                .toString(), "-genkeypair", "-keystore", file.toString(), "-storepass", "secret",
                "-alias", "a", "-keyalg", "EC", "-groupname", "secp256r1", "-dname", "CN=first")
                .redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start()
                .waitFor());
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream in = Files.newInputStream(file)) {
            store.load(in, PASSWORD);
        }
        Path chain = pem("cert.pem", "CERTIFICATE", store.getCertificate("a").getEncoded());
        Path key = pem("key.pem", "PRIVATE KEY", store.getKey("a", PASSWORD).getEncoded());
        return ConfigReader.read("[origins.o]\naddresses = [\"h:1\"]\n[tls]\ncertificate = \"" + chain
                + "\"\nkey = \"" + key + "\"\n", "x.toml", Map.of(), Map.of()).table("tls");
    }

    @Test
    void all_listeners_show_what_was_read_though_the_files_change_meanwhile() throws Exception {
        OptionValues options = files();
        ShownCertificates shown = new ShownCertificates(options);
        Files.delete(folder.resolve("cert.pem"));
        Files.delete(folder.resolve("key.pem"));
        for (int listener = 0; listener < 2; listener++) {
            List<SSLHostConfig> hosts = shown.hosts();
            assertEquals(1, hosts.size());
            assertEquals("_default_", hosts.get(0).getHostName());
            SSLHostConfigCertificate one = hosts.get(0).getCertificates().iterator().next();
            SSLContext context = new JSSEImplementation().getSSLUtil(one).createSSLContext(List.of());
            assertEquals("CN=first", context.getCertificateChain("tomcat")[0]
                    .getSubjectX500Principal().getName());
        }
        IllegalArgumentException refused = assertThrows(IllegalArgumentException.class,
                () -> new ShownCertificates(options));
        assertTrue(refused.getMessage().contains("key.pem"), refused.getMessage());
    }
}
