// Times and counts of exchanges by route and origin, as Prometheus histograms.
package wirespeed.gateway.runtime;

import io.micrometer.core.instrument.Timer;
import io.micrometer.prometheusmetrics.PrometheusConfig;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import wirespeed.gateway.core.Context;
import wirespeed.gateway.core.FinishFilter;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Snapshot;
import wirespeed.gateway.core.Step;

/** Tags are names of the configuration and never anything that a client has said. */
final class RouteMetrics implements FinishFilter {
    private record Key(String route, String origin, int hundred) {
    }

    private static final String NOBODY = "none";
    private static final Duration[] BOUNDS = Arrays.stream(Meters.boundsMicros())
            .mapToObj(micros -> Duration.ofNanos(micros * 1000)).toArray(Duration[]::new);

    private final PrometheusMeterRegistry registry =
            new PrometheusMeterRegistry(PrometheusConfig.DEFAULT);
    private final Map<Key, Timer> whole = new ConcurrentHashMap<>();
    private final Map<String, Timer> origins = new ConcurrentHashMap<>();

    @Override
    public Phase phase() {
        return Phase.POST;
    }

    @Override
    public int order() {
        return 0;
    }

    @Override
    public String name() {
        return "metrics";
    }

    @Override
    public boolean shouldFilter(Context context) {
        return false;
    }

    @Override
    public Step apply(Context context) {
        return Step.NEXT;
    }

    @Override
    public void finished(Context context, int status, long nanos) {
        String origin = context.origin() == null ? NOBODY : context.origin().name();
        Key key = new Key(context.route() == null ? NOBODY : context.route().name(), origin,
                status / 100);
        Timer exchanges = whole.get(key);
        if (exchanges == null) {
            exchanges = whole.computeIfAbsent(key, this::timer);
        }
        exchanges.record(nanos, TimeUnit.NANOSECONDS);
        if (context.address() != null) {
            Timer responses = origins.get(origin);
            if (responses == null) {
                responses = origins.computeIfAbsent(origin, this::originTimer);
            }
            responses.record(context.originNanos(), TimeUnit.NANOSECONDS);
        }
    }

    private Timer timer(Key key) {
        return Timer.builder("wirespeed.gateway.route.exchanges")
                .description("From the request's head to the last byte of its answer")
                .tags("route", key.route(), "origin", key.origin(), "status",
                        key.hundred() == 0 ? NOBODY : key.hundred() + "xx")
                .serviceLevelObjectives(BOUNDS).register(registry);
    }

    private Timer originTimer(String origin) {
        return Timer.builder("wirespeed.gateway.origin.responses")
                .description("From asking an address of the origin to the end of its answer")
                .tags("origin", origin).serviceLevelObjectives(BOUNDS).register(registry);
    }

    /** Forgets what the configuration no longer names. */
    void keep(Snapshot snapshot) {
        Set<String> routes = snapshot.routes().routes().stream().map(route -> route.name())
                .collect(Collectors.toSet());
        routes.add(NOBODY);
        Set<String> named = new java.util.HashSet<>(snapshot.origins().keySet());
        named.add(NOBODY);
        forget(whole, key -> !routes.contains(key.route()) || !named.contains(key.origin()));
        forget(origins, name -> !named.contains(name));
    }

    private <K> void forget(Map<K, Timer> timers, Predicate<K> isUnknown) {
        timers.entrySet().removeIf(one -> {
            boolean isGone = isUnknown.test(one.getKey());
            if (isGone) {
                registry.remove(one.getValue());
            }
            return isGone;
        });
    }

    String scrape() {
        return registry.scrape();
    }
}
