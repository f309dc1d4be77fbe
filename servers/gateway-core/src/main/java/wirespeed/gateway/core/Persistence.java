// Binds a client to an address of an origin.
package wirespeed.gateway.core;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * By a cookie that we insert, or by a header that carries an address. The cookie is a keyed hash of
 * the address, so that it neither reveals addresses nor lets a client choose one.
 */
public final class Persistence {
    /** What binds. */
    public enum Kind { NONE, COOKIE, HEADER }

    public static final Persistence NONE = new Persistence(Kind.NONE, "", new byte[] {0});

    private static final int TOKENS_MAX = 1000;

    private final Kind kind;
    private final String name;
    private final byte[] key;
    private volatile Map<String, String> tokens = Map.of();

    public Persistence(Kind kind, String name, byte[] key) {
        this.kind = kind;
        this.name = name;
        this.key = key.clone();
    }

    public Kind kind() {
        return kind;
    }

    /** Of the cookie or the header. */
    public String name() {
        return name;
    }

    /** The address that this request is bound to, whether usable or not; null for none. */
    Address bound(Context context, Origin origin) {
        if (kind == Kind.NONE) {
            return null;
        }
        Headers headers = context.request().headers();
        String token = kind == Kind.COOKIE ? Cookies.get(headers, name) : headers.get(name);
        if (token == null) {
            return null;
        }
        for (Address address : origin.endpoints()) {
            if (token.equals(kind == Kind.COOKIE ? token(address) : address.id())) {
                return address;
            }
        }
        return null;
    }

    /** Adds the cookie to a response when the client does not have the right one. */
    public void bind(Context context) {
        Address address = context.address();
        if (kind != Kind.COOKIE || address == null) {
            return;
        }
        String token = token(address);
        if (token.equals(Cookies.get(context.request().headers(), name))) {
            return;
        }
        boolean isSecure = context.request().clientScheme().equals("https");
        context.response().headers().add("Set-Cookie", name + "=" + token
                + "; Path=/; HttpOnly; SameSite=Lax" + (isSecure ? "; Secure" : ""));
    }

    /** Whether tokens for the same addresses are the same. */
    public boolean hasKeyOf(Persistence other) {
        return Arrays.equals(key, other.key);
    }

    String token(Address address) {
        String token = tokens.get(address.id());
        if (token == null) {
            token = sign(address.id());
            // Endpoints come and go.
            Map<String, String> grown = new HashMap<>(tokens.size() < TOKENS_MAX ? tokens : Map.of());
            grown.put(address.id(), token);
            tokens = Map.copyOf(grown);
        }
        return token;
    }

    private String sign(String id) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            byte[] hash = mac.doFinal(id.getBytes(StandardCharsets.UTF_8));
            return Base64.getUrlEncoder().withoutPadding().encodeToString(hash).substring(0, 22);
        } catch (java.security.GeneralSecurityException missing) {
            throw new IllegalStateException("every Java platform has HmacSHA256", missing);
        }
    }
}
