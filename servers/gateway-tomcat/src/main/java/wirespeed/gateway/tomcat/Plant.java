// The parts that all exchanges share.
package wirespeed.gateway.tomcat;

import java.util.concurrent.Executor;
import java.util.concurrent.Semaphore;
import org.apache.tomcat.util.threads.VirtualThreadExecutor;
import wirespeed.gateway.core.BodyBudget;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.core.Meters;

/**
 * Made once when the carrier is made.
 *
 * @param tunnels how many connections may switch protocols
 * @param tunnelThreads runs the half of a tunnel that reads from the client
 */
record Plant(Gateway gateway, Meters meters, OriginPool pool, Scratch.Pool scratches,
        Timeouts timeouts, int inFlightMax, BodyBudget budget, Semaphore tunnels,
        Executor tunnelThreads) {
    static Plant of(Gateway gateway) {
        // Request threads share it: additions are atomic.
        Meters meters = new Meters(true);
        Timeouts timeouts = Timeouts.of(gateway);
        OriginPool pool = new OriginPool(gateway, meters, timeouts);
        gateway.meters().add(meters);
        gateway.pools().add(pool);
        BodyBudget budget = new BodyBudget(gateway.options("limits").bytes("held-bodies"));
        gateway.gauges().put("held.bodies.bytes", budget::bytes);
        boolean isVirtual = gateway.options("tomcat").text("threads").equals("virtual");
        return new Plant(gateway, meters, pool, new Scratch.Pool(), timeouts,
                gateway.options("limits").count("in-flight"), budget,
                new Semaphore(gateway.options("tomcat").count("max-tunnels")),
                isVirtual ? new VirtualThreadExecutor("gateway-tunnel") : Plant::onThread);
    }

    private static void onThread(Runnable half) {
        Thread thread = new Thread(half, "gateway-tunnel");
        thread.setDaemon(true);
        thread.start();
    }
}
