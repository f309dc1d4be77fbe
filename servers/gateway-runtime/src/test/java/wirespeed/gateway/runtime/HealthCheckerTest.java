// Checks of some addresses do not disturb the others, and their changes lose no state.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Balancer;
import wirespeed.gateway.core.HealthCheck;
import wirespeed.gateway.core.Origin;
import wirespeed.gateway.core.Persistence;
import wirespeed.gateway.core.Retry;

@Timeout(120)
class HealthCheckerTest {
    private static ServerSocket listener() throws Exception {
        return new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    }

    private static Address address(ServerSocket listener) {
        return new Address("127.0.0.1", listener.getLocalPort());
    }

    private static Origin checked(List<Address> addresses) {
        return checked(addresses, 100);
    }

    private static Origin checked(List<Address> addresses, int intervalMillis) {
        return checked(addresses, intervalMillis, "");
    }

    private static Origin checked(List<Address> addresses, int intervalMillis, String text) {
        Origin.Settings usual = Origin.Settings.DEFAULT;
        return new Origin("o", addresses, Balancer.Method.RANDOM_TWO, new Origin.Settings(
                usual.connectMillis(), usual.responseMillis(), usual.idleBodyMillis(),
                usual.connectionsMax(), usual.connectionRequestsMax(),
                usual.connectionAgeMillis(), usual.waitersMax(), 0, 1, false, true, false,
                "client", Persistence.NONE, new HealthCheck("/", intervalMillis, 110_000, 1, 1, 200, 299, text),
                Retry.DEFAULT, Origin.Http2.OFF, false, ""));
    }

    @Test
    void addresses_that_do_not_answer_do_not_hold_up_the_others() throws Exception {
        List<Address> addresses = new ArrayList<>();
        try (ServerSocket one = listener(); ServerSocket two = listener();
                ServerSocket three = listener(); ServerSocket well = listener();
                HealthChecker checker = new HealthChecker("")) {
            for (ServerSocket silent : List.of(one, two, three)) {
                addresses.add(address(silent));
            }
            Address good = address(well);
            good.checked(false);
            addresses.add(good);
            Thread answers = new Thread(() -> answer(well));
            answers.setDaemon(true);
            answers.start();
            checker.update(List.of(checked(addresses)));
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (!good.isChecked()) {
                assertTrue(System.nanoTime() < end, "not checked");
                Thread.sleep(10);
            }
        }
    }

    @Test
    void an_error_in_a_check_does_not_end_the_checks() throws Exception {
        java.util.logging.Logger logger = java.util.logging.Logger.getLogger("wirespeed.gateway");
        try (ServerSocket well = listener(); HealthChecker checker = new HealthChecker("")) {
            Address address = address(well);
            java.util.logging.Handler failing = new FailsOnce(address.id());
            logger.addHandler(failing);
            try {
                Thread answers = new Thread(() -> answer(well));
                answers.setDaemon(true);
                answers.start();
                address.checked(false);
                checker.update(List.of(checked(List.of(address))));
                for (int i = 0; i < 2; i++) {
                    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
                    while (!address.isChecked()) {
                        assertTrue(System.nanoTime() < end, "not checked " + i);
                        Thread.sleep(10);
                    }
                    address.checked(false);
                }
            } finally {
                logger.removeHandler(failing);
            }
        }
    }

    /** Throws an error out of the check that first logs something of an address. */
    private static final class FailsOnce extends java.util.logging.Handler {
        private final String address;
        private boolean hasFailed;

        FailsOnce(String address) {
            this.address = address;
        }

        @Override
        public void publish(java.util.logging.LogRecord record) {
            if (!hasFailed && record.getMessage().contains(address)) {
                hasFailed = true;
                throw new OutOfMemoryError("a test's");
            }
        }

        @Override
        public void flush() {
        }

        @Override
        public void close() {
        }
    }

    @Test
    void a_check_that_changes_says_nothing_about_its_address() throws Exception {
        try (ServerSocket silent = listener(); HealthChecker checker = new HealthChecker("")) {
            Address dead = address(silent);
            checker.update(List.of(checked(List.of(dead))));
            dead.checked(false);
            checker.update(List.of(checked(List.of(dead), 200)));
            assertFalse(dead.isChecked(), "another interval made it healthy");
            checker.update(List.of());
            assertTrue(dead.isChecked(), "its recovery would not be noticed");
        }
    }

    @Test
    void an_address_that_sends_interim_responses_or_stays_connected_is_healthy() throws Exception {
        for (String text : List.of("", "ok")) {
            try (ServerSocket listener = listener(); HealthChecker checker = new HealthChecker("")) {
                Thread answers = new Thread(() -> hold(listener));
                answers.setDaemon(true);
                answers.start();
                Address address = address(listener);
                address.checked(false);
                checker.update(List.of(checked(List.of(address), 100, text)));
                long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
                while (!address.isChecked()) {
                    assertTrue(System.nanoTime() < end, "not healthy: " + text);
                    Thread.sleep(10);
                }
            }
        }
    }

