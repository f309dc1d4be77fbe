// Which addresses lie in which networks.
package wirespeed.gateway.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class NetworksTest {
    @ParameterizedTest
    @CsvSource({"10.0.0.0/8, 10.255.0.1, true", "10.0.0.0/8, 11.0.0.1, false",
        "192.0.2.128/25, 192.0.2.127, false", "192.0.2.128/25, 192.0.2.200, true",
        "192.0.2.1, 192.0.2.1, true", "192.0.2.1, 192.0.2.2, false", "0.0.0.0/0, 8.8.8.8, true",
        "0.0.0.0/0, ::1, false", "2001:db8::/33, 2001:db8:8000::, false", "::1, [::1], true",
        "2001:db8::/33, 2001:db8:7fff::, true", "10.0.0.0/8, ::ffff:10.1.1.1, true",
        "10.0.0.0/8, unknown, false", "10.0.0.0/8, _hidden, false", "10.0.0.0/8, 10.1, false"})
    void an_address_lies_in_a_network_or_not(String network, String address, boolean isIn) {
        assertEquals(isIn, Networks.parse(List.of(network)).contains(address));
    }

    @ParameterizedTest
    @CsvSource({"10.0.0.0/33", "localhost", "10.0.0.0/", "10.0/8", "::1/129", "/8", "10.0.0.256"})
    void an_invalid_network_is_refused(String text) {
        assertThrows(IllegalArgumentException.class, () -> Networks.parse(List.of(text)));
    }

    @Test
    void no_networks_hold_nothing() {
        assertEquals(false, Networks.NONE.contains("127.0.0.1"));
    }
}
