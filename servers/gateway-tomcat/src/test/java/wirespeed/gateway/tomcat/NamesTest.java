// The last answer about a name stands in for servers that do not answer.
package wirespeed.gateway.tomcat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.concurrent.TimeUnit;
import org.apache.hc.client5.http.DnsResolver;
import org.junit.jupiter.api.Test;

class NamesTest {
    private String failure;
    private String place = "127.0.0.1";
    private long nowNanos;

    private final Names names = new Names(new DnsResolver() {
        @Override
        public InetAddress[] resolve(String host) throws UnknownHostException {
            if (failure != null) {
                throw new UnknownHostException(failure);
            }
            return new InetAddress[] {InetAddress.getByName(place)};
        }

        @Override
        public String resolveCanonicalHostname(String host) {
            return host;
        }
    }, () -> nowNanos);

    private String find(String host) throws UnknownHostException {
        return names.resolve(host)[0].getHostAddress();
    }

    @Test
    void the_last_answer_is_used_while_there_is_no_other_one() throws Exception {
        assertEquals("127.0.0.1", find("a.test"));
        failure = "a.test: Temporary failure in name resolution";
        assertEquals("127.0.0.1", find("a.test"));
        failure = "a.test";
        assertEquals("127.0.0.1", find("a.test"));
        assertThrows(UnknownHostException.class, () -> find("b.test"));
        failure = null;
        place = "127.0.0.2";
        assertEquals("127.0.0.2", find("a.test"));
    }

    @Test
    void it_is_used_for_an_hour_at_most() throws Exception {
        find("a.test");
        failure = "a.test: Temporary failure in name resolution";
        nowNanos = TimeUnit.MINUTES.toNanos(59);
        find("a.test");
        nowNanos = TimeUnit.MINUTES.toNanos(60);
        assertThrows(UnknownHostException.class, () -> find("a.test"));
    }

    @Test
    void a_name_that_is_no_more_is_none_at_once() throws Exception {
        find("a.test");
        failure = "a.test: Name or service not known";
        assertThrows(UnknownHostException.class, () -> find("a.test"));
        failure = "a.test";
        assertThrows(UnknownHostException.class, () -> find("a.test"));
    }
}
