// ExchangeContract on gateway-tomcat with platform threads.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Files;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.runtime.Launcher;
import wirespeed.gateway.tomcat.Main;

class TomcatExchangeTest extends ExchangeContract {
    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    /** A loop on gateway-netty would not count this time. */
    @Test
    void an_address_that_a_filter_has_left_no_time_is_not_blamed() throws Exception {
        CountDownLatch isOver = new CountDownLatch(1);
        closedLater(isOver::countDown);
        origin.handler = RecordingOrigin.after(isOver);
        Files.writeString(folder.resolve("Holds.java"), """
                import wirespeed.gateway.core.*;
                public class Holds implements Filter {
                    public Phase phase() { return Phase.ROUTE; }
                    public int order() { return 5; }
                    public Step apply(Context context) {
                        long end = context.startNanos() + 300_000_000;
                        while (System.nanoTime() < end) {
                            java.util.concurrent.locks.LockSupport.parkNanos(end - System.nanoTime());
                        }
                        return Step.NEXT;
                    }
                }
                """);
        Carrier gateway = start("[origins.o]\naddresses = [\"127.0.0.1:" + origin.port()
                + "\"]\n[timeouts]\nexchange = \"200ms\"\n[filters]\nfolder = \"" + folder + "\"\n");
        assertEquals(504, client(gateway).get("/").status());
        assertEquals(0, gateway.runtime.gateway().snapshot().origins().get("o").addresses().get(0).failures());
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("tomcat.threads", "platform", "tomcat.max-keep-alive-requests", "-1");
    }
}
