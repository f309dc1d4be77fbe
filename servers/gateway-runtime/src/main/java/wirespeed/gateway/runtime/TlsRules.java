// Which versions and ciphers clients may use.
package wirespeed.gateway.runtime;

import java.util.ArrayList;
import java.util.List;
import wirespeed.gateway.core.OptionValues;

/**
 * Read once from the options; both carriers hand it to their TLS.
 *
 * @param protocols by their names in Java
 * @param ciphers by their names in IANA's registry, those of TLS 1.3 first
 */
public record TlsRules(List<String> protocols, List<String> ciphers) {
    /** All of them are good, and clients that speak TLS 1.3 have all three. */
    private static final List<String> OF_TLS_13 = List.of("TLS_AES_128_GCM_SHA256",
            "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256");

    /** The rules of the section tls; a cipher that is not named as IANA does is refused. */
    public static TlsRules of(OptionValues tls) {
        boolean hasOld = tls.text("min-version").equals("1.2");
        List<String> ciphers = new ArrayList<>(OF_TLS_13);
        for (String cipher : tls.texts("ciphers")) {
            if (!cipher.matches("TLS_[A-Z0-9_]+_WITH_[A-Z0-9_]+")) {
                throw new IllegalArgumentException("tls.ciphers: \"" + cipher + "\" is not a cipher of"
                        + " TLS 1.2, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256");
            }
            if (hasOld) {
                ciphers.add(cipher);
            }
        }
        return new TlsRules(hasOld ? List.of("TLSv1.3", "TLSv1.2") : List.of("TLSv1.3"),
                List.copyOf(ciphers));
    }
}
