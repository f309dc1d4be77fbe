// Filters that ask who a client is: signed tokens, and keys of programs.
package wirespeed.gateway.runtime;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import java.io.IOException;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import wirespeed.gateway.core.Ascii;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Response;
import wirespeed.gateway.core.Step;

/** They run in the phase PRE, and what they learn goes to the origin in fields that no client can set. */
final class Authentication {
    private static final List<String> ALGORITHMS = List.of("RS256", "RS384", "RS512", "PS256", "PS384",
            "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256", "HS384", "HS512");

    private Authentication() {
    }

    /** RFC 9110 §11.6.1: a 401 says how to do better. */
    static Step refused(Context context, String challenge, String reason) {
        context.category(Category.CLIENT_BAD);
        Response response = Response.of(401, "text/plain; charset=utf-8", "401 Unauthorized: "
                + reason + "\n");
        response.headers().add("WWW-Authenticate", challenge);
        return Step.respond(response);
    }

    /** {@code Authorization: Bearer} with a JSON Web Token. */
    static final class Jwt extends ShippedFilters.Scoped {
        /** Attribute under which later filters find the claims, as a map. */
        static final String CLAIMS = "jwt.claims";
        /** Of all tokens that are remembered. */
        private static final long REMEMBERED_CHARS = 8 << 20;
        /** What a token counts besides its own: maps of claims take memory, however short the values are. */
        private static final int CLAIMS_CHARS = 800;

        /** A token that was good by these keys: one that was withdrawn since must not count. */
        private record Known(Map<String, Object> claims, long endSeconds,
                List<JsonWebKeys.WebKey> by, int chars) {
        }

        private final JsonWebKeys keys;
        private final JsonWebToken.Rules rules;
        private final Map<String, String> claimHeaders;
        /** Verifying costs a tenth of a millisecond; most clients send one token many times. */
        private final Cache<KeyHash, Known> known = Caffeine.newBuilder().maximumWeight(REMEMBERED_CHARS)
                .weigher((KeyHash hash, Known token) -> token.chars() + CLAIMS_CHARS).build();

        Jwt(ShippedFilters.Scope scope, OptionValues values) {
            super(scope, Phase.PRE);
            for (String algorithm : values.texts("algorithms")) {
                if (!ALGORITHMS.contains(algorithm)) {
                    throw new IllegalArgumentException("algorithms: \"" + algorithm
                            + "\" is none of " + String.join(", ", ALGORITHMS));
                }
            }
            if (values.text("jwks").isEmpty() || values.texts("algorithms").isEmpty()) {
                throw new IllegalArgumentException("jwt needs jwks, a file or an address, and"
                        + " algorithms");
            }
            needed(values, "issuer", "the iss of its tokens");
            needed(values, "audience", "what their aud must hold");
            claimHeaders = values.table("claim-headers");
            claimHeaders.keySet().forEach(name -> new Headers().add(name, ""));
            rules = new JsonWebToken.Rules(values.texts("algorithms"), values.text("issuer"),
                    values.text("audience"), values.millis("leeway") / 1000);
            keys = new JsonWebKeys(values.text("jwks"));
        }

        /** Without it tokens that the issuer made for another service would pass (RFC 8725 §3.9). */
        private static void needed(OptionValues values, String name, String meaning) {
            if (values.text(name).isEmpty()) {
                throw new IllegalArgumentException("jwt needs " + name + ", " + meaning
                        + " (\"" + JsonWebToken.ANY + "\" for any)");
            }
        }

        @Override
        public Step apply(Context context) {
            Headers headers = context.request().headers();
            claimHeaders.keySet().forEach(headers::remove);
            List<String> lines = headers.all("Authorization");
            if (lines.size() != 1 || !lines.get(0).regionMatches(true, 0, "Bearer ", 0, 7)) {
                return refused(context, "Bearer", "a token is missing");
            }
            String token = lines.get(0).substring(7).trim();
            List<JsonWebKeys.WebKey> now = keys.known();
            return now == null ? Step.later(keys.fetch(), () -> again(context, KeyHash.of(token), token))
                    : check(context, token, now);
        }

        private Step check(Context context, String token, List<JsonWebKeys.WebKey> set) {
            KeyHash hash = KeyHash.of(token);
            long now = System.currentTimeMillis() / 1000;
            Known before = known.getIfPresent(hash);
            boolean isKnown = before != null && before.by() == set
                    && before.endSeconds() + rules.leewaySeconds() > now;
            if (isKnown) {
                return accepted(context, before.claims());
            }
            try {
                return remembered(context, hash, token, set, JsonWebToken.check(token, set, rules, now));
            } catch (JsonWebToken.UnknownKey maybeNew) {
                return keys.mayChange() ? Step.later(keys.fetch(), () -> again(context, hash, token))
                        : invalid(context, "unknown key");
            } catch (JsonWebToken.Invalid wrong) {
                return invalid(context, wrong.getMessage());
            }
        }

