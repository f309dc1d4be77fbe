// Tokens that are remembered take a bounded part of the heap, however long they are.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Snapshot;

class JwtMemoryTest {
    private static final byte[] SECRET = "0123456789abcdef0123456789abcdef".getBytes(StandardCharsets.UTF_8);
    /** More than are remembered of any length. */
    private static final int TOKENS = 12_000;
    private static final int MANY = 5_000;
    private static final long CHARS_MAX = 8 << 20;
    /** What a token counts at least: its map, with the strings and numbers in it. */
    private static final int CHARS_MIN = 800;

    @TempDir
    Path folder;
    private Authentication.Jwt filter;
    private Snapshot snapshot;

    private static String part(byte[] bytes) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(bytes);
    }

    private static String token(int number, int chars) throws Exception {
        String claims = "{\"exp\":4000000000,\"n\":" + number + ",\"fill\":\"" + "f".repeat(chars) + "\"}";
        String signed = part("{\"alg\":\"HS256\"}".getBytes()) + "." + part(claims.getBytes());
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(SECRET, "HmacSHA256"));
        return signed + "." + part(mac.doFinal(signed.getBytes()));
    }

    @BeforeEach
    void filter() throws Exception {
        Path keys = Files.writeString(folder.resolve("keys.json"), "{\"keys\":[{\"kty\":\"oct\",\"k\":\""
                + part(SECRET) + "\"}]}");
        Config config = ConfigReader.read("[origins.o]\naddresses = [\"h:1\"]\n[[filter]]\ntype = \"jwt\"\n"
                + "jwks = \"" + keys + "\"\nalgorithms = [\"HS256\"]\nissuer = \"*\"\naudience = \"*\"\n",
                "x.toml", Map.of(), Map.of());
        snapshot = new SnapshotBuilder().build(config, List.of());
        filter = (Authentication.Jwt) ShippedFilters.of(config.filters()).get(0);
    }

    @AfterEach
    void close() {
        filter.close();
    }

    private long remembered(int tokens, int chars) throws Exception {
        for (int i = 0; i < tokens; i++) {
            Headers headers = new Headers();
            headers.add("Authorization", "Bearer " + token(i, chars));
            assertTrue(filter.apply(new Context(snapshot, new Request("GET", "/", 1, headers), 0)).isNext());
        }
        return filter.remembered();
    }

    @Test
    void long_tokens_are_remembered_in_smaller_number() throws Exception {
        long remembered = remembered(2000, 5500);
        assertTrue(remembered > 0 && remembered * 5500 <= CHARS_MAX, remembered + " tokens");
    }

    @Test
    void short_tokens_count_with_the_memory_of_their_claims() throws Exception {
        long remembered = remembered(TOKENS, 1);
        assertTrue(remembered > MANY && remembered * CHARS_MIN <= CHARS_MAX, remembered + " tokens");
    }
}
