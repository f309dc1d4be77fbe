// Connections to all addresses: HttpClient's pool with the limits of the published test.
package wirespeed.gateway.tomcat;

import java.io.IOException;
import java.net.InetAddress;
import java.net.SocketException;
import java.net.UnknownHostException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hc.client5.http.HttpRoute;
import org.apache.hc.client5.http.SystemDefaultDnsResolver;
import org.apache.hc.client5.http.config.ConnectionConfig;
import org.apache.hc.client5.http.impl.io.PoolingHttpClientConnectionManager;
import org.apache.hc.client5.http.impl.io.PoolingHttpClientConnectionManagerBuilder;
import org.apache.hc.client5.http.io.ConnectionEndpoint;
import org.apache.hc.client5.http.protocol.HttpClientContext;
import org.apache.hc.core5.http.HttpException;
import org.apache.hc.core5.http.HttpHost;
import org.apache.hc.core5.http.config.Http1Config;
import org.apache.hc.core5.io.CloseMode;
import org.apache.hc.core5.pool.PoolStats;
import org.apache.hc.core5.util.TimeValue;
import org.apache.hc.core5.util.Timeout;
import wirespeed.gateway.core.Loss;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.core.IpAddress;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.core.Origin;

/**
 * Used below HttpClient's chain of executors: redirects, retries, cookies, authentication and
 * decompression would all be switched off, and the gateway has to see whether a connection is new.
 */
final class OriginPool implements AutoCloseable, Gateway.Pools {
    /** No connection became free in time. */
    static final class Full extends Exception {
        private static final long serialVersionUID = 1L;

        Full(String reason) {
            super(reason, null, false, false);
        }
    }

    /** How an address is reached, and who waits for it. */
    private static final class Way {
        final HttpRoute route;
        final AtomicInteger entering = new AtomicInteger();
        volatile int connectionsMax;
        volatile int lifeMillis = LIFE_MILLIS;
        volatile long askedNanos = System.nanoTime();

        Way(HttpRoute route) {
            this.route = route;
        }
    }

    /** Names are asked again by new connections only. */
    private static final int LIFE_MILLIS = 60_000;
    private static final long FORGOTTEN_NANOS = TimeUnit.MINUTES.toNanos(10);

    private final PoolingHttpClientConnectionManager manager;
    /** By where they lead and how; two origins may name one address and not both encrypt. */
    private final Map<HttpRoute, Way> ways = new ConcurrentHashMap<>();
    private final int connectionsMax;
    private final ScheduledThreadPoolExecutor evictor;
    private final SendWatch sends = new SendWatch();
    private final Meters meters;
    private final int waitMillis;
    private final TimeValue keep;

    OriginPool(Gateway gateway, Meters meters, Timeouts timeouts) {
        this.meters = meters;
        waitMillis = timeouts.poolWaitMillis();
        keep = TimeValue.ofMilliseconds(timeouts.poolIdleMillis());
        connectionsMax = gateway.options("tomcat").count("origin-connections");
        evictor = new ScheduledThreadPoolExecutor(1, work -> {
            Thread thread = new Thread(work, "origin-connections");
            thread.setDaemon(true);
            return thread;
        });
        // Handshakes that are over leave nothing behind.
        evictor.setRemoveOnCancelPolicy(true);
        manager = PoolingHttpClientConnectionManagerBuilder.create()
                .setConnectionFactory(socket -> new OriginConnection(Http1Config.DEFAULT))
                .setTlsSocketStrategy(Tls.toOrigins(gateway.options("tls"), evictor))
                .setMaxConnTotal(connectionsMax).setMaxConnPerRoute(connectionsMax)
                .setConnectionConfigResolver(this::config)
                .setDnsResolver(new Names(SystemDefaultDnsResolver.INSTANCE, System::nanoTime))
                .build();
        long period = Math.max(50, timeouts.poolIdleMillis() / 4);
        evictor.scheduleWithFixedDelay(sends, SendWatch.PERIOD_MILLIS, SendWatch.PERIOD_MILLIS,
                TimeUnit.MILLISECONDS);
        evictor.scheduleWithFixedDelay(() -> manager.closeIdle(keep), period, period,
                TimeUnit.MILLISECONDS);
        evictor.scheduleWithFixedDelay(() -> forget(System.nanoTime() - FORGOTTEN_NANOS), 1, 1, TimeUnit.MINUTES);
    }

