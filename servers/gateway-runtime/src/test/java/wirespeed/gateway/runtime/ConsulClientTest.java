// Answers of Consul's agents, whole and in part.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.junit.jupiter.api.Test;

class ConsulClientTest {
    private static final ConsulClient CLIENT = new ConsulClient("http://127.0.0.1:8500", "", Runnable::run);

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
                new EndpointResolver.Target("10.1.10.14", 8001, 0, 1, 0)), CLIENT.instances(ANSWER));
        assertEquals(List.of(), CLIENT.instances("[]"));
    }

    @Test
    void half_an_answer_is_none() {
        for (String bad : List.of("{}", "[1]", "[{}]", "[{\"Service\": {\"Port\": 1}}]",
                ANSWER.replace("8000}", "8000").replace("]}]", "]"),
                ANSWER.replace("8000,", "0,").replace("8001", "70000"))) {
            assertThrows(IllegalArgumentException.class, () -> CLIENT.instances(bad), bad);
        }
    }

    @Test
    void a_malformed_instance_is_left_out_by_its_name_and_the_others_serve() {
        List<EndpointResolver.Target> whole = List.of(new EndpointResolver.Target("10.1.10.13", 8000, 0, 10, 0));
        String second = ANSWER.replace("\"ID\": \"redis\", \"Address\"", "\"ID\": \"redis-2\", \"Address\"");
        ConsulClient client = new ConsulClient("http://127.0.0.1:8500", "", Runnable::run);
        List<String> said = new CopyOnWriteArrayList<>();
        Logger log = Logger.getLogger("wirespeed.gateway");
        Handler ear = new Handler() {
            @Override
            public void publish(LogRecord line) {
                // Threads of other tests may write theirs.
                if (line.getMessage().startsWith("consul instance")) {
                    said.add(line.getMessage());
                }
            }

            @Override
            public void flush() {
                // Nothing is kept back.
            }

            @Override
            public void close() {
                // Nothing is open.
            }
        };
        log.addHandler(ear);
        try {
            for (int i = 0; i < 3; i++) {
                assertEquals(whole, client.instances(second.replace("8001", "70000")));
            }
            assertEquals(1, said.size(), "the log says it with each answer");
            assertEquals(whole, client.instances(second.replace("8001", "0")));
            assertEquals(whole, client.instances(second.replace("\"10.1.10.14\"", "14")));
            assertEquals(whole, client.instances(second.replace("10.1.10.14", "10.1.10.14 x")));
            assertEquals(whole, client.instances(second.replace("redis-2", "a\\nb").replace("8001", "-1")));
            assertEquals(whole, client.instances(second.replaceFirst("\\[", "[{\"Node\": {}, \"Service\": {}}, ")
                    .replace("8001", "\"\"")));
        } finally {
            log.removeHandler(ear);
        }
        assertTrue(said.contains("consul instance \"redis-2\" is left out: its Port is not a number from 0 to 65535"),
                said.toString());
        assertTrue(said.contains("consul instance \"redis-2\" is left out: its port is not between 1 and 65535"),
                said.toString());
        assertTrue(said.contains("consul instance number 1 is left out: it has no address"), said.toString());
        assertTrue(said.stream().noneMatch(line -> line.contains("\n")), said.toString());
    }

    @Test
    void an_agent_is_an_address_of_http() {
        assertEquals("http://127.0.0.1:8500", ConsulClient.agent("http://127.0.0.1:8500").toString());
        for (String bad : List.of("127.0.0.1:8500", "consul", "ftp://a", "http://a/v1/health", "http://a?b", "")) {
            assertThrows(IllegalArgumentException.class, () -> ConsulClient.agent(bad), bad);
        }
    }
}
