// Connections of one loop to one address.
package wirespeed.gateway.netty;

import io.netty.bootstrap.Bootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelException;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.util.concurrent.Future;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.stream.IntStream;
import wirespeed.gateway.core.Address;
import wirespeed.gateway.core.Category;
import wirespeed.gateway.core.Loss;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.core.Origin;

/**
 * Last in, first out: few connections stay warm and the surplus ages out. The limit counts over all
 * loops and is touched only when a connection comes or goes.
 */
final class Pool {
    private record Waiter(Attempt attempt, long sinceNanos, long deadlineMillis) {
    }

    private static final long LOOK_MILLIS = 1000;
    /** A connection's handlers come when it stands: they can be used for one channel only. */
    private static final ChannelHandler NONE_YET = new ChannelInitializer<>() {
        @Override
        protected void initChannel(Channel channel) {
            // Nothing is read before.
        }
    };

    private final Loop loop;
    private final Address address;
    private final ArrayDeque<OriginConnection> unused = new ArrayDeque<>();
    private final ArrayDeque<Waiter> waiters = new ArrayDeque<>();
    /** On their way for requests that have been given up; the next ones take them. */
    private final ArrayDeque<OriginConnection> orphans = new ArrayDeque<>();
    /** Those of HTTP/2, which serve several at a time. */
    private final List<Http2Origin> shared = new ArrayList<>();
    private int connecting;
    private boolean wasShared;
    private final Bootstrap bootstrap;
    private Origin.Settings settings;
    private int open;
    private boolean isUsed;
    private final boolean isLiteral;
    /** Where the name led when it was asked for last; empty before that and for literals. */
    private Set<InetAddress> places = Set.of();
    private long nextLookMillis;
    private int turn;

    private final PoolPeers peers;
    /** When the first waiting request began to wait; read by other loops while {@link #isWaiting}. */
    private volatile long waitingSinceNanos;
    private volatile boolean isWaiting;

    Pool(Loop loop, Address address, PoolPeers peers) {
        this.loop = loop;
        this.address = address;
        this.peers = peers;
        this.isLiteral = Names.isLiteral(address.host());
        this.bootstrap = new Bootstrap().group(loop.executor)
                .channel(loop.transport.socket())
                .option(ChannelOption.TCP_NODELAY, true)
                // A write that fails must not close what holds an answer: reading sees the end.
                .option(ChannelOption.AUTO_CLOSE, false)
                .option(ChannelOption.RECVBUF_ALLOCATOR, loop.transport.receive(
                        (int) loop.gateway.options("server").bytes("receive-buffer")));
    }

    Address address() {
        return address;
    }

    Loop loop() {
        return loop;
    }

    /** Whether requests wait for a connection; asked by other loops, too. */
    boolean isWaiting() {
        return isWaiting;
    }

    long waitingSinceNanos() {
        return waitingSinceNanos;
    }

    private void await(Attempt attempt) {
        waiters.add(new Waiter(attempt, loop.nowNanos(),
                loop.nowMillis() + loop.timeouts.poolWaitMillis()));
        boolean isFirst = !isWaiting;
        waitersChanged();
        if (isFirst) {
            peers.askFor(this);
        }
    }

    private Attempt nextWaiter() {
        Attempt next = waiters.poll().attempt();
        waitersChanged();
        return next;
    }

    private void waitersChanged() {
        boolean isAny = !waiters.isEmpty();
        if (isAny) {
            waitingSinceNanos = waiters.peek().sinceNanos();
        }
        if (isAny != isWaiting) {
            isWaiting = isAny;
            peers.waits(isAny);
        }
    }

    /** Another loop's requests wait, and this one keeps what it does not need. */
    void giveUpUnused() {
        loop.readClock();
        if (!unused.isEmpty() && peers.insteadOf(this) != null) {
            OriginConnection oldest = unused.pollLast();
            oldest.close();
        }
    }

    /** The newest settings of the origin; a reload may have changed them. */
    void settings(Origin.Settings newest) {
        settings = newest;
    }

    Origin.Settings settings() {
        return settings;
    }

    /** Calls the exchange back, at once or later, with a connection or a reason. */
    void acquire(Attempt attempt, boolean needsFresh) {
        isUsed = true;
        if (settings.http2() != Origin.Http2.OFF && acquireStream(attempt)) {
            return;
        }
        OriginConnection connection = needsFresh ? null : unused.pollFirst();
        if (connection != null) {
            attempt.connected(connection);
        } else if (!orphans.isEmpty()) {
            promise(orphans.poll(), attempt);
        } else if (mayConnect()) {
            connect(attempt);
        } else if (waiters.size() >= settings.waitersMax()) {
            attempt.refusedByPool("too many requests wait for a connection to the origin");
        } else {
            await(attempt);
        }
    }

    /** A stream of a connection, or of one that is on its way; false when there is none. */
    private boolean acquireStream(Attempt attempt) {
        for (Http2Origin one : shared) {
            if (one.hasRoom()) {
                one.open(attempt);
                return true;
            }
        }
        boolean isAwaited = connecting > 0 && waiters.size() < settings.waitersMax()
                && (wasShared || settings.http2() == Origin.Http2.PRIOR_KNOWLEDGE);
        if (isAwaited) {
            await(attempt);
        }
        return isAwaited;
    }