    /** A name leads to ever new addresses: nothing is kept of one without connections, not asked for since then. */
    void forget(long sinceNanos) {
        ways.values().removeIf(way -> {
            boolean isForgotten = way.askedNanos - sinceNanos < 0 && way.entering.get() == 0 && isUnused(way.route);
            if (isForgotten) {
                // A negative number removes the limit, which the manager keeps by route.
                manager.setMaxPerRoute(way.route, -1);
            }
            return isForgotten;
        });
    }

    private boolean isUnused(HttpRoute route) {
        PoolStats stats = manager.getStats(route);
        return stats.getLeased() + stats.getAvailable() + stats.getPending() == 0;
    }

    private ConnectionConfig config(HttpRoute route) {
        Way way = ways.get(route);
        return ConnectionConfig.custom().setSocketTimeout(Timeout.DISABLED)
                .setTimeToLive(TimeValue.ofMilliseconds(way == null ? LIFE_MILLIS : way.lifeMillis)).build();
    }

    /** A connection that is somebody's until it is given back. */
    final class Lease {
        final OriginConnection connection;
        private final ConnectionEndpoint endpoint;
        private boolean isOver;

        private Lease(ConnectionEndpoint endpoint, OriginConnection connection) {
            this.endpoint = endpoint;
            this.connection = connection;
        }

        /** Gives the connection back to others, who may use it at once. */
        synchronized void release() {
            if (!isOver) {
                isOver = true;
                connection.answered();
                manager.release(endpoint, null, keep);
            }
        }

        /** The connection cannot be used again. */
        synchronized void discard() {
            if (!isOver) {
                isOver = true;
                endpoint.close(CloseMode.IMMEDIATE);
                manager.release(endpoint, null, TimeValue.ZERO_MILLISECONDS);
            }
        }
    }

    /**
     * A connection to an address; waits for one, and connects when none is unused.
     *
     * @param deadlineNanos of the exchange, which ends waiting and connecting, too; as System.nanoTime
     * @param begins runs before connecting, once there is a place for the connection
     */
    Lease lease(Origin origin, Address address, boolean needsFresh, long deadlineNanos, Runnable begins)
            throws OriginFailure, Full {
        Way way = ways.computeIfAbsent(route(origin, address), Way::new);
        limit(way, origin.settings());
        ConnectionEndpoint endpoint = endpoint(way, origin.settings(), deadlineNanos);
        begins.run();
        try {
            if (needsFresh && endpoint.isConnected()) {
                endpoint.close(CloseMode.IMMEDIATE);
            }
            boolean isNew = !endpoint.isConnected();
            long begunNanos = System.nanoTime();
            if (isNew) {
                connect(endpoint, origin.settings(), deadlineNanos);
            }
            OriginConnection connection = connection(endpoint);
            if (isNew) {
                connection.count(meters, address, System.nanoTime() - begunNanos);
            }
            return new Lease(endpoint, connection);
        } catch (IOException | RuntimeException e) {
            endpoint.close(CloseMode.IMMEDIATE);
            manager.release(endpoint, null, TimeValue.ZERO_MILLISECONDS);
            if (isOwnLack(e)) {
                throw new Full("the gateway has no socket left for the origin");
            }
            throw new OriginFailure(Category.CONNECT, Loss.BEFORE_ANSWER,
                    "no connection to " + address + ": " + e.getMessage(), e);
        }
    }

    private void connect(ConnectionEndpoint endpoint, Origin.Settings settings, long deadlineNanos)
            throws IOException {
        HttpClientContext context = HttpClientContext.create();
        Tls.within(context, () -> within(settings.handshakeMillis(), deadlineNanos));
        manager.connect(endpoint, TimeValue.ofMilliseconds(within(settings.connectMillis(), deadlineNanos)), context);
    }

    /** As long, but not longer than until the deadline; never 0, which would have no end. */
    private static int within(int millis, long deadlineNanos) {
        long left = (deadlineNanos - System.nanoTime() + 999_999) / 1_000_000;
        return (int) Math.max(1, Math.min(millis, left));
    }

    /** This process has no descriptor left: no address is to blame, and no other one would do. */
    private static boolean isOwnLack(Throwable failed) {
        for (Throwable cause = failed; cause != null; cause = cause.getCause()) {
            if (cause instanceof SocketException
                    && String.valueOf(cause.getMessage()).contains("Too many open files")) {
                return true;
            }
        }
        return false;
    }

    /** Watches over the bodies that are sent on these connections. */
    SendWatch sends() {
        return sends;
    }

