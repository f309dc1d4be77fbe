// What a Eureka server says about a service, and what is none of its answers.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class EurekaClientTest {
    private static final EurekaClient CLIENT = new EurekaClient("http://127.0.0.1:8761/eureka");

    /** As a server of Spring Cloud Netflix 4 answers, without members that say nothing here. */
    private static String instance(String address, String status, boolean isPlain) {
        return "{\"instanceId\":\"i\",\"hostName\":\"h\",\"app\":\"SHOP\",\"ipAddr\":\"" + address
                + "\",\"status\":\"" + status + "\",\"overriddenStatus\":\"UNKNOWN\",\"port\":{\"$\":8080,"
                + "\"@enabled\":\"" + isPlain + "\"},\"securePort\":{\"$\":8443,\"@enabled\":\"" + !isPlain
                + "\"},\"countryId\":1}";
    }

    private static String answer(String instances) {
        return "{\"application\":{\"name\":\"SHOP\",\"instance\":" + instances + "}}";
    }

    private static EndpointResolver.Target target(String host, int port) {
        return new EndpointResolver.Target(host, port, 0, 1, 5);
    }

    @Test
    void instances_that_are_up_are_endpoints() {
        assertEquals(List.of(target("10.0.0.1", 8080), target("10.0.0.3", 8443)),
                CLIENT.instances(answer("[" + instance("10.0.0.1", "UP", true) + ","
                        + instance("10.0.0.2", "DOWN", true) + "," + instance("10.0.0.3", "UP", false) + "]"),
                        false));
        assertEquals(List.of(target("10.0.0.1", 8080)),
                CLIENT.instances(answer(instance("10.0.0.1", "UP", true)), false));
    }

    @Test
    void of_two_ports_that_are_enabled_the_origin_gets_the_one_that_it_speaks() {
        String both = answer(instance("10.0.0.1", "UP", true).replace("false", "true"));
        assertEquals(List.of(target("10.0.0.1", 8080)), CLIENT.instances(both, false));
        assertEquals(List.of(target("10.0.0.1", 8443)), CLIENT.instances(both, true));
        String plain = instance("10.0.0.1", "UP", true);
        for (String one : List.of(plain, plain.replace("securePort", "absent"))) {
            assertEquals(List.of(target("10.0.0.1", 8080)), CLIENT.instances(answer(one), true));
        }
    }

    @Test
    void a_malformed_instance_does_not_take_the_others_with_it() {
        String whole = instance("10.0.0.1", "UP", true);
        for (String bad : List.of(whole.replace("8080", "0"), instance("", "UP", true), "{\"status\":\"UP\"}", "1")) {
            assertEquals(List.of(target("10.0.0.1", 8080)),
                    CLIENT.instances(answer("[" + bad + "," + whole + "]"), false), bad);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "[]", "{}", "{\"application\":{}}", "{\"application\":{\"instance\":[1]}}",
        "{\"application\":{\"instance\":[{\"status\":\"UP\"}]}}",
        "{\"application\":{\"instance\":[{\"status\":\"UP\",\"ipAddr\":\"10.0.0.1\",\"port\":{\"$\":70000,"
            + "\"@enabled\":\"true\"}}]}}"})
    void any_other_answer_is_refused(String text) {
        assertThrows(IllegalArgumentException.class, () -> CLIENT.instances(text, false));
    }

    @ParameterizedTest
    @ValueSource(strings = {"127.0.0.1:8761", "http://user:secret@127.0.0.1:8761/eureka", "http://a/eureka?x"})
    void a_server_is_an_http_address(String text) {
        assertThrows(IllegalArgumentException.class, () -> EurekaClient.server(text));
    }
}
