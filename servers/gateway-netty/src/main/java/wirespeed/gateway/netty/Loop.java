// The possessions of one event loop: timers, counters, scratch memory and connections to origins.
package wirespeed.gateway.netty;

import io.netty.channel.EventLoop;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.BodyPace;
import wirespeed.gateway.core.BodyBudget;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.core.HeadSink;
import wirespeed.gateway.core.LoopWatch;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.core.Origin;
import wirespeed.gateway.runtime.ThrottledLog;

/** Touched by its own thread only, except where noted. */
final class Loop {
    final EventLoop executor;
    final Gateway gateway;
    final Transport transport;
    final Timeouts timeouts;
    final Meters meters = new Meters(false);
    final HeadSink sink = new HeadSink();
    final Shedder shedder;
    final TlsContexts tls;
    final BodyBudget budget;
    /** Connections of clients, for the drain. */
    final Set<Drainable> clients =
            java.util.Collections.newSetFromMap(new IdentityHashMap<>());
    /** Streams whose clients open no window; their connections may be well. */
    final Set<Drainable> stalledStreams =
            java.util.Collections.newSetFromMap(new IdentityHashMap<>());
    /** How long a peer may hold memory and do nothing while it is short, and while it is used up. */
    private static final long PATIENCE_MILLIS = 1000;
    private static final long PATIENCE_FULL_MILLIS = 200;
    /** How often pools are looked through; addresses come and go with configurations. */
    private static final long FORGET_MILLIS = 30_000;
    LoopWatch watch;
    Wheel wheel;
    /** RFC 9110 §5.6.7 has two digits for the day, where RFC 1123 of the JDK has one or two. */
    static final DateTimeFormatter IMF_FIXDATE = DateTimeFormatter.ofPattern(
            "EEE, dd MMM yyyy HH:mm:ss 'GMT'", java.util.Locale.ROOT);
    final Names names;
    private final Map<Way, Pool> pools = new HashMap<>();
    /** The pool that each address was asked by last, which is nearly always the right one. */
    private final Map<Address, Pool> lastPools = new IdentityHashMap<>();
    private byte[] scratch = new byte[8192];
    private String date = "";
    private long dateSecond;
    private long forgetMillis;
    private long nowNanos;
    private boolean isStopping;
    private final LoopClock clock = new LoopClock();

    /** Of all loops. */
    private final Map<Way, PoolPeers> peers;

    Loop(EventLoop executor, Gateway gateway, Transport transport, TlsContexts tls,
            BodyBudget budget, Map<Way, PoolPeers> peers) {
        this.peers = peers;
        this.executor = executor;
        this.gateway = gateway;
        this.transport = transport;
        this.tls = tls;
        this.budget = budget;
        this.timeouts = Timeouts.of(gateway.options("timeouts"));
        this.shedder = new Shedder(gateway);
        this.names = new Names(this);
        gateway.meters().add(meters);
        gateway.pools().add(this::describePools);
    }

    /** To be called on the loop before it serves. */
    void start() {
        watch = new LoopWatch(Thread.currentThread());
        gateway.watches().add(watch);
        nowNanos = System.nanoTime();
        clock.start(nowNanos);
        wheel = new Wheel(nowMillis());
        executor.scheduleAtFixedRate(this::tick, Wheel.TICK_MILLIS, Wheel.TICK_MILLIS,
                TimeUnit.MILLISECONDS);
    }

    /** A timer that throws would never fire again, and with it all time-outs of this loop. */
    private void tick() {
        try {
            advance();
        } catch (RuntimeException | Error fault) {
            ThrottledLog.fault("the timer of a loop", fault);
        }
    }

    private void advance() {
        readClock();
        clock.tick();
        long now = nowMillis();
        shedder.tick(sharedMillis());
        relieve(now);
        wheel.advance(now);
        for (Pool pool : pools.values()) {
            pool.tick(now);
        }
        if (now > forgetMillis) {
            forgetMillis = now + FORGET_MILLIS;
            pools.entrySet().removeIf(one -> isForgotten(one.getKey(), one.getValue()));
            lastPools.clear();
        }
    }

    /** Memory is short: clients that hold it and take nothing go, so that the others are served. */
    private void relieve(long nowMillis) {
        if (!shedder.isTight()) {
            return;
        }
        long since = nowMillis - (shedder.isFull() ? PATIENCE_FULL_MILLIS : PATIENCE_MILLIS);
        for (Drainable stalled : stalledStreams.toArray(Drainable[]::new)) {
            relieve(stalled, since);
        }
        for (Drainable client : clients.toArray(Drainable[]::new)) {
            relieve(client, since);
        }
    }

