// Checks of some addresses do not disturb the others, and their changes lose no state.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
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
        Origin.Settings usual = Origin.Settings.DEFAULT;
        return new Origin("o", addresses, Balancer.Method.RANDOM_TWO, new Origin.Settings(
                usual.connectMillis(), usual.responseMillis(), usual.idleBodyMillis(),
                usual.connectionsMax(), usual.connectionRequestsMax(),
                usual.connectionAgeMillis(), usual.waitersMax(), 0, 1, false, true, false,
                "client", Persistence.NONE, new HealthCheck("/", intervalMillis, 110_000, 1, 1, 200, 299, ""),
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
