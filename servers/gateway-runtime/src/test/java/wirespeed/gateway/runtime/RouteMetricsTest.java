// The cost of timing an exchange by route and origin.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Balancer;
import wirespeed.gateway.core.Chain;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.Forwarding;
import wirespeed.gateway.core.Headers;
import wirespeed.gateway.core.Limits;
import wirespeed.gateway.core.Networks;
import wirespeed.gateway.core.Origin;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.Route;
import wirespeed.gateway.core.RouteTable;
import wirespeed.gateway.core.Snapshot;

class RouteMetricsTest {
    private static final int TIMES = 20_000;
    private static final long BYTES_MAX = 64;

    private static Context context() {
        Address address = new Address("a", 80);
        Origin origin = new Origin("o", List.of(address), Balancer.Method.RANDOM_TWO,
                Origin.Settings.DEFAULT);
        Snapshot snapshot = new Snapshot(1, new Chain(List.of()), new RouteTable(List.of()),
                Map.of(), Limits.DEFAULT, new Forwarding("gw", Networks.NONE));
        Context context = new Context(snapshot, new Request("GET", "/", 1, new Headers()), 0);
        context.route(Route.toAll("all", origin));
        context.attempt(address);
        return context;
    }

    @Test
    void an_exchange_costs_no_more_than_its_key() {
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        RouteMetrics metrics = new RouteMetrics();
        Context context = context();
        long bytes = Long.MAX_VALUE;
        int rounds = 0;
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        // The first rounds are those of the interpreter, until the compiler had its turn.
        for (; bytes > BYTES_MAX && System.nanoTime() < end; rounds++) {
            long before = threads.getCurrentThreadAllocatedBytes();
            for (int i = 0; i < TIMES; i++) {
                metrics.finished(context, 200, 1_000_000 + i);
            }
            bytes = (threads.getCurrentThreadAllocatedBytes() - before) / TIMES;
        }
        assertTrue(bytes <= BYTES_MAX, bytes + " bytes for each exchange");
        assertTrue(metrics.scrape().contains(
                "wirespeed_gateway_route_exchanges_seconds_count{origin=\"o\",route=\"all\","
                        + "status=\"2xx\"} " + rounds * TIMES), metrics.scrape());
    }
}
