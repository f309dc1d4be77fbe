// A self-signed certificate for 127.0.0.1, made for one test run.
package wirespeed.gateway.contract;

import java.math.BigInteger;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.KeyStore;
import java.security.SecureRandom;
import java.security.cert.X509Certificate;
import java.security.spec.ECGenParameterSpec;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.Base64;
import java.util.Date;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import javax.security.auth.x500.X500Principal;
import org.bouncycastle.asn1.x509.Extension;
import org.bouncycastle.asn1.x509.GeneralName;
import org.bouncycastle.asn1.x509.GeneralNames;
import org.bouncycastle.cert.X509CertificateHolder;
import org.bouncycastle.cert.jcajce.JcaX509CertificateConverter;
import org.bouncycastle.cert.jcajce.JcaX509v3CertificateBuilder;
import org.bouncycastle.operator.jcajce.JcaContentSignerBuilder;

/** As PEM files for the gateway, and as contexts for the JDK's own client and server. */
final class Certificate {
    final Path certificate;
    final Path key;
    private final KeyStore store = KeyStore.getInstance("PKCS12");

    Certificate(Path folder) throws Exception {
        this(folder, "localhost", "SAN=ip:127.0.0.1,dns:localhost");
    }

    /**
     * Its files are those of any other one in that folder, and overwrite them. `names` are its subject
     * alternative names: `SAN=ip:ADDRESS,dns:NAME`.
     */
    Certificate(Path folder, String name, String names) throws Exception {
        KeyPairGenerator generator = KeyPairGenerator.getInstance("EC");
        generator.initialize(new ECGenParameterSpec("secp256r1"));
        KeyPair pair = generator.generateKeyPair();
        X509Certificate made = selfSigned(pair, new X500Principal("CN=" + name), names);
        store.load(null, null);
        store.setKeyEntry("a", pair.getPrivate(), "secret".toCharArray(),
                new X509Certificate[] {made});
        Files.createDirectories(folder);
        certificate = pem(folder.resolve("cert.pem"), "CERTIFICATE", made.getEncoded());
        key = pem(folder.resolve("key.pem"), "PRIVATE KEY", pair.getPrivate().getEncoded());
    }

    private static X509Certificate selfSigned(KeyPair pair, X500Principal name, String names)
            throws Exception {
        GeneralName[] alternatives = Arrays.stream(names.substring("SAN=".length()).split(","))
                .map(alternative -> new GeneralName(alternative.startsWith("ip:")
                        ? GeneralName.iPAddress : GeneralName.dNSName,
                        alternative.substring(alternative.indexOf(':') + 1)))
                .toArray(GeneralName[]::new);
        Instant now = Instant.now();
        X509CertificateHolder made = new JcaX509v3CertificateBuilder(name,
                new BigInteger(64, new SecureRandom()), Date.from(now),
                Date.from(now.plus(Duration.ofDays(30))), name, pair.getPublic())
                .addExtension(Extension.subjectAlternativeName, false,
                        new GeneralNames(alternatives))
                .build(new JcaContentSignerBuilder("SHA256withECDSA").build(pair.getPrivate()));
        return new JcaX509CertificateConverter().getCertificate(made);
    }

    private static Path pem(Path file, String what, byte[] bytes) throws Exception {
        return Files.writeString(file, "-----BEGIN " + what + "-----\n"
                + Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(bytes)
                + "\n-----END " + what + "-----\n");
    }

    /** For a client that shows it. */
    javax.net.ssl.KeyManager[] keys() throws Exception {
        KeyManagerFactory keys = KeyManagerFactory.getInstance("PKIX");
        keys.init(store, "secret".toCharArray());
        return keys.getKeyManagers();
    }

    /** Serves with the certificate, and trusts nothing else. */
    SSLContext context() throws Exception {
        KeyManagerFactory keys = KeyManagerFactory.getInstance("PKIX");
        keys.init(store, "secret".toCharArray());
        KeyStore trusted = KeyStore.getInstance("PKCS12");
        trusted.load(null, null);
        trusted.setCertificateEntry("a", store.getCertificate("a"));
        TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
        trust.init(trusted);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }
}
