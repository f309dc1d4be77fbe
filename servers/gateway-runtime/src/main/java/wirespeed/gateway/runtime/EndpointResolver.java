// Follows the names of origins: each address that a name leads to is an endpoint.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.NetworkInterface;
import java.net.SocketException;
import java.net.UnknownHostException;
import java.security.Security;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.IpAddress;
import wirespeed.gateway.core.OptionValues;
import wirespeed.gateway.core.Origin;

/**
 * Names are asked for again when their time to live is over, after one second at least and thirty at
 * most; Consul reports each change of its services. While no server answers, the known endpoints stay for
 * an hour (RFC 8767); an answer that the name does not exist counts at once, except Eureka's. Lookups
 * block, on threads of their own; no exchange waits for one.
 */
final class EndpointResolver implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger("wirespeed.gateway");
    private static final int SECONDS_MIN = 1;
    private static final int SECONDS_MAX = 30;
    /** The platform's resolver does not say how long an answer is valid. */
    private static final int SYSTEM_SECONDS = 5;
    private static final long STALE_NANOS = TimeUnit.HOURS.toNanos(1);
    private static final long ABSENT_NANOS = TimeUnit.SECONDS.toNanos(EurekaClient.ABSENT_SECONDS);
    private static final int THREADS_MAX = 16;

    static {
        if (Security.getProperty("networkaddress.cache.ttl") == null) {
            // Otherwise the JVM repeats an answer for 30 seconds.
            Security.setProperty("networkaddress.cache.ttl", String.valueOf(SECONDS_MIN));
        }
    }

    /**
     * Where a name leads.
     *
     * @param literals addresses as text; none for a name without any
     * @param seconds how long that is valid
     * @param isWhole false where the question for addresses of IPv6 was not answered
     */
    record Found(List<String> literals, int seconds, boolean isWhole) {
    }

    /**
     * A server of a service (RFC 2782).
     *
     * @param priority the lowest is used, the others are reserves
     * @param weight share among the servers of one priority
     * @param seconds how long that is valid
     */
    record Target(String host, int port, int priority, int weight, int seconds) {
        private static final Pattern HOST = Pattern.compile("[A-Za-z0-9._:%-]{1,253}");

        /** Refuses what leads nowhere, and what must be in no question and no line of a log. */
        Target {
            boolean isHost = HOST.matcher(host).matches()
                    && (host.indexOf(':') < 0 || IpAddress.parse(host) != null);
            if (!isHost) {
                throw new IllegalArgumentException("its address is neither an IP address nor a name");
            }
            if (port < 1 || port > 65_535) {
                throw new IllegalArgumentException("its port is not between 1 and 65535");
            }
        }
    }

    /**
     * The servers of a service.
     *
     * @param targets none where it is not offered
     * @param seconds how long the absence of further targets is valid
     */
    record Service(List<Target> targets, int seconds) {
    }

    /** One way of resolving; {@link UnknownHostException} means that the name does not exist. */
    interface Lookup {
        Found find(String host) throws IOException;

        default Service findTargets(String service) throws IOException {
            throw new IOException("services are found by server.dns only");
        }
    }

    /** How agents of Consul are asked. */
    interface Agents {
        ConsulClient agent(String address, String token, Executor readers);
    }

    private final Lookup lookup;
    /** Null where no service is Consul's. */
    private final ConsulClient consul;
    /** Null where no service is Eureka's. */
    private final EurekaClient eureka;
    /** Null where no service is in a file. */
    private final EndpointFile file;
    private final Runnable moved;
    private final LongSupplier clock;
    private final Map<Address, Followed> followed = new IdentityHashMap<>();
    private final ScheduledThreadPoolExecutor threads = new ScheduledThreadPoolExecutor(1, task -> {
        Thread thread = new Thread(task, "endpoints");
        thread.setDaemon(true);
        return thread;
    });

    /**
     * Follows nothing yet.
     *
     * @param server options: the name servers, none for the platform's resolver, and where services are known
     * @param moved called when a name leads elsewhere
     */
    EndpointResolver(OptionValues server, Runnable moved) {
        this(server, moved, System::nanoTime);
    }

    /** With a clock of a test's for how old the last answers are. */
    EndpointResolver(OptionValues server, Runnable moved, LongSupplier clock) {
        this(server, moved, clock, ConsulClient::new);
    }

    /** With an agent of a test's, too. */
    EndpointResolver(OptionValues server, Runnable moved, LongSupplier clock, Agents agents) {
        this.clock = clock;
        List<String> servers = server.texts("dns");
        this.lookup = servers.isEmpty() ? EndpointResolver::bySystem
                : new DnsClient(servers.stream().map(EndpointResolver::server).toList());
        this.consul = server.text("consul").isEmpty() ? null
                : agents.agent(server.text("consul"), server.text("consul-token"), threads);
        this.eureka = server.text("eureka").isEmpty() ? null : new EurekaClient(server.text("eureka"));
        this.file = server.text("endpoints").isEmpty() ? null : new EndpointFile(server.text("endpoints"));
        this.moved = moved;
        threads.setRemoveOnCancelPolicy(true);
    }

    /** A DNS server of the configuration; refuses a name, which another server would have to resolve. */
    static InetSocketAddress server(String text) {
        int colon = text.lastIndexOf(':');
        if (colon < 0 || IpAddress.parse(text.substring(0, colon).replaceAll("^\\[|\\]$", "")) == null) {
            throw new IllegalArgumentException("server.dns: \"" + text
                    + "\" is not an address and a port, such as 127.0.0.1:53");
        }
        Address address = Address.parse(text);
        return new InetSocketAddress(address.host(), address.port());
    }

    private static Found bySystem(String host) throws IOException {
        try {
            return new Found(Arrays.stream(InetAddress.getAllByName(host))
                    .map(InetAddress::getAddress).map(IpAddress::text).toList(), SYSTEM_SECONDS,
                    true);
        } catch (UnknownHostException failed) {
            String text = String.valueOf(failed.getMessage());
            // Only the words of the C library distinguish an unknown name from a missing answer.
            if (text.endsWith("Name or service not known")
                    || text.endsWith("No address associated with hostname")) {
                throw failed;
            }
            throw new IOException(text, failed);
        }
    }

    /**
     * Addresses of a server.
     *
     * @param nanos System.nanoTime at which they were found
     * @param seconds how long they are valid; 0 where the answer lacked a part
     */
    private record Known(List<String> literals, long nanos, int seconds) {
    }

    private final class Followed implements Runnable {
        final Address address;
        final boolean isEncrypted;
        /** By the names of a service's servers. */
        private final Map<String, Known> known = new HashMap<>();
        /** Servers of a service that are not found: the log names each once. */
        private final Set<String> leftOut = new HashSet<>();
        private ScheduledFuture<?> next;
        private long foundNanos = clock.getAsLong();
        /** When Eureka last said anything but that it does not know the service, or nothing. */
        private long notAbsentNanos = foundNanos;
        private boolean isStopped;
        /** Consul's answer that is waited for, and the index of the last one. */
        private CompletableFuture<ConsulClient.Answer> asked;
        private long index;

        Followed(Address address, boolean isEncrypted) {
            this.address = address;
            this.isEncrypted = isEncrypted;
        }

        void schedule(int seconds) {
            synchronized (followed) {
                if (!isStopped) {
                    next = threads.schedule(this, seconds * Seconds.nanos, TimeUnit.NANOSECONDS);
                }
            }
        }

        void stop() {
            isStopped = true;
            if (next != null) {
                next.cancel(false);
            }
            if (asked != null) {
                asked.cancel(true);
            }
        }

        @Override
        public void run() {
            if ("consul".equals(address.registry())) {
                askConsul();
                return;
            }
            boolean isEureka = "eureka".equals(address.registry());
            int seconds = SECONDS_MIN;
            try {
                int valid = lookUp();
                foundNanos = clock.getAsLong();
                notAbsentNanos = foundNanos;
                seconds = Math.max(SECONDS_MIN, Math.min(SECONDS_MAX, valid));
            } catch (UnknownHostException none) {
                if (!isEureka || clock.getAsLong() - notAbsentNanos > ABSENT_NANOS) {
                    lead(List.of());
                }
            } catch (IOException | RuntimeException unanswered) {
                notAbsentNanos = clock.getAsLong();
                unanswered(unanswered);
            } finally {
                // Also after an error: no other thread would ever ask again.
                schedule(seconds);
            }
        }

        /** The answer is for how many seconds that is valid. */
        private int lookUp() throws IOException {
            if ("eureka".equals(address.registry())) {
                return Math.min(EurekaClient.POLL_SECONDS,
                        leadToService(eureka.find(address.name(), isEncrypted)));
            }
            if ("file".equals(address.registry())) {
                return Math.min(EndpointFile.POLL_SECONDS, leadToService(file.find(address.name())));
            }
            if (!address.isService()) {
                return leadToHost();
            }
            Service service = lookup.findTargets(address.host());
            return Math.min(service.seconds(), leadToService(service.targets()));
        }

        private void unanswered(Throwable cause) {
            synchronized (followed) {
                // After the end no answer is needed any more.
                if (isStopped) {
                    return;
                }
            }
            ThrottledLog.line("the name " + address.host() + " is not answered: " + cause.getMessage());
            if (clock.getAsLong() - foundNanos > STALE_NANOS) {
                lead(List.of());
            }
        }

        private void askConsul() {
            try {
                synchronized (followed) {
                    if (!isStopped) {
                        asked = consul.ask(address.name(), index);
                        // Not here, even if it is there already: it may lead to who waits for this lock.
                        asked.whenCompleteAsync(this::answered, threads);
                    }
                }
            } catch (RuntimeException unasked) {
                answered(null, unasked);
            }
        }

        /** On a thread of the resolver. */
        private void answered(ConsulClient.Answer answer, Throwable failed) {
            synchronized (followed) {
                if (isStopped) {
                    return;
                }
            }
            try {
                if (failed != null) {
                    throw new IOException(failed.getCause() == null ? failed : failed.getCause());
                }
                leadToService(answer.instances());
                foundNanos = clock.getAsLong();
                index = answer.index();
            } catch (IOException | RuntimeException unanswered) {
                index = 0;
                unanswered(unanswered);
            } finally {
                schedule(SECONDS_MIN);
            }
        }

        private int leadToHost() throws IOException {
            Found found = lookup.find(address.host());
            List<String> before = address.endpoints().stream().map(Address::host).toList();
            lead(reachable(literals(found, before)).stream().map(one ->
                    new Address.Endpoint(one, address.port(), 1, false)).toList());
            return found.seconds();
        }

        /** A target without an address is left out while there are others. */
        private int leadToService(List<Target> targets) throws IOException {
            List<Address.Endpoint> all = new ArrayList<>();
            int seconds = SECONDS_MAX;
            IOException failed = null;
            for (Target target : targets) {
                try {
                    Found found = IpAddress.parse(target.host()) == null ? find(target.host())
                            : new Found(List.of(target.host()), SECONDS_MAX, true);
                    seconds = Math.min(seconds, Math.min(target.seconds(), found.seconds()));
                    reachable(found.literals()).forEach(one -> all.add(endpoint(one, target, targets)));
                    leftOut.remove(target.host());
                } catch (IOException unanswered) {
                    failed = unanswered;
                    if (leftOut.add(target.host())) {
                        ThrottledLog.line("the name " + address.host() + ": its server " + target.host()
                                + " is left out: " + unanswered.getMessage());
                    }
                }
            }
            if (all.isEmpty() && failed != null) {
                throw failed;
            }
            List<String> hosts = targets.stream().map(Target::host).toList();
            known.keySet().retainAll(hosts);
            leftOut.retainAll(hosts);
            lead(all);
            return seconds;
        }

        /** A server whose name is not answered keeps its addresses, as one that is not of a service does. */
        private Found find(String host) throws IOException {
            Known last = known.get(host);
            long held = last == null ? 0 : TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - last.nanos());
            if (last != null && held < last.seconds()) {
                return new Found(last.literals(), (int) (last.seconds() - held), true);
            }
            try {
                Found found = lookup.find(host);
                List<String> literals = literals(found, last == null ? List.of() : last.literals());
                known.put(host, new Known(literals, System.nanoTime(),
                        found.isWhole() ? Math.min(SECONDS_MAX, found.seconds()) : 0));
                return new Found(literals, found.seconds(), true);
            } catch (UnknownHostException none) {
                known.remove(host);
                throw none;
            } catch (IOException unanswered) {
                if (last == null || System.nanoTime() - last.nanos() > STALE_NANOS) {
                    throw unanswered;
                }
                ThrottledLog.line("the name " + host + " is not answered: " + unanswered.getMessage());
                return new Found(last.literals(), SECONDS_MIN, true);
            }
        }

        private void lead(List<Address.Endpoint> all) {
            if (address.leadTo(all, System.nanoTime() / 1_000_000)) {
                LOG.log(System.Logger.Level.INFO, "the name " + address.host() + " leads to "
                        + (all.isEmpty() ? "nothing" : all.stream().map(one -> one.literal() + " port "
                        + one.port()).collect(Collectors.joining(", "))));
                moved.run();
            }
        }
    }

    /** Weights of services go up to 65,535, and 0 means seldom. */
    static Address.Endpoint endpoint(String literal, Target target, List<Target> all) {
        int most = all.stream().mapToInt(Target::weight).max().orElse(1);
        int first = all.stream().mapToInt(Target::priority).min().orElse(0);
        int weight = most == 0 ? 1 : Math.max(1, Math.round(100f * target.weight() / most));
        return new Address.Endpoint(literal, target.port(), weight, target.priority() > first);
    }

    /** A question without an answer says nothing about the endpoints that it was about. */
    static List<String> literals(Found found, List<String> before) {
        return found.isWhole() ? found.literals() : Stream.concat(found.literals().stream(),
                before.stream().filter(one -> one.indexOf(':') >= 0)).toList();
    }

    /** A machine without IPv6 uses IPv4 alone, unless the name has no such address. */
    private static List<String> reachable(List<String> literals) {
        List<String> ipv4 = literals.stream().filter(one -> one.indexOf(':') < 0).toList();
        return ipv4.isEmpty() || ipv4.size() == literals.size() || hasIpv6() ? literals : ipv4;
    }

    private static boolean hasIpv6() {
        try {
            return NetworkInterface.networkInterfaces().flatMap(NetworkInterface::inetAddresses)
                    .anyMatch(one -> one instanceof Inet6Address && !one.isLoopbackAddress()
                            && !one.isLinkLocalAddress());
        } catch (SocketException unknown) {
            return false;
        }
    }

    /** Follows the names of these origins, from now on and no others. */
    void update(Collection<Origin> origins) {
        Map<Address, Boolean> wanted = new HashMap<>();
        for (Origin origin : origins) {
            for (Address address : origin.addresses()) {
                if (IpAddress.parse(address.host()) == null) {
                    wanted.put(address, origin.settings().tls());
                }
            }
        }
        threads.setCorePoolSize(Math.max(1, Math.min(THREADS_MAX, wanted.size())));
        synchronized (followed) {
            followed.values().removeIf(one -> {
                // The endpoints of an origin that is encrypted now, or no longer, may have other ports.
                boolean isGone = !Boolean.valueOf(one.isEncrypted).equals(wanted.get(one.address));
                if (isGone) {
                    one.stop();
                }
                return isGone;
            });
            wanted.forEach((address, isEncrypted) -> followed.computeIfAbsent(address, fresh -> {
                Followed task = new Followed(address, isEncrypted);
                task.schedule(0);
                return task;
            }));
        }
    }

    @Override
    public void close() {
        synchronized (followed) {
            followed.values().forEach(Followed::stop);
            followed.clear();
        }
        threads.shutdownNow();
    }
}
