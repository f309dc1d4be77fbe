// What is a literal address and what is not.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.net.InetAddress;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class IpAddressTest {
    @ParameterizedTest
    @ValueSource(strings = {"0.0.0.0", "1.2.3.4", "255.255.255.255", "::", "::1", "1::", "2001:db8::1",
        "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "fe80::1%eth0", "::1.2.3.4",
        "1:2:3:4:5:6:1.2.3.4", "2001:DB8::aB"})
    void literals_are_read_as_the_platform_reads_them(String text) throws Exception {
        String plain = text.replaceAll("%.*", "");
        assertArrayEquals(InetAddress.getByName(plain).getAddress(), IpAddress.parse(text));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "1.2.3", "1.2.3.999", "1.2.3.4.5", "1.2.3.", ".1.2.3", "01.2.3.4",
        "1.2.3.-4", "a.b.c.d", "localhost", ":", ":::", "1:2", "1::2::3", "1:2:3:4:5:6:7:8:9",
        "1:2:3:4:5:6:7:8::", "12345::", "g::", "1:2:3:4:5:6:7:1.2.3.4", "::1.2.3.999", ":1::",
        "1:2:3:4:5:6:7:", "1.2.3.4:80", "[::1]", "::\u0131"})
    void anything_else_is_refused_without_a_lookup(String text) {
        assertNull(IpAddress.parse(text));
    }

    @Test
    void addresses_made_by_chance_are_read_as_the_platform_reads_them() throws Exception {
        Random random = new Random(7);
        for (int i = 0; i < 2000; i++) {
            byte[] bytes = new byte[random.nextBoolean() ? 4 : 16];
            random.nextBytes(bytes);
            for (int zero = random.nextInt(bytes.length); bytes.length == 16 && zero < 12; zero++) {
                bytes[zero] = 0;
            }
            String text = InetAddress.getByAddress(bytes).getHostAddress();
            assertArrayEquals(InetAddress.getByName(text).getAddress(), IpAddress.parse(text), text);
            assertEquals(text, IpAddress.text(bytes));
        }
    }

    @Test
    void a_hop_may_have_a_port() {
        assertArrayEquals(new byte[] {1, 2, 3, 4}, IpAddress.ofHop("1.2.3.4:40001"));
        assertArrayEquals(new byte[] {1, 2, 3, 4}, IpAddress.ofHop("::ffff:1.2.3.4"));
        assertArrayEquals(IpAddress.parse("2001:db8::1"), IpAddress.ofHop("[2001:db8::1]:400"));
        assertArrayEquals(IpAddress.parse("2001:db8::1"), IpAddress.ofHop("[2001:db8::1]"));
        for (String none : new String[] {"[::1", "[::1]x", "[::1]:", "1.2.3.4:", "1.2.3.4:123456",
            "1.2.3.4:x", "unknown", "_hidden", "[]"}) {
            assertNull(IpAddress.ofHop(none), none);
        }
    }
}