    /** A connection has ended a stream, or is there. */
    void hasRoom(Http2Origin one) {
        while (!waiters.isEmpty() && one.hasRoom()) {
            one.open(nextWaiter());
        }
    }

    /** A connection of HTTP/2 is gone. */
    void closed(Http2Origin one, OriginConnection place) {
        shared.remove(one);
        closed(place);
    }

    /**
     * The exchange has ended before it had a connection.
     *
     * @param promised the one that was on its way for it, or null when it waited for any
     */
    void cancel(Attempt attempt, OriginConnection promised) {
        if (promised == null) {
            waiters.removeIf(waiter -> waiter.attempt() == attempt);
            waitersChanged();
        } else if (!waiters.isEmpty()) {
            promise(promised, nextWaiter());
        } else {
            promised.firstUser = null;
            orphans.add(promised);
        }
    }

    private static void promise(OriginConnection connection, Attempt attempt) {
        connection.firstUser = attempt;
        attempt.promised(connection);
    }

    private boolean mayConnect() {
        if (address.connections().incrementAndGet() <= settings.connectionsMax()) {
            return true;
        }
        address.connections().decrementAndGet();
        return false;
    }

    private void connect(Attempt attempt) {
        OriginConnection connection = new OriginConnection(this, loop);
        promise(connection, attempt);
        open++;
        connecting++;
        loop.meters.add(Meters.Count.ORIGIN_CONNECTIONS_OPENED, 1);
        loop.meters.add(Meters.Count.ORIGIN_CONNECTIONS_OPEN, 1);
        Bootstrap own = bootstrap.clone().handler(NONE_YET)
                .option(ChannelOption.CONNECT_TIMEOUT_MILLIS, settings.connectMillis());
        if (isLiteral) {
            connect(own, List.of(new InetSocketAddress(address.host(), address.port())).iterator(),
                    connection);
            return;
        }
        loop.names.find(address.host()).addListener((Future<List<InetAddress>> found) -> {
            if (found.isSuccess()) {
                moved(found.getNow());
                connect(own, inTurn(found.getNow()), connection);
            } else {
                refused(connection, found.cause());
            }
        });
    }

    /** Each connection begins with another one of a name's places, and none is left out. */
    private Iterator<InetSocketAddress> inTurn(List<InetAddress> all) {
        int first = turn++ % all.size();
        return IntStream.range(first, first + all.size())
                .mapToObj(at -> new InetSocketAddress(all.get(at % all.size()), address.port()))
                .iterator();
    }

    /** To the first place that answers, as long as somebody waits for it. */
    private void connect(Bootstrap own, Iterator<InetSocketAddress> candidates,
            OriginConnection connection) {
        long begunNanos = System.nanoTime();
        own.connect(candidates.next()).addListener((ChannelFuture future) -> {
            connection.accepted(System.nanoTime() - begunNanos);
            if (loop.executor.inEventLoop()) {
                connectEnded(future, own, candidates, connection);
            } else {
                // Where there is not even a socket, Netty says so on a thread of its own.
                loop.executor.execute(() -> connectEnded(future, own, candidates, connection));
            }
        });
    }

    private void connectEnded(ChannelFuture future, Bootstrap own,
            Iterator<InetSocketAddress> candidates, OriginConnection connection) {
        if (future.isSuccess()) {
            connected(future.channel(), connection);
        } else if (future.cause() instanceof ChannelException) {
            unavailable(connection);
        } else if (candidates.hasNext() && isAwaited(connection)) {
            connect(own, candidates, connection);
        } else {
            refused(connection, future.cause());
        }
    }

    /** This process has no descriptor left: no address is to blame, and no other one would do. */
    private void unavailable(OriginConnection connection) {
        connecting--;
        loop.readClock();
        Attempt user = takeUser(connection);
        closed(connection);
        if (user != null) {
            user.refusedByPool("the gateway has no socket left for the origin");
            user.client.flush();
        }
    }

    private static boolean isAwaited(OriginConnection connection) {
        return connection.firstUser != null && !connection.firstUser.isOver();
    }

    private void connected(Channel channel, OriginConnection connection) {
        if (!settings.tls()) {
            channel.pipeline().addLast(connection);
            established(connection, channel);
            return;
        }
        try {
            channel.pipeline().addLast(loop.tls.toOrigin(channel, address, settings), connection);
        } catch (RuntimeException noTls) {
            refused(connection, noTls);
            channel.close();
            return;
        }
        loop.tls.handshake(channel).addListener(done -> {
            if (done.isSuccess()) {
                established(connection, channel);
            } else {
                refused(connection, done.cause());
                channel.close();
            }
        });
    }

