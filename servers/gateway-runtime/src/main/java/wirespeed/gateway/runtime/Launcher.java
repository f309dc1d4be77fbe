// The command line of both carriers.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.core.OptionPage;
import wirespeed.gateway.core.OptionValues;

/** Reads flags, starts a carrier, and stops it when the process is asked to end. */
public final class Launcher {
    /** What a carrier offers. */
    public interface Carrier {
        /**
         * Listens at all addresses of the gateway or, when it may not at one of them, at none; the
         * answer has the ports that were taken.
         */
        List<InetSocketAddress> start();

        /** Stops; the answer is how many exchanges were cut. */
        int stop(long drainMillis);

        /** One line about how it runs. */
        String describe();
    }

    /** Makes a carrier for a gateway. */
    public interface Factory {
        Carrier make(Gateway gateway);
    }

    private static final int BAD_INPUT = 2;
    private static final long CLOSE_MILLIS_MAX = 10_000;
    private final String name;
    private final Map<String, String> shortcuts = new LinkedHashMap<>();
    private final Map<String, Object> flags = new LinkedHashMap<>();
    private final List<String> origins = new ArrayList<>();
    private String configFile;
    private boolean isCheck;
    private String newFilter;
    /** Null until it was read. */
    private Config config;

    private Launcher(String name, Map<String, String> own) {
        this.name = name;
        shortcuts.put("--listen", "server.listen");
        shortcuts.put("--transport", "server.transport");
        shortcuts.put("--threads", "server.threads");
        shortcuts.put("--admin", "admin.listen");
        shortcuts.put("--filters", "filters.folder");
        shortcuts.putAll(own);
    }

    /**
     * Runs until SIGTERM; the answer is the exit code.
     *
     * @param own flags of this carrier, "--flag" to "section.name"
     */
    public static int run(String name, String[] arguments, Map<String, String> own,
            Factory factory) {
        Launcher launcher = new Launcher(name, own);
        try {
            if (List.of(arguments).contains("--help")) {
                System.out.print(launcher.help());
                return 0;
            }
            if (List.of(arguments).contains("--version")) {
                System.out.println(name + " " + version() + " (Java "
                        + System.getProperty("java.version") + ")");
                return 0;
            }
            launcher.parse(arguments);
            if (launcher.newFilter != null) {
                System.out.println(FilterProject.make(Path.of(launcher.newFilter), ownJar()));
                return 0;
            }
            return launcher.isCheck ? launcher.check() : launcher.serve(factory);
        } catch (ConfigError | IllegalArgumentException bad) {
            System.err.println(name + ": " + launcher.located(bad.getMessage()));
            return BAD_INPUT;
        } catch (Exception failed) {
            // Netty throws a refused bind as it is, without declaring it.
            System.err.println(name + ": " + failed.getMessage());
            return 1;
        }
    }

