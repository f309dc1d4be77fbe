// Ties configuration, filters, checks, watch and admin to one gateway.
package wirespeed.gateway.runtime;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;
import wirespeed.gateway.core.Filter;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.core.Listener;
import wirespeed.gateway.core.OptionTable;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Phase;
import wirespeed.gateway.core.Snapshot;

/**
 * Snapshots are built here and nowhere else, one at a time: by a new configuration, and by changed
 * filters in the folder.
 */
public final class GatewayRuntime implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger("wirespeed.gateway");

    private final SnapshotBuilder builder = new SnapshotBuilder();
    /** Snapshots that exchanges may still use. */
    private final List<Snapshot> old = new CopyOnWriteArrayList<>();
    /** Filters that no new exchange runs, and an old one may. */
    private final List<Filter> dropped = new CopyOnWriteArrayList<>();
    private final FilterFolder folder;
    private final HealthChecker checker;
    private final EndpointResolver resolver;
    private final LoopWatchDog watchDog;
    private final Gateway gateway;
    private final ContentCache cache;
    /** Null without an admin port, which is the only way to read them. */
    private final RouteMetrics routeMetrics;
    /** Null without a collector. */
    private final Tracing tracing;
    private AddressStates states;
    private AdminServer admin;
    private ConfigReload reload;
    private Config config;
    private List<Filter> shipped;
    /** By the access logs of earlier configurations. */
    private long droppedBefore;

    /** A runtime with its first snapshot; nothing listens and no thread runs yet. */
    public GatewayRuntime(Config config) {
        this.config = config;
        // First: a refused listener leaves no file and no thread open.
        List<Listener> listeners = Listening.of(config);
        cache = config.table("cache").isTrue("enabled") ? new ContentCache(config.table("cache"))
                : null;
        routeMetrics = hasAdmin(config) ? new RouteMetrics() : null;
        tracing = Tracing.of(config.table("tracing"));
        folder = new FilterFolder(config.table("filters"), this::foldersFilters);
        folder.loadNow();
        FileFolders.check(config);
        shipped = ShippedFilters.of(config.filters());
        Snapshot first = build(config, shipped);
        gateway = new Gateway(config.single(), listeners, first);
        if (cache != null) {
            gateway.gauges().put("cache.collecting.bytes", cache::collectingBytes);
        }
        watchDog = new LoopWatchDog(gateway, this::closeUnused);
        checker = new HealthChecker(config.table("tls").text("origin-ca"));
        resolver = new EndpointResolver(config.table("server"), this::endpointsMoved);
    }

    /**
     * Called by a thread of the resolver: checks go on with the endpoints that there are now. Not while a
     * configuration is applied, or the checks of the one before would replace its own.
     */
    private synchronized void endpointsMoved() {
        checker.update(gateway.snapshot().origins().values());
    }

    /** Refuses what a start would refuse; opens no log, no socket and no thread. */
    static void check(Config config) {
        List<String> mistakes = new ArrayList<>();
        List<Filter> filters = new ArrayList<>();
        collect(mistakes, () -> FileFolders.check(config));
        collect(mistakes, () -> filters.addAll(ShippedFilters.of(config.filters(), true)));
        collect(mistakes, () -> {
            FilterFolder folder = new FilterFolder(config.table("filters"), none -> { });
            folder.loadNow();
            filters.addAll(folder.filters());
        });
        collect(mistakes, () -> new SnapshotBuilder().build(config, filters));
        collect(mistakes, () -> ServerCertificate.of(config.table("tls")));
        collect(mistakes, () -> TlsRules.of(config.table("tls")));
        collect(mistakes, () -> Listening.check(config));
        if (!mistakes.isEmpty()) {
            throw config.located(new ConfigError(mistakes));
        }
    }

    private static void collect(List<String> mistakes, Runnable part) {
        try {
            part.run();
        } catch (ConfigError bad) {
            mistakes.addAll(bad.mistakes());
        } catch (IllegalArgumentException bad) {
            mistakes.add(bad.getMessage());
        }
    }

    private List<Filter> filters(List<Filter> fromConfig) {
        List<Filter> all = new ArrayList<>(fromConfig);
        all.addAll(folder.filters());
        if (cache != null) {
            all.addAll(cache.filters());
        }
        if (routeMetrics != null) {
            all.add(routeMetrics);
        }
        if (tracing != null) {
            all.add(tracing);
        }
        return all;
    }

    public Gateway gateway() {
        return gateway;
    }

    /** Starts checks, watches and the admin port. */
    public void start() {
        folder.start();
        resolver.update(gateway.snapshot().origins().values());
        checker.update(gateway.snapshot().origins().values());
        watchDog.start();
    }

    /** Takes over what operators said about addresses; before a carrier listens. */
    public void restore(ConfigStore store) {
        if (hasAdmin(config)) {
            states = new AddressStates(this, store.file());
            states.restore();
        }
    }

    private static boolean hasAdmin(Config config) {
        OptionValues admin = config.table("admin");
        return !admin.text("listen").isEmpty() || !admin.text("socket").isEmpty();
    }

    /** Takes the admin port and its socket, if they are configured; nothing is answered yet. */
    public void openAdmin(ConfigStore store) {
        if (states == null) {
            restore(store);
        }
        if (hasAdmin(config)) {
            admin = new AdminServer(this, store, states, config.table("admin"));
        }
    }

    /** Answers at the admin port and its socket, if they are configured. */
    public void startAdmin(ConfigStore store) {
        if (admin == null) {
            openAdmin(store);
        }
        if (admin != null) {
            admin.start();
        }
    }

    /** Follows the configuration file from now on. */
    public void follow(ConfigStore store) {
        reload = new ConfigReload(this, store);
        reload.start();
    }

    /** What SIGHUP asks for: logs are opened again and the configuration is read again. */
    public void hangUp() {
        reload.hangUp();
    }

    /** Called after the operator or logrotate has renamed the logs. */
    void reopenLogs() {
        for (Phase phase : Phase.values()) {
            for (Filter filter : filters(phase)) {
                if (filter instanceof AccessLog log) {
                    log.reopen();
                }
            }
        }
    }

    /** The address of the admin port; null without one, or with a socket only. */
    public java.net.InetSocketAddress adminAddress() {
        return admin == null ? null : admin.address();
    }

    synchronized Config config() {
        return config;
    }

    /** Checks a configuration completely and makes it current; exchanges end on the old one. */
    synchronized void apply(Config next) {
        notReloadable(next);
        try {
            replace(next);
        } catch (ConfigError refused) {
            throw next.located(refused);
        }
    }

    private void replace(Config next) {
        FileFolders.check(next);
        List<Filter> fresh = ShippedFilters.of(next.filters());
        Snapshot snapshot = build(next, fresh);
        droppedBefore = droppedLines();
        swap(snapshot, shipped);
        gateway.options(next.single());
        shipped = fresh;
        config = next;
        if (routeMetrics != null) {
            routeMetrics.keep(snapshot);
        }
        resolver.update(snapshot.origins().values());
        checker.update(snapshot.origins().values());
    }

    /** Refused, it closes the filters, of which some have a file and a thread. */
    private Snapshot build(Config next, List<Filter> fresh) {
        try {
            return builder.build(next, filters(fresh));
        } catch (RuntimeException refused) {
            fresh.forEach(GatewayRuntime::close);
            throw refused;
        }
    }

    /** Options that hold a socket or a thread need a restart. */
    private void notReloadable(Config next) {
        List<String> mistakes = new ArrayList<>();
        for (wirespeed.gateway.core.Option option : OptionTable.all()) {
            if (!option.reloadable() && next.single().containsKey(option.section())
                    && !String.valueOf(value(config, option)).equals(
                            String.valueOf(value(next, option)))) {
                mistakes.add(option.key() + " cannot change without a restart");
            }
        }
        if (!listeners(config).equals(listeners(next))) {
            mistakes.add("[[listener]] cannot change without a restart");
        }
        if (!mistakes.isEmpty()) {
            throw new NotReloadable(mistakes);
        }
    }

    /** Their options as text, to be compared. */
    private static List<String> listeners(Config config) {
        return config.listeners().stream().map(values -> OptionTable.section("listener").stream()
                .map(option -> String.valueOf(values.raw(option.name())))
                .collect(Collectors.joining("\n"))).toList();
    }

    private static Object value(Config config, wirespeed.gateway.core.Option option) {
        return config.table(option.section()).raw(option.name());
    }

    /** Called by the folder's thread when filters were added, changed or removed. */
    private synchronized void foldersFilters(List<Filter> dropped) {
        swap(builder.build(config, filters(shipped)), dropped);
    }

    private void swap(Snapshot next, List<Filter> unused) {
        Snapshot before = gateway.snapshot();
        gateway.swap(next);
        old.add(before);
        dropped.addAll(unused);
        closeUnused();
    }

    /** Closes what no exchange can reach any more; called regularly. */
    void closeUnused() {
        old.removeIf(Snapshot::isUnused);
        for (Filter filter : dropped) {
            // A long stream keeps the filters of its own snapshot, and those of no later one.
            boolean isReachable = old.stream().anyMatch(one -> one.chain().has(filter));
            if (!isReachable && dropped.remove(filter)) {
                close(filter);
            }
        }
    }

    /** How many snapshots besides the current one may still be in use. */
    int oldSnapshots() {
        return old.size();
    }

    static void close(Filter filter) {
        try {
            filter.close();
        } catch (RuntimeException | Error failed) {
            LOG.log(System.Logger.Level.WARNING, "filter " + filter.name()
                    + " failed to close: " + failed);
        }
    }

    SnapshotBuilder builder() {
        return builder;
    }

    FilterFolder folder() {
        return folder;
    }

    RouteMetrics routeMetrics() {
        return routeMetrics;
    }

    ContentCache cache() {
        return cache;
    }

    /** Lines of access logs that were dropped since the start. */
    synchronized long droppedLines() {
        return droppedBefore + shipped.stream().filter(AccessLog.class::isInstance)
                .mapToLong(log -> ((AccessLog) log).dropped()).sum();
    }

    /** The filters of a phase as the admin port shows them. */
    List<Filter> filters(Phase phase) {
        return gateway.snapshot().chain().filters(phase);
    }

    LoopWatchDog watchDog() {
        return watchDog;
    }

    @Override
    public void close() {
        folder.close();
        checker.close();
        resolver.close();
        watchDog.close();
        if (reload != null) {
            reload.close();
        }
        if (admin != null) {
            admin.close();
        }
        shipped.forEach(GatewayRuntime::close);
        if (tracing != null) {
            tracing.close();
        }
    }
}