    private void established(OriginConnection connection, Channel channel) {
        connecting--;
        connection.established();
        wasShared = settings.tls() ? loop.tls.isHttp2(channel)
                : settings.http2() == Origin.Http2.PRIOR_KNOWLEDGE;
        if (wasShared) {
            share(connection, channel);
            return;
        }
        Attempt user = takeUser(connection);
        if (user == null) {
            release(connection);
            return;
        }
        user.connected(connection);
        connection.flush();
    }

    private void share(OriginConnection connection, Channel channel) {
        Attempt user = takeUser(connection);
        Http2Origin one = Http2Origin.install(channel, this, loop, connection);
        shared.add(one);
        if (user != null) {
            one.open(user);
        }
        hasRoom(one);
    }

    private void refused(OriginConnection connection, Throwable cause) {
        connecting--;
        loop.readClock();
        Attempt user = takeUser(connection);
        closed(connection);
        if (user != null) {
            user.originFailed(Category.CONNECT, cause, Loss.BEFORE_ANSWER);
        }
    }

    /** For whom the connection was made, if anybody still waits for it. */
    private Attempt takeUser(OriginConnection connection) {
        Attempt user = connection.firstUser;
        connection.firstUser = null;
        if (user == null) {
            orphans.remove(connection);
        }
        return user == null || user.isOver() ? null : user;
    }

    /** A connection has answered and may be used again. */
    void release(OriginConnection connection) {
        if (peers.insteadOf(this) != null) {
            // Its place goes to the loop whose requests have waited longest.
            connection.close();
            return;
        }
        if (!waiters.isEmpty()) {
            nextWaiter().connected(connection);
            connection.flush();
            return;
        }
        connection.startUnused(loop.nowMillis());
        unused.addFirst(connection);
    }

    /** An unused connection can no longer be used. */
    void broken(OriginConnection connection) {
        unused.remove(connection);
    }

    /** A connection is gone, or never came; called once for each. */
    void closed(OriginConnection connection) {
        if (connection.isCounted()) {
            connection.uncount();
            unused.remove(connection);
            open--;
            loop.meters.add(Meters.Count.ORIGIN_CONNECTIONS_OPEN, -1);
            passPlace();
        }
    }

    /** A connection is gone: its place goes to whoever has waited longest, on whatever loop. */
    private void passPlace() {
        Pool longest = peers.longestWaiting();
        boolean isAboveLimit = address.connections().get() > settings.connectionsMax();
        if (longest == null || isAboveLimit) {
            address.connections().decrementAndGet();
        } else if (longest == this) {
            takePlace();
        } else {
            longest.loop.executor.execute(longest::takePlace);
        }
    }

    /** Connects in the place of a connection that is gone; its number is counted still. */
    private void takePlace() {
        loop.readClock();
        if (waiters.isEmpty()) {
            passPlace();
        } else {
            connect(nextWaiter());
        }
    }

    private void serveWaiter() {
        if (!waiters.isEmpty() && mayConnect()) {
            connect(nextWaiter());
        }
    }

    /** Asks the name again: connections to a place that it has left are used no more. */
    private void follow(long nowMillis) {
        if (isLiteral || open == 0 || nowMillis < nextLookMillis) {
            return;
        }
        nextLookMillis = nowMillis + LOOK_MILLIS;
        loop.names.find(address.host()).addListener((Future<List<InetAddress>> found) -> {
            if (found.isSuccess()) {
                moved(found.getNow());
            }
        });
    }

    private void moved(List<InetAddress> now) {
        Set<InetAddress> next = Set.copyOf(now);
        if (!next.equals(places)) {
            places = next;
            List.copyOf(unused).stream().filter(one -> !leadsTo(one.remote()))
                    .forEach(left -> {
                        broken(left);
                        left.close();
                    });
        }
    }

    /** Whether the name still leads to this place. */
    boolean leadsTo(InetAddress place) {
        return places.isEmpty() || place != null && places.contains(place);
    }

    /** Other loops may have given up connections; and no request waits for ever. */
    void tick(long nowMillis) {
        follow(nowMillis);
        if (waiters.isEmpty()) {
            return;
        }
        serveWaiter();
        peers.askFor(this);
        Iterator<Waiter> all = waiters.iterator();
        ArrayDeque<Attempt> late = new ArrayDeque<>();
        while (all.hasNext()) {
            Waiter waiter = all.next();
            if (waiter.deadlineMillis() > nowMillis) {
                break;
            }
            all.remove();
            late.add(waiter.attempt());
        }
        waitersChanged();
        late.forEach(attempt -> {
            attempt.refusedByPool("no connection to the origin became free in time");
            attempt.client.flush();
        });
    }

    /** Whether nothing is open and no request has come since the last call. */
    boolean isForgotten() {
        boolean wasUsed = isUsed;
        isUsed = false;
        return !wasUsed && open == 0 && waiters.isEmpty();
    }

    void closeIdle() {
        while (!unused.isEmpty()) {
            unused.pollFirst().close();
        }
        List.copyOf(shared).forEach(Http2Origin::retire);
    }

    String describe() {
        return "{\"open\":" + open + ",\"unused\":" + unused.size() + ",\"waiting\":"
                + waiters.size() + "}";
    }
}
