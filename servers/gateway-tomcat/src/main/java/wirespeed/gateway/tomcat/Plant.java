// What all exchanges share.
package wirespeed.gateway.tomcat;

import wirespeed.gateway.core.BodyBudget;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.core.Meters;

/** Made once when the carrier is made. */
record Plant(Gateway gateway, Meters meters, OriginPool pool, Scratch.Pool scratches,
        Timeouts timeouts, int inFlightMax, BodyBudget budget) {
    static Plant of(Gateway gateway) {
        // Request threads share it: additions are atomic.
        Meters meters = new Meters(true);
        Timeouts timeouts = Timeouts.of(gateway);
        OriginPool pool = new OriginPool(gateway, meters, timeouts);
        gateway.meters().add(meters);
        gateway.pools().add(pool);
        BodyBudget budget = new BodyBudget(gateway.options("limits").bytes("held-bodies"));
        gateway.gauges().put("held.bodies.bytes", budget::bytes);
        return new Plant(gateway, meters, pool, new Scratch.Pool(), timeouts,
                gateway.options("limits").count("in-flight"), budget);
    }
}
