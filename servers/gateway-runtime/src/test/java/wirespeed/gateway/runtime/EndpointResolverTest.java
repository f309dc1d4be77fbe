// The endpoints of a name after an answer that lacks a part.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.core.Address;

class EndpointResolverTest {
    private static List<String> hosts(Address address) {
        return address.endpoints().stream().map(Address::host).toList();
    }

    @Test
    void endpoints_of_ipv6_stay_while_the_question_for_them_is_not_answered() {
        Address shop = new Address("shop.test", 80);
        shop.lead(List.of("10.0.0.1", "2001:db8:0:0:0:0:0:1"), 0);
        EndpointResolver.Found partial = new EndpointResolver.Found(List.of("10.0.0.2"), 1, false);
        assertEquals(List.of("10.0.0.2", "2001:db8:0:0:0:0:0:1"),
                EndpointResolver.literals(partial, shop));
        EndpointResolver.Found whole = new EndpointResolver.Found(List.of("10.0.0.2"), 1, true);
        assertEquals(List.of("10.0.0.2"), EndpointResolver.literals(whole, shop));
        assertEquals(List.of("10.0.0.1", "2001:db8:0:0:0:0:0:1"), hosts(shop));
    }
}
