// Copies of requests for another service, on every carrier.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

abstract class MirrorContract extends CarrierContract {
    private RecordingOrigin mirror;

    @BeforeEach
    void mirror() throws IOException {
        mirror = closedLater(new RecordingOrigin());
    }

    private Carrier gateway(String more) {
        return start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port() + "\"]\n"
                + "[[route]]\nprefix = \"/shop\"\norigins = [\"o\"]\nstrip-prefix = true\n"
                + "[[filter]]\ntype = \"mirror\"\ntimeout = \"10m\"\nurl = \"http://127.0.0.1:"
                + mirror.port() + "\"\n" + more);
    }

    private static void awaitCopies(RecordingOrigin mirror, int copies) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(120);
        while (mirror.seen.size() < copies) {
            assertTrue(System.nanoTime() < end, mirror.seen.size() + " copies");
            Thread.sleep(5);
        }
        assertEquals(copies, mirror.seen.size());
    }

    @Test
    void the_service_gets_what_the_origin_gets_and_its_answer_goes_nowhere() throws Exception {
        mirror.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 500, "X-Secret: s\r\n", "no");
            return true;
        };
        Carrier gateway = gateway("[[filter]]\ntype = \"headers\"\nrequest-set = { X-Plan = \"gold\" }\n");
        RawClient client = client(gateway);
        client.send("GET /shop/a%20b?c=d HTTP/1.1\r\nHost: shop.example\r\ncookie: a=b\r\n"
                + "Authorization: Basic YTpi\r\nX-Trace: 7\r\n\r\n");
        RawClient.Answer answer = client.read();
        assertEquals("GET /a%20b?c=d HTTP/1.1|", answer.body());
        assertEquals(null, answer.header("X-Secret"));
        awaitCopies(mirror, 1);
        RecordingOrigin.Seen copy = mirror.seen.get(0);
        assertEquals("GET /a%20b?c=d HTTP/1.1", copy.line());
        assertEquals("gold", copy.header("X-Plan"));
        assertEquals("7", copy.header("X-Trace"));
        assertEquals("a=b", origin.seen.get(0).header("Cookie"));
        assertNull(copy.header("Cookie"));
        assertNull(copy.header("Authorization"));
        assertEquals("127.0.0.1", copy.header("X-Forwarded-For"));
        assertEquals("shop.example", copy.header("X-Forwarded-Host"));
        assertEquals("127.0.0.1:" + mirror.port(), copy.header("Host"));
    }

    @Test
    void a_copy_lacks_the_fields_that_its_table_names_and_no_others() throws Exception {
        Carrier gateway = gateway("remove-headers = [\"X-Secret\"]\n");
        RawClient client = client(gateway);
        client.send("GET /shop/ HTTP/1.1\r\nHost: a\r\nCookie: a=b\r\nX-Secret: s\r\n\r\n");
        assertEquals(200, client.read().status());
        awaitCopies(mirror, 1);
        assertEquals("a=b", mirror.seen.get(0).header("Cookie"));
        assertNull(mirror.seen.get(0).header("X-Secret"));
    }

    @Test
    void a_copy_that_leads_back_to_the_gateway_is_refused() throws Exception {
        Carrier gateway = gateway("");
        RawClient client = client(gateway);
        client.send("GET /shop/ HTTP/1.1\r\nHost: a\r\nVia: 1.1 proxy\r\n\r\n");
        assertEquals(200, client.read().status());
        awaitCopies(mirror, 1);
        String head = mirror.seen.get(0).head();
        assertTrue(head.contains("1.1 proxy"), head);
        client.send("GET /shop/ HTTP/1.1\r\nHost: a\r\n" + head.lines().filter(line ->
                line.regionMatches(true, 0, "Via:", 0, 4)).collect(Collectors.joining("\r\n"))
                + "\r\n\r\n");
        assertEquals(508, client.read().status());
        assertEquals(200, client(gateway).get("/shop/last").status());
        awaitCopies(mirror, 2);
    }

    @Test
    void the_field_that_ends_loops_is_in_each_copy() throws Exception {
        Carrier gateway = gateway("remove-headers = [\"via\", \"X-Secret\"]\n");
        assertEquals(200, client(gateway).get("/shop/").status());
        awaitCopies(mirror, 1);
        String via = mirror.seen.get(0).header("Via");
        RawClient client = client(gateway);
        client.send("GET /shop/ HTTP/1.1\r\nHost: a\r\nVia: " + via + "\r\n\r\n");
        assertEquals(508, client.read().status(), via);
    }

    @Test
    void small_bodies_of_known_length_are_copied_and_no_others() throws Exception {
        Carrier gateway = gateway("mirror-body = \"10B\"\n");
        RawClient client = client(gateway);
        for (String body : new String[] {"0123456789", "0123456789x"}) {
            client.send("POST /shop/" + body.length() + " HTTP/1.1\r\nHost: a\r\nContent-Length: "
                    + body.length() + "\r\n\r\n" + body);
            assertEquals("POST /" + body.length() + " HTTP/1.1|" + body, client.read().body());
        }
        client.send("POST /shop/chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                + "2\r\nab\r\n0\r\n\r\n");
        assertEquals("POST /chunked HTTP/1.1|ab", client.read().body());
        // The last to be copied: those before it were, or never are.
        assertEquals(200, client.get("/shop/last").status());
        awaitCopies(mirror, 2);
        assertEquals(1, mirror.seen.stream().filter(one -> one.line().startsWith("POST /10 ")
                && one.body().equals("0123456789")).count());
        assertEquals(1, mirror.seen.stream().filter(one -> one.line().startsWith("GET /last ")).count());
    }

    @Test
    void a_service_that_is_silent_holds_up_no_request_and_gets_no_more_copies() throws Exception {
        mirror.handler = (seen, out, socket) -> true;
        Carrier gateway = gateway("");
        RawClient client = client(gateway);
        for (int i = 0; i < 150; i++) {
            assertEquals(200, client.get("/shop/" + i).status());
        }
        awaitCopies(mirror, 100);
        assertEquals(200, client.get("/shop/more").status());
        awaitCopies(mirror, 100);
    }

    @Test
    void what_is_refused_or_not_chosen_is_not_copied() throws Exception {
        RecordingOrigin none = closedLater(new RecordingOrigin());
        Carrier gateway = gateway("[[filter]]\ntype = \"mirror\"\npercent = 0\nurl = \"http://127.0.0.1:"
                + none.port() + "/\"\n[[filter]]\ntype = \"ip\"\nprefix = \"/shop/secret\"\ndeny = [\"127.0.0.0/8\"]\n"
                + "[[filter]]\ntype = \"static-response\"\nprefix = \"/shop/own\"\nbody = \"own\"\n"
                + "[[filter]]\ntype = \"rate-limit\"\nprefix = \"/shop/limited\"\nkey = [\"route\"]\n"
                + "rate = 1\nburst = 1\n[[filter]]\ntype = \"mirror\"\nprefix = \"/shop/last\"\nurl = "
                + "\"http://127.0.0.1:" + none.port() + "\"\n");
        assertEquals(403, client(gateway).get("/shop/secret").status());
        assertEquals("own", client(gateway).get("/shop/own").body());
        assertEquals(404, client(gateway).get("/elsewhere").status());
        int passed = 0;
        // A limit that counts only what has a route; a slow machine has a token again now and then.
        while (client(gateway).get("/shop/limited").status() == 200) {
            passed++;
        }
        assertEquals(200, client(gateway).get("/shop/fine").status());
        awaitCopies(mirror, passed + 1);
        // Copies come later than answers: what was wrongly copied is there before this one.
        assertEquals(200, client(gateway).get("/shop/last").status());
        awaitCopies(mirror, passed + 2);
        awaitCopies(none, 1);
        assertEquals(passed, copies("/limited"));
        assertEquals(1, copies("/fine"));
        assertEquals(1, copies("/last"));
        assertEquals("GET /last HTTP/1.1", none.seen.get(0).line());
    }

    private long copies(String path) {
        return mirror.seen.stream().filter(one -> one.line().startsWith("GET " + path + " ")).count();
    }

    @Test
    void responses_of_the_cache_are_not_copied_unless_the_table_says_an_order() throws Exception {
        origin.handler = (seen, out, socket) -> {
            RecordingOrigin.respond(out, 200, "Cache-Control: max-age=1000\r\n", "kept");
            return true;
        };
        RecordingOrigin early = closedLater(new RecordingOrigin());
        Carrier gateway = gateway("[[filter]]\ntype = \"mirror\"\norder = 5\nurl = \"http://127.0.0.1:"
                + early.port() + "\"\n[cache]\nenabled = true\n");
        RawClient client = client(gateway);
        for (int i = 0; i < 3; i++) {
            assertEquals("kept", client.get("/shop/kept").body());
        }
        assertEquals(1, origin.seen.size());
        awaitCopies(early, 3);
        assertEquals(200, client.get("/shop/last").status());
        awaitCopies(mirror, 2);
        assertEquals(1, copies("/kept"));
        assertEquals(1, copies("/last"));
    }
}
