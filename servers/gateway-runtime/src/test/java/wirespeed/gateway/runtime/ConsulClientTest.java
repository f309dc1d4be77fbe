// Answers of Consul's agents, whole and in part.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.junit.jupiter.api.Test;

class ConsulClientTest {
    /** The form of the answer in Consul's documentation of /v1/health/service, with an instance at its node. */
    private static final String ANSWER = """
            [{"Node": {"ID": "40e4a748", "Node": "foobar", "Address": "10.1.10.12", "Datacenter": "dc1",
               "TaggedAddresses": {"lan": "10.1.10.12"}, "Meta": {"instance_type": "t2.medium"}},
              "Service": {"ID": "redis", "Service": "redis", "Tags": ["primary"], "Address": "10.1.10.13",
               "TaggedAddresses": {"lan": {"address": "10.1.10.13", "port": 8000}},
               "Meta": {"redis_version": "4.0"}, "Port": 8000, "Weights": {"Passing": 10, "Warning": 1}},
              "Checks": [{"Node": "foobar", "CheckID": "service:redis", "Status": "passing", "Output": ""}]},
             {"Node": {"Node": "other", "Address": "10.1.10.14"},
              "Service": {"ID": "redis", "Address": "", "Port": 8001}, "Checks": []}]
            """;

    @Test
    void instances_have_their_own_address_or_that_of_their_node() {
        assertEquals(List.of(new EndpointResolver.Target("10.1.10.13", 8000, 0, 10, 0),
                new EndpointResolver.Target("10.1.10.14", 8001, 0, 1, 0)), ConsulClient.instances(ANSWER));
        assertEquals(List.of(), ConsulClient.instances("[]"));
    }

    @Test
    void half_an_answer_is_none() {
        for (String bad : List.of("{}", "[1]", "[{}]", "[{\"Service\": {\"Port\": 1}}]",
                ANSWER.replace("8000}", "8000").replace("]}]", "]"), ANSWER.replace("8001", "70000"),
                ANSWER.replace("\"10.1.10.14\"", "14"))) {
            assertThrows(IllegalArgumentException.class, () -> ConsulClient.instances(bad), bad);
        }
    }

    @Test
    void an_agent_is_an_address_of_http() {
        assertEquals("http://127.0.0.1:8500", ConsulClient.agent("http://127.0.0.1:8500").toString());
        for (String bad : List.of("127.0.0.1:8500", "consul", "ftp://a", "http://a/v1/health", "http://a?b", "")) {
            assertThrows(IllegalArgumentException.class, () -> ConsulClient.agent(bad), bad);
        }
    }
}