    private void relieve(Drainable client, long sinceMillis) {
        if (client.relieve(sinceMillis)) {
            meters.add(Meters.Count.CUT_FOR_MEMORY, 1);
        }
    }

    /**
     * Reads the clock. Called once for each event of the loop: reading it wherever a time is needed
     * was 4 % of a request.
     */
    void readClock() {
        nowNanos = System.nanoTime();
        clock.read(nowNanos);
    }

    /** System.nanoTime at the beginning of the present event. */
    long nowNanos() {
        return nowNanos;
    }

    /** For deadlines of this loop: time in which it could not run does not count. */
    long nowMillis() {
        return clock.nowMillis();
    }

    /** For what loops share, such as breakers. */
    long sharedMillis() {
        return nowNanos / 1_000_000;
    }

    /** Memory for a head of up to {@code length} bytes; valid until the next call. */
    byte[] scratch(int length) {
        if (scratch.length < length) {
            scratch = new byte[Integer.highestOneBit(length) * 2];
        }
        return scratch;
    }

    /** The bounds on how slow one request body may be. */
    BodyPace bodyPace() {
        return new BodyPace(timeouts.bodyBytesPerSecond(), timeouts.bodyIdleMillis());
    }

    /** The value of Date, rendered once a second. */
    String date() {
        long second = System.currentTimeMillis() / 1000;
        if (second != dateSecond) {
            dateSecond = second;
            date = IMF_FIXDATE.format(ZonedDateTime.now(ZoneOffset.UTC));
        }
        return date;
    }

    /**
     * How an address is reached. A reload may encrypt what was not: connections of one way are of no use
     * for another. Where two origins name one address, each has its own, with its own settings.
     */
    record Way(String origin, Address address, boolean tls, Origin.Http2 http2) {
        @Override
        public String toString() {
            return origin + " " + address.id() + (tls ? " tls" : "")
                    + (http2 == Origin.Http2.OFF ? "" : " http2");
        }
    }

    Pool pool(Origin origin, Address address) {
        Pool last = lastPools.get(address);
        if (last != null && last.settings() == origin.settings()) {
            return last;
        }
        Pool found = findPool(origin, address);
        lastPools.put(address, found);
        return found;
    }

    private Pool findPool(Origin origin, Address address) {
        Way way = new Way(origin.name(), address, origin.settings().tls(),
                origin.settings().http2());
        Pool pool = pools.get(way);
        if (pool == null) {
            pool = pool(way);
            pools.put(way, pool);
        }
        pool.settings(origin.settings());
        return pool;
    }

    private Pool pool(Way way) {
        Pool[] made = new Pool[1];
        peers.compute(way, (same, others) -> {
            PoolPeers all = others == null ? new PoolPeers() : others;
            made[0] = new Pool(this, way.address(), all);
            all.add(made[0]);
            return all;
        });
        return made[0];
    }

    private boolean isForgotten(Way way, Pool pool) {
        boolean isForgotten = pool.isForgotten();
        if (isForgotten) {
            peers.computeIfPresent(way, (same, others) -> others.isLastRemoved(pool) ? null : others);
        }
        return isForgotten;
    }

    /** Called by the admin thread: figures may be slightly out of date, never inconsistent. */
    private String describePools() {
        try {
            return executor.submit(this::renderPools).get(1, TimeUnit.SECONDS);
        } catch (java.util.concurrent.ExecutionException | java.util.concurrent.TimeoutException e) {
            return "{\"error\":\"the loop did not answer within a second\"}";
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return "{}";
        }
    }

    private String renderPools() {
        StringBuilder json = new StringBuilder("{");
        pools.forEach((way, pool) -> json.append(json.length() > 1 ? "," : "").append('"')
                .append(way.toString().replace("\\", "\\\\").replace("\"", "\\\""))
                .append("\":").append(pool.describe()));
        return json.append('}').toString();
    }

    /** The process stops: present clients end when they are unused, and later ones, too. */
    void drainClients() {
        readClock();
        isStopping = true;
        java.util.List.copyOf(clients).forEach(Drainable::drain);
    }

    boolean isStopping() {
        return isStopping;
    }

    void closePools() {
        pools.values().forEach(Pool::closeIdle);
        names.close();
    }
}