    /** Where this class is: a jar, or a folder of classes. */
    private static Path ownJar() throws URISyntaxException {
        return Path.of(Launcher.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    }

    /** Of the jar that holds this class; classes in a folder have none. */
    private static String version() {
        String version = Launcher.class.getPackage().getImplementationVersion();
        return version == null ? "of a build folder" : version;
    }

    /** Where the options of a message stand in the file, if they do. */
    private String located(String message) {
        return config == null || message == null ? message : config.located(message);
    }

    /** Everything that a start would refuse, and nothing that it would open. */
    private int check() {
        ConfigStore store = store();
        config = store.check(store.text());
        GatewayRuntime.check(config);
        System.out.println(configFile + " is valid: origins " + config.origins().size() + ", routes "
                + config.routes().size() + ", filters " + config.filters().size());
        return 0;
    }

    private String help() {
        StringBuilder help = new StringBuilder("usage: " + name + " [--config FILE]"
                + " [--origin HOST:PORT…] [FLAGS]\n\n"
                + "  --config FILE     TOML file with options, listeners, origins, routes and filters\n"
                + "  --check FILE      check such a file and exit; 2 when a start would refuse it\n"
                + "  --new-filter DIR  make a Maven project for filters in a new folder and exit\n"
                + "  --version         print the version and exit\n"
                + "  --origin ADDR     an address behind one route for everything; repeatable\n"
                + "  --set KEY=VALUE   any option below\n");
        shortcuts.forEach((flag, key) -> help.append(String.format("  %-16s  %s%n", flag, key)));
        return help.append("\nOptions (also as WIRESPEED_GATEWAY_… in the environment):\n")
                .append(OptionPage.help(List.of("server", "limits", "timeouts", "tls", "admin", "tracing",
                        "cache", "filters", "tomcat"))).toString();
    }

    private void parse(String[] arguments) {
        for (int i = 0; i < arguments.length; i++) {
            String flag = arguments[i];
            int equals = flag.indexOf('=');
            String value;
            if (flag.startsWith("--") && equals > 0) {
                value = flag.substring(equals + 1);
                flag = flag.substring(0, equals);
            } else if (i + 1 < arguments.length) {
                value = arguments[++i];
            } else {
                throw new ConfigError(flag + ": missing value (see --help)");
            }
            take(flag, value);
        }
    }

    private void take(String flag, String value) {
        if (flag.equals("--config") || flag.equals("--check")) {
            isCheck |= flag.equals("--check");
            configFile = value;
        } else if (flag.equals("--new-filter")) {
            newFilter = value;
        } else if (flag.equals("--origin")) {
            origins.add(value);
        } else if (flag.equals("--set")) {
            int equals = value.indexOf('=');
            if (equals < 0) {
                throw new ConfigError("--set " + value + ": not KEY=VALUE");
            }
            flags.put(value.substring(0, equals), value.substring(equals + 1));
        } else if (shortcuts.containsKey(flag)) {
            flags.put(shortcuts.get(flag), value);
        } else {
            throw new ConfigError("unknown flag " + flag + " (see --help)");
        }
    }

    private ConfigStore store() {
        if (configFile != null && !origins.isEmpty()) {
            throw new ConfigError("--origin: does not work with --config (remove one)");
        }
        Path file = configFile == null ? null : Path.of(configFile);
        try {
            String text = file == null ? fromFlags() : Files.readString(file);
            return new ConfigStore(file, text, System.getenv(), flags);
        } catch (IOException e) {
            throw new ConfigError("--config " + configFile + ": cannot be read: " + e);
        }
    }

    private String fromFlags() {
        if (origins.isEmpty()) {
            throw new ConfigError("no origin (write --origin HOST:PORT or --config FILE)");
        }
        StringBuilder text = new StringBuilder("[origins.origin]\naddresses = [");
        for (String origin : origins) {
            text.append('"').append(origin.replaceAll("[\"\\\\]", "")).append("\", ");
        }
        return text.append("]\n").toString();
    }

    private int serve(Factory factory) {
        ConfigStore store = store();
        config = store.check(store.text());
        try (GatewayRuntime runtime = new GatewayRuntime(config)) {
            Carrier carrier = factory.make(runtime.gateway());
            runtime.restore(store);
            runtime.start();
            // One that is taken must not end a process that serves already.
            runtime.openAdmin(store);
            String addresses = carrier.start().stream()
                    .map(one -> one.getHostString() + ":" + one.getPort())
                    .collect(Collectors.joining(" and "));
            runtime.startAdmin(store);
            runtime.follow(store);
            // Its default would end the process; log rotation and reloads send it.
            sun.misc.Signal.handle(new sun.misc.Signal("HUP"), signal -> runtime.hangUp());
            endAtSignal(runtime, carrier);
            System.out.println(name + " listens on " + addresses + " (" + carrier.describe() + ")"
                    + (runtime.adminAddress() == null ? "" : ", admin on "
                    + runtime.adminAddress().getHostString() + ":"
                    + runtime.adminAddress().getPort())
                    + (config.table("admin").text("socket").isEmpty() ? "" : ", admin on "
                    + config.table("admin").text("socket")));
            System.out.flush();
            awaitEnd();
        }
        return 0;
    }

    /** The hook holds the JVM until the drain is over. */
    private void endAtSignal(GatewayRuntime runtime, Carrier carrier) {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                int cut = drain(runtime.gateway(), carrier);
                if (cut > 0) {
                    System.err.println(name + ": " + cut + " exchanges were cut after "
                            + runtime.gateway().options("server").millis("drain") + " ms");
                }
                close(runtime);
            } finally {
                // Exit code 0 for a stop that was asked for: without this it would be 143.
                Runtime.getRuntime().halt(0);
            }
        }, "stop"));
    }

    /** Nobody comes back from here. */
    private static void awaitEnd() {
        try {
            new CountDownLatch(1).await();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /**
     * Stops a carrier as SIGTERM does: for server.drain-delay only /ready changes, then the listener
     * closes.
     *
     * @return how many exchanges were cut
     */
    public static int drain(Gateway gateway, Carrier carrier) {
        OptionValues server = gateway.options("server");
        gateway.leave();
        pause(server.millis("drain-delay"));
        return carrier.stop(server.millis("drain"));
    }

    /** Writes what logs and spans still hold; a filter that does not close delays nothing else. */
    private static void close(GatewayRuntime runtime) {
        Thread closing = new Thread(runtime::close, "close");
        closing.setDaemon(true);
        closing.start();
        try {
            closing.join(CLOSE_MILLIS_MAX);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static void pause(long millis) {
        long end = System.nanoTime() + millis * 1_000_000;
        for (long left = millis * 1_000_000; left > 0; left = end - System.nanoTime()) {
            java.util.concurrent.locks.LockSupport.parkNanos(left);
        }
    }
}