    private static void hold(ServerSocket listener) {
        List<Socket> open = new ArrayList<>();
        while (!listener.isClosed()) {
            try {
                open.add(listener.accept());
                open.get(open.size() - 1).getOutputStream().write(("HTTP/1.1 103 Early Hints\r\n\r\n"
                        + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").getBytes());
            } catch (java.io.IOException over) {
                return;
            }
        }
    }

    /** Of an address that answers so, and leaves the connection open. */
    private static boolean isGood(String answer, String text) throws Exception {
        try (ServerSocket listener = listener(); Socket asks = new Socket("127.0.0.1", listener.getLocalPort());
                Socket answers = listener.accept()) {
            answers.getOutputStream().write(answer.getBytes(StandardCharsets.ISO_8859_1));
            return new CheckAnswer(asks, new HealthCheck("/", 100, 100_000, 1, 1, 200, 299, text)).isGood();
        }
    }

    /** Of an answer that comes in these parts, and leaves the connection open. */
    private static boolean isGoodInParts(String text, String... parts) throws Exception {
        Iterator<String> rest = List.of(parts).iterator();
        InputStream input = new InputStream() {
            @Override
            public int read() {
                throw new UnsupportedOperationException();
            }

            @Override
            public int read(byte[] into, int at, int length) throws SocketTimeoutException {
                if (!rest.hasNext()) {
                    throw new SocketTimeoutException();
                }
                byte[] part = rest.next().getBytes(StandardCharsets.ISO_8859_1);
                System.arraycopy(part, 0, into, at, part.length);
                return part.length;
            }
        };
        try (Socket socket = new Socket() {
            @Override
            public InputStream getInputStream() {
                return input;
            }

            @Override
            public void setSoTimeout(int millis) {
                // No part is late.
            }
        }) {
            return new CheckAnswer(socket, new HealthCheck("/", 100, 100_000, 1, 1, 200, 299, text)).isGood();
        }
    }

    @Test
    void a_chunk_that_looks_like_the_last_one_is_not_the_end() throws Exception {
        String head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assertTrue(isGoodInParts("workers: 4", head + "a\r\nqueue: 0\r\n\r\n", "c\r\nworkers: 4\r\n\r\n"));
        assertFalse(isGoodInParts("ok", head + "2\r\nno\r\n0\r\n\r\n", "2\r\nok\r\n"));
        // Its trailers end the message, not the body.
        assertFalse(isGoodInParts("ok", head + "2\r\nno\r\n0\r\nA: b\r\n", "\r\n2\r\nok\r\n"));
    }

    @Test
    void sizes_of_chunks_may_begin_with_zeros() throws Exception {
        String head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assertTrue(isGoodInParts("ok", head + "00000040\r\n" + "x".repeat(64) + "\r\n000000000002;a=b\r\nok\r\n"
                + "00000000\r\n\r\n"));
        assertTrue(isGoodInParts("ok", head + "00000042\r\n" + "x".repeat(64) + "ok\r\n", "00000000\r\n\r\n"));
        assertFalse(isGoodInParts("ok", head + "00000000\r\n\r\n", "2\r\nok\r\n"));
        assertTrue(isGoodInParts("ok", head + "100000002\r\nok\r\n"));
    }

    @Test
    void interim_responses_say_nothing() throws Exception {
        String early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        assertTrue(isGood(early + "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n", ""));
        assertFalse(isGood(early + "HTTP/1.1 500 No\r\n", ""));
        assertTrue(isGood(early.repeat(8) + "HTTP/1.0 204 No Content\r\n", ""));
        assertFalse(isGood(early.repeat(9), ""));
        assertFalse(isGood("HTTP/1.1 101 Switching Protocols\r\n\r\n", ""));
        assertFalse(isGood("SSH-2.0-OpenSSH_9", ""));
    }

    @Test
    void a_body_ends_where_its_framing_says() throws Exception {
        String head = "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n";
        assertTrue(isGood(head + "Content-Length: 2\r\n\r\nok", "ok"));
        assertFalse(isGood(head + "content-length:3\r\n\r\nnook", "ok"));
        assertTrue(isGood(head + "Content-Length: 999\r\n\r\nall is ok", "ok"));
        assertFalse(isGood(head + "X: ok\r\nContent-Length: 0\r\n\r\n", "ok"));
        String chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
        assertTrue(isGood(chunked + "1\r\no\r\n1;a=b\r\nk\r\n", "ok"));
        assertFalse(isGood(chunked + "1\r\no\r\n0\r\n\r\n", "ok"));
        assertFalse(isGood(head + "\r\n" + "x".repeat(4096) + "ok", "ok"));
    }

    private static void answer(ServerSocket listener) {
        while (!listener.isClosed()) {
            try (Socket socket = listener.accept()) {
                socket.getOutputStream().write("HTTP/1.1 200 OK\r\n\r\n".getBytes());
            } catch (java.io.IOException over) {
                return;
            }
        }
    }
}
