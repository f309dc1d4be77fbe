// Chunk sizes that servers are known to read differently.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ChunkLineCheckTest {
    private static long size(String line) {
        return ChunkLineCheck.size(Ascii.bytes(line), 0, line.length());
    }

    @Test
    void reads_sizes_without_wrapping() {
        assertEquals(0, size("0"));
        assertEquals(255, size("fF"));
        assertEquals(0x100000005L, size("100000005"));
        assertEquals(5, size("5;a=b;c=\"d;\\\"e\""));
        assertEquals(5, size("00000005"));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "-1", "+1", "0x1", " 5", "5 ", "5 junk", "5\t", "g", "5;a\r",
        "5;a\n", "5;\"a", "5;\0", "1000000000000000", "5,5"})
    void refuses(String line) {
        assertEquals(400, assertThrows(Refusal.class, () -> size(line)).status());
    }
}
