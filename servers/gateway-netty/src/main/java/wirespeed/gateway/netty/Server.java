// Opens the sockets, spreads connections over the loops, and closes everything in order.
package wirespeed.gateway.netty;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoop;
import io.netty.channel.IoEventLoop;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.epoll.EpollChannelOption;
import io.netty.channel.unix.UnixChannelOption;
import io.netty.util.concurrent.DefaultThreadFactory;
import io.netty.util.concurrent.Future;
import io.netty.util.concurrent.Promise;
import io.netty.util.internal.PlatformDependent;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import wirespeed.gateway.core.BodyBudget;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.core.Listener;
import wirespeed.gateway.core.OptionValues;

/**
 * A thread of its own accepts for several loops: a serving loop that accepts gives itself more
 * connections than the others, and its clients wait. A single loop cannot be unfair to others, and
 * handing each connection over would cost it two switches of threads.
 */
public final class Server implements AutoCloseable {
    private static final long TAKING_NANOS = 1_000_000_000;
    /** A turn counts as no more than this: a loop that is held up must not cost who waits their answers. */
    private static final long TURN_NANOS_MAX = 5_000_000;
    /** For a step of the stop when its time is over already. */
    private static final long STEP_NANOS_MIN = 500_000_000;
    /** For the loops to end; what is left of them ends with the process. */
    private static final long SHUTDOWN_NANOS = 3_000_000_000L;

    private final Gateway gateway;
    private final OptionValues options;
    private final Transport transport;
    private final TlsContexts tls;
    private final MultiThreadIoEventLoopGroup acceptors;
    private final MultiThreadIoEventLoopGroup workers;
    private final Map<EventLoop, Loop> loops = new IdentityHashMap<>();
    private final List<Channel> listeners = new ArrayList<>();
    private final AtomicInteger accepted = new AtomicInteger();

    /** Prepares loops; nothing listens yet. */
    public Server(Gateway gateway) {
        this.gateway = gateway;
        options = gateway.options("server");
        transport = Transport.of(options.text("transport"));
        tls = new TlsContexts(gateway.options("tls"),
                gateway.options("timeouts").millis("head"));
        if (tls.isOn()) {
            gateway.certificates(tls::readCertificates);
        }
        gateway.gauges().put("direct.memory.bytes", PlatformDependent::usedDirectMemory);
        int threads = options.count("threads") == 0 ? Runtime.getRuntime().availableProcessors()
                : options.count("threads");
        BodyBudget budget = new BodyBudget(gateway.options("limits").bytes("held-bodies"));
        gateway.gauges().put("held.bodies.bytes", budget::bytes);
        workers = new MultiThreadIoEventLoopGroup(threads,
                new DefaultThreadFactory("gateway-loop", true), transport.handler());
        acceptors = threads == 1 ? workers : new MultiThreadIoEventLoopGroup(1,
                new DefaultThreadFactory("gateway-accept", true), transport.handler());
        Map<Loop.Way, PoolPeers> peers = new ConcurrentHashMap<>();
        for (int i = 0; i < threads; i++) {
            IoEventLoop executor = workers.next();
            Loop loop = new Loop(executor, gateway, transport, tls, budget, peers);
            loops.put(executor, loop);
            executor.submit(loop::start).syncUninterruptibly();
        }
    }

    /** Listens everywhere, or nowhere; the answer has the ports that were taken. */
    public List<InetSocketAddress> start() {
        List<InetSocketAddress> bound = new ArrayList<>();
        try {
            gateway.listeners().forEach(wanted -> bound.add(bind(wanted)));
        } catch (RuntimeException refused) {
            listeners.forEach(listener -> listener.close().awaitUninterruptibly());
            listeners.clear();
            throw refused;
        }
        listeners.forEach(listener -> listener.config().setAutoRead(true));
        return bound;
    }

    /** Takes the address, and accepts nothing yet. */
    private InetSocketAddress bind(Listener wanted) {
        InetSocketAddress address = wanted.toBind();
        int sockets = options.isTrue("reuse-port") ? loops.size() : 1;
        for (int i = 0; i < sockets; i++) {
            ChannelFuture bound = bootstrap(wanted, sockets > 1).bind(address)
                    .awaitUninterruptibly();
            if (!bound.isSuccess()) {
                throw wanted.refused(bound.cause());
            }
            listeners.add(bound.channel());
            address = (InetSocketAddress) bound.channel().localAddress();
        }
        return address;
    }

    private ServerBootstrap bootstrap(Listener listener, boolean isShared) {
        ServerBootstrap bootstrap = new ServerBootstrap().group(acceptors, workers)
                .channel(transport.server())
                .handler(new Arrivals())
                .option(ChannelOption.SO_BACKLOG, options.count("backlog"))
                .option(ChannelOption.SO_REUSEADDR, true)
                .option(ChannelOption.AUTO_READ, false)
                .childOption(ChannelOption.TCP_NODELAY, true)
                .childOption(ChannelOption.ALLOW_HALF_CLOSURE, true)
                .childOption(ChannelOption.WRITE_BUFFER_WATER_MARK,
                        new WriteBufferWaterMark(32 * 1024, 64 * 1024))
                .childOption(ChannelOption.RECVBUF_ALLOCATOR,
                        transport.receive((int) options.bytes("receive-buffer")))
                .childHandler(new ChannelInitializer<>() {
                    @Override
                    protected void initChannel(Channel channel) {
                        accept(channel, listener);
                    }
                });
        if (isShared) {
            bootstrap.option(UnixChannelOption.SO_REUSEPORT, true);
        }
        if (options.isTrue("defer-accept") && transport.name().equals("epoll")) {
            bootstrap.option(EpollChannelOption.TCP_DEFER_ACCEPT, 5);
        }
        return bootstrap;
    }

