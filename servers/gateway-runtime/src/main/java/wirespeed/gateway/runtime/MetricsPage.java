// The counters of all loops as a Prometheus page.
package wirespeed.gateway.runtime;

import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.binder.jvm.JvmGcMetrics;
import io.micrometer.core.instrument.binder.jvm.JvmMemoryMetrics;
import io.micrometer.core.instrument.binder.system.ProcessorMetrics;
import io.micrometer.prometheusmetrics.PrometheusConfig;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import java.util.Locale;
import java.util.function.ToLongFunction;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.core.Meters;

/** Nothing is counted here: a scrape adds up what each loop counted for itself. */
final class MetricsPage {
    private static final String PREFIX = "wirespeed.gateway.";

    private final PrometheusMeterRegistry registry =
            new PrometheusMeterRegistry(PrometheusConfig.DEFAULT);
    private final Gateway gateway;
    // Held, because the registry only refers to it weakly and GC events are counted in it.
    private final JvmGcMetrics gc = new JvmGcMetrics();

    MetricsPage(GatewayRuntime runtime) {
        gateway = runtime.gateway();
        for (Meters.Count count : Meters.Count.values()) {
            String name = PREFIX + count.name().toLowerCase(Locale.ROOT).replace('_', '.');
            if (count.name().endsWith("_OPEN")) {
                Gauge.builder(name, this, page -> page.sum(m -> m.get(count))).register(registry);
            } else {
                counter(name, m -> m.get(count));
            }
        }
        outcomes();
        latency();
        Gauge.builder(PREFIX + "in.flight", gateway, g -> g.inFlight().get()).register(registry);
        Gauge.builder(PREFIX + "snapshot", gateway, g -> g.snapshot().version())
                .register(registry);
        gateway.gauges().forEach((name, value) -> Gauge.builder(PREFIX + name, value,
                java.util.function.LongSupplier::getAsLong).register(registry));
        FunctionCounter.builder(PREFIX + "loops.blocked", runtime.watchDog(),
                LoopWatchDog::blocked).register(registry);
        FunctionCounter.builder(PREFIX + "filters.failed", runtime.folder(),
                FilterFolder::failures).register(registry);
        FunctionCounter.builder(PREFIX + "access.log.dropped", runtime,
                GatewayRuntime::droppedLines).register(registry);
        new JvmMemoryMetrics().bindTo(registry);
        new ProcessorMetrics().bindTo(registry);
        gc.bindTo(registry);
    }

    private void counter(String name, ToLongFunction<Meters> value, String... tags) {
        FunctionCounter.builder(name, this, page -> page.sum(value)).tags(tags).register(registry);
    }

    private long sum(ToLongFunction<Meters> value) {
        long sum = 0;
        for (Meters meters : gateway.meters()) {
            sum += value.applyAsLong(meters);
        }
        return sum;
    }

    private void outcomes() {
        for (Category category : Category.values()) {
            for (int hundred = 0; hundred <= 5; hundred++) {
                int status = hundred;
                counter(PREFIX + "requests", m -> m.get(category, status),
                        "category", category.label(),
                        "status", status == 0 ? "none" : status + "xx");
            }
        }
    }

    /** Cumulative buckets; "own" is the time that was not the origin's. */
    private void latency() {
        long[] bounds = Meters.boundsMicros();
        for (boolean isOwn : new boolean[] {false, true}) {
            String part = isOwn ? "own" : "total";
            for (int i = 0; i <= bounds.length; i++) {
                int last = i;
                counter(PREFIX + "latency.bucket", m -> upTo(m, isOwn, last), "part", part, "le",
                        i == bounds.length ? "+Inf" : String.valueOf(bounds[i] / 1e6));
            }
            counter(PREFIX + "latency.sum.micros", m -> m.latencySumMicros(isOwn), "part", part);
        }
    }

    private static long upTo(Meters meters, boolean isOwn, int last) {
        long sum = 0;
        for (int i = 0; i <= last; i++) {
            sum += meters.latency(isOwn, i);
        }
        return sum;
    }

    String scrape() {
        return registry.scrape();
    }
}
