// ShippedContract on gateway-netty.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.netty.handler.codec.http2.Http2Headers;
import java.nio.file.Files;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.netty.Main;
import wirespeed.gateway.runtime.Launcher;

class NettyShippedTest extends ShippedContract {
    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("server.transport", "epoll", "server.threads", "1");
    }

    @Test
    void an_origin_of_http2_gets_the_host_that_one_of_http1_gets() throws Exception {
        List<Http2Headers> heads = new CopyOnWriteArrayList<>();
        RawHttp2Origin http2 = closedLater(new RawHttp2Origin(connection -> {
            connection.frame(RawHttp2Origin.SETTINGS, 0, 0);
            while (true) {
                RawHttp2Origin.Frame head = connection.await(RawHttp2Origin.HEADERS);
                heads.add(connection.fields(head));
                connection.answer(head.stream(), "ok");
            }
        }));
        Files.writeString(folder.resolve("Other.java"), """
                import wirespeed.gateway.core.*;
                public class Other implements Filter {
                    public Phase phase() { return Phase.PRE; }
                    public int order() { return 5; }
                    public Step apply(Context context) {
                        context.request().host("c.internal");
                        return Step.NEXT;
                    }
                }
                """);
        String headers = "[[filter]]\ntype = \"headers\"\n";
        Map<String, String> cases = Map.of("", "a", headers + "request-remove = [\"Host\"]\n", "a",
                headers + "request-set = { Host = \"b.internal\" }\n", "b.internal",
                "[filters]\nfolder = \"" + folder + "\"\n", "a",
                "preserve-host = false\n", "127.0.0.1:" + http2.port());
        for (String more : cases.keySet()) {
            heads.clear();
            assertEquals("ok", client(start("[origins.o]\naddresses = [\"127.0.0.1:" + http2.port()
                    + "\"]\nhttp2 = \"prior-knowledge\"\n" + more)).get("/").body(), more);
            assertEquals(cases.get(more), heads.get(0).authority().toString(), more);
            assertNull(heads.get(0).get("host"), more);
        }
    }
}