    private void accept(Channel channel, Listener listener) {
        Loop loop = loops.get(channel.eventLoop());
        if (!listener.balancers().isEmpty() && listener.balancers().contains(((InetSocketAddress)
                channel.remoteAddress()).getAddress().getHostAddress())) {
            ProxyHeader.install(channel, loop);
        }
        if (listener.isTls()) {
            channel.pipeline().addLast(new Beginning(loop)).addLast(new RecordGate())
                    .addLast(tls.fromClient()).addLast(new ProtocolChoice(loop));
        } else if (options.isTrue("h2c")) {
            channel.pipeline().addLast(new Beginning(loop)).addLast(new PrefaceChoice(loop));
        } else {
            channel.pipeline().addLast(new ClientConnection(loop, false));
        }
    }

    public String transport() {
        return transport.name();
    }

    public int threads() {
        return loops.size();
    }

    /** Takes in who waits, closes the listeners, lets exchanges end for up to {@code drainMillis}, then cuts the rest. */
    public int stop(long drainMillis) {
        if (workers.isShuttingDown()) {
            return 0;
        }
        gateway.drain();
        long end = System.nanoTime() + drainMillis * 1_000_000;
        takeWaiting(end);
        listeners.forEach(listener -> awaitUntil(listener.close(), end));
        onEachLoop(Loop::drainClients, end);
        while (!isDone(end) && System.nanoTime() - end < 0) {
            java.util.concurrent.locks.LockSupport.parkNanos(10_000_000);
        }
        int cut = gateway.inFlight().get();
        onEachLoop(Loop::closePools, end);
        Future<?> workersOver = workers.shutdownGracefully(0, 2, TimeUnit.SECONDS);
        Future<?> acceptorsOver = acceptors.shutdownGracefully(0, 2, TimeUnit.SECONDS);
        long over = System.nanoTime() + SHUTDOWN_NANOS;
        awaitUntil(workersOver, over);
        awaitUntil(acceptorsOver, over);
        return cut;
    }

    /** A loop whose filter never returns must not hold up the end; each step has half a second at least. */
    private static boolean awaitUntil(Future<?> future, long endNanos) {
        return future.awaitUninterruptibly(Math.max(STEP_NANOS_MIN, endNanos - System.nanoTime()),
                TimeUnit.NANOSECONDS);
    }

    /**
     * Connections that wait in a listener's queue are reset when it closes: the loops accept first,
     * until two turns of them have found none.
     */
    private void takeWaiting(long endNanos) {
        long taken = 0;
        int quiet = 0;
        boolean isHeldUp = false;
        for (int before = accepted.get(); quiet < 2 && taken < TAKING_NANOS && !isHeldUp;) {
            long begin = System.nanoTime();
            for (Channel listener : listeners) {
                isHeldUp |= !awaitLook(listener.eventLoop(), endNanos);
            }
            taken += Math.min(System.nanoTime() - begin, TURN_NANOS_MAX);
            int now = accepted.get();
            quiet = now == before ? quiet + 1 : 0;
            before = now;
        }
    }

    /**
     * Until the loop has looked at its sockets once more. The loop itself schedules what waits for that:
     * what others schedule runs at once if it is due when the loop takes it in.
     */
    private static boolean awaitLook(EventLoop loop, long endNanos) {
        Promise<Void> looked = loop.newPromise();
        loop.execute(() -> loop.schedule(() -> {
            looked.setSuccess(null);
        }, 1, TimeUnit.MILLISECONDS));
        return awaitUntil(looked, endNanos);
    }

    /** Counts connections as the listeners hand them over. */
    @ChannelHandler.Sharable
    private final class Arrivals extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext listener, Object connection) {
            accepted.incrementAndGet();
            listener.fireChannelRead(connection);
        }
    }

    /**
     * An exchange is over when its answer was handed on; the sockets must have taken it, too. Each loop looks
     * at both itself: between two looks of this thread an awaited head may become an exchange.
     */
    private boolean isDone(long endNanos) {
        AtomicBoolean isDone = new AtomicBoolean(true);
        onEachLoop(loop -> {
            if (gateway.inFlight().get() > 0 || !loop.clients.stream().allMatch(Drainable::isWritten)) {
                isDone.set(false);
            }
        }, endNanos);
        return isDone.get();
    }

    private void onEachLoop(java.util.function.Consumer<Loop> action, long endNanos) {
        List<Future<?>> done = new ArrayList<>();
        loops.values().forEach(loop -> done.add(loop.executor.submit(() -> action.accept(loop))));
        done.forEach(one -> awaitUntil(one, endNanos));
    }

    @Override
    public void close() {
        stop(0);
    }
}