    private static HttpRoute route(Origin origin, Address address) {
        boolean isTls = origin.settings().tls();
        String scheme = isTls ? "https" : "http";
        byte[] literal = IpAddress.parse(address.host());
        String name = isTls ? origin.settings().tlsName(address) : address.name();
        return new HttpRoute(literal == null ? new HttpHost(scheme, address.host(), address.port())
                : new HttpHost(scheme, inet(literal), name, address.port()), null, isTls);
    }

    private static InetAddress inet(byte[] literal) {
        try {
            return InetAddress.getByAddress(literal);
        } catch (UnknownHostException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** An origin's own limit counts when it was set to something; the default is Netty's. */
    private void limit(Way way, Origin.Settings settings) {
        int wanted = settings.connectionsMax() == Origin.Settings.DEFAULT.connectionsMax()
                ? connectionsMax : Math.min(connectionsMax, settings.connectionsMax());
        way.lifeMillis = Math.min(LIFE_MILLIS, settings.connectionAgeMillis());
        way.askedNanos = System.nanoTime();
        if (way.connectionsMax != wanted) {
            way.connectionsMax = wanted;
            manager.setMaxPerRoute(way.route, wanted);
        }
    }

    private ConnectionEndpoint endpoint(Way way, Origin.Settings settings, long deadlineNanos)
            throws Full, OriginFailure {
        Timeout wait = Timeout.ofMilliseconds(within(waitMillis, deadlineNanos));
        try {
            boolean mayWait = way.entering.incrementAndGet() <= settings.waitersMax()
                    || !isCrowded(way, settings.waitersMax());
            if (!mayWait) {
                throw new Full("too many requests wait for a connection to the origin");
            }
            return manager.lease(null, way.route, wait, null).get(wait);
        } catch (TimeoutException e) {
            throw noneFree(deadlineNanos);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new Full("interrupted while waiting for a connection");
        } catch (ExecutionException e) {
            if (e.getCause() instanceof TimeoutException) {
                // The pool has noticed it first, when another request ended.
                throw noneFree(deadlineNanos);
            }
            throw new OriginFailure(Category.CONNECT, Loss.BEFORE_ANSWER,
                    "no connection: " + e.getCause(), e);
        } finally {
            way.entering.decrementAndGet();
        }
    }

    /** The end of the exchange is one for this, too, and speaks against no address. */
    private static Full noneFree(long deadlineNanos) throws OriginFailure {
        String message = "no connection to the origin became free in time";
        if (System.nanoTime() - deadlineNanos >= 0) {
            throw new OriginFailure(Category.ORIGIN_TIMEOUT, Loss.UNFINISHED, message, null);
        }
        return new Full(message);
    }

    /** Asked rarely: most requests get a connection at once. */
    private boolean isCrowded(Way way, int waitersMax) {
        PoolStats stats = manager.getStats(way.route);
        return stats.getLeased() >= way.connectionsMax && stats.getPending() >= waitersMax;
    }

    /** The pool hands out endpoints; this is how the connection behind one is reached. */
    private static OriginConnection connection(ConnectionEndpoint endpoint) throws IOException {
        OriginConnection[] found = new OriginConnection[1];
        try {
            endpoint.execute(null, PROBE, (request, connection, context) -> {
                found[0] = (OriginConnection) connection;
                return null;
            }, HttpClientContext.create());
        } catch (HttpException e) {
            throw new IOException(e);
        }
        return found[0];
    }

    private static final org.apache.hc.core5.http.ClassicHttpRequest PROBE =
            new org.apache.hc.core5.http.message.BasicClassicHttpRequest("GET", "/");

    @Override
    public String describe() {
        StringBuilder json = new StringBuilder("{");
        ways.forEach((route, way) -> {
            PoolStats stats = manager.getStats(route);
            json.append(json.length() > 1 ? "," : "").append('"')
                    .append(route.getTargetHost().toHostString()).append(place(route)).append(route.isSecure() ? " tls" : "")
                    .append("\":{\"open\":").append(stats.getLeased() + stats.getAvailable())
                    .append(",\"unused\":").append(stats.getAvailable())
                    .append(",\"waiting\":").append(stats.getPending()).append('}');
        });
        return json.append('}').toString();
    }

    /** Where a name leads is a pool of its own. */
    private static String place(HttpRoute route) {
        InetAddress place = route.getTargetHost().getAddress();
        String text = place == null ? "" : place.getHostAddress();
        return text.isEmpty() || text.equals(route.getTargetHost().getHostName()) ? "" : " " + text;
    }

    @Override
    public void close() {
        evictor.shutdownNow();
        manager.close(CloseMode.IMMEDIATE);
    }
}