        /** With the keys as they are now. */
        private Step again(Context context, KeyHash hash, String token) {
            List<JsonWebKeys.WebKey> set = keys.known();
            if (set == null) {
                // No fault of the token: a 401 would make its client throw it away.
                return Step.fail(503, new IllegalStateException("the issuer's keys are unknown"));
            }
            try {
                return remembered(context, hash, token, set, JsonWebToken.check(token, set, rules,
                        System.currentTimeMillis() / 1000));
            } catch (JsonWebToken.UnknownKey none) {
                return invalid(context, "unknown key");
            } catch (JsonWebToken.Invalid wrong) {
                return invalid(context, wrong.getMessage());
            }
        }

        private static Step invalid(Context context, String reason) {
            return refused(context, "Bearer error=\"invalid_token\"", "token: " + reason);
        }

        private Step remembered(Context context, KeyHash hash, String token,
                List<JsonWebKeys.WebKey> set, Map<String, Object> claims) {
            known.put(hash, new Known(claims, JsonWebToken.end(claims), set, token.length()));
            return accepted(context, claims);
        }

        /** How many tokens are remembered. */
        long remembered() {
            known.cleanUp();
            return known.estimatedSize();
        }

        private Step accepted(Context context, Map<String, Object> claims) {
            context.attribute(CLAIMS, claims);
            claimHeaders.forEach((name, claim) -> {
                Object value = claims.get(claim);
                boolean isPlain = value instanceof String || value instanceof BigDecimal
                        || value instanceof Boolean;
                String text = String.valueOf(value);
                if (isPlain && Ascii.isValue(text)) {
                    context.request().headers().set(name, text);
                }
            });
            return Step.NEXT;
        }

        @Override
        public void close() {
            keys.close();
        }
    }

    /** A key in a field, of which the gateway knows only the hash. */
    static final class ApiKey extends ShippedFilters.Scoped {
        private final Map<ByteBuffer, String> names = new HashMap<>();
        private final String header;
        private final String identityHeader;

        ApiKey(ShippedFilters.Scope scope, OptionValues values) {
            super(scope, Phase.PRE);
            header = values.text("key-header");
            identityHeader = values.text("identity-header");
            new Headers().add(header, "");
            if (!identityHeader.isEmpty()) {
                new Headers().add(identityHeader, "");
            }
            String file = values.text("keys-file");
            try {
                for (String line : Files.readAllLines(Path.of(file))) {
                    read(line.trim());
                }
            } catch (IOException unreadable) {
                throw new IllegalArgumentException("keys-file \"" + file + "\" cannot be read: "
                        + unreadable.getMessage(), unreadable);
            }
        }

        private void read(String line) {
            if (line.isEmpty() || line.startsWith("#")) {
                return;
            }
            String[] words = line.split("\\s+");
            if (words.length != 2 || !words[1].matches("[0-9a-fA-F]{64}") || !Ascii.isValue(words[0])) {
                throw new IllegalArgumentException("keys-file: write NAME and the SHA-256 of its key in"
                        + " hexadecimal on each line");
            }
            names.put(ByteBuffer.wrap(java.util.HexFormat.of().parseHex(
                    words[1].toLowerCase(java.util.Locale.ROOT))), words[0]);
        }

        /** Found by its hash: how long that takes says nothing about the key. */
        @Override
        public Step apply(Context context) {
            Headers headers = context.request().headers();
            List<String> keys = headers.all(header);
            headers.remove(header);
            if (!identityHeader.isEmpty()) {
                headers.remove(identityHeader);
            }
            String name = keys.size() == 1 ? names.get(ByteBuffer.wrap(sha256(keys.get(0)))) : null;
            if (name == null) {
                return refused(context, "ApiKey", keys.isEmpty() ? "a key is missing"
                        : "the key is unknown");
            }
            if (!identityHeader.isEmpty()) {
                headers.set(identityHeader, name);
                context.request().authenticate();
            }
            return Step.NEXT;
        }

        private static byte[] sha256(String text) {
            try {
                return java.security.MessageDigest.getInstance("SHA-256").digest(
                        text.getBytes(StandardCharsets.ISO_8859_1));
            } catch (java.security.NoSuchAlgorithmException missing) {
                throw new IllegalStateException("every Java platform has SHA-256", missing);
            }
        }
    }
}
