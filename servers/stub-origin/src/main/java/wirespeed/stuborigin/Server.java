/** The server as a whole: event loops, the listening socket, start and stop. */
package wirespeed.stuborigin;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoop;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.FixedRecvByteBufAllocator;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.util.concurrent.EventExecutor;
import io.netty.util.concurrent.Future;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** A running server. */
final class Server {
    private static final int BACKLOG = 4096;
    /** Fits a request and pipelined ones; a larger buffer only costs cache. */
    private static final int RECEIVE_BYTES = 4096;
    private static final long GROUP_STOP_MS_MAX = 1000;

    private final Settings settings;
    private final EventLoopGroup acceptor;
    private final EventLoopGroup workers;
    private final Map<EventLoop, Loop> loops = new IdentityHashMap<>();
    private final Payloads payloads;
    private Channel listener;

    private Server(Settings settings) throws IOException {
        this.settings = settings;
        workers = group(settings.threads());
        // A gateway's connections are opened once and kept: one loop can accept and serve.
        acceptor = settings.threads() == 1 ? workers : group(1);
        payloads = new Payloads(settings.payloadBytes(), settings.chunkBytes(),
                settings.seed());
        Recorder recorder = settings.record() == null ? null : new Recorder(settings.record());
        SplittableRandom random = new SplittableRandom(settings.seed());
        AtomicLong connections = new AtomicLong();
        for (EventExecutor executor : workers) {
            EventLoop loop = (EventLoop) executor;
            loops.put(loop, new Loop(loop, settings, payloads, recorder, connections,
                    random.split()));
        }
    }

    /** Listens and serves; the message of an exception says what to do. */
    static Server start(Settings settings) throws IOException {
        Server server = new Server(settings);
        try {
            server.listen();
        } catch (Exception failure) {
            server.endGroups();
            throw new IOException("cannot listen on " + settings.host() + ":" + settings.port()
                    + ": " + Transport.reason(failure)
                    + "; choose another --host or --port, or end the program that holds it",
                    failure);
        }
        return server;
    }

    int port() {
        return ((InetSocketAddress) listener.localAddress()).getPort();
    }

    String description() {
        return String.format(Locale.ROOT,
                "listening on %s:%d (%s, threads %d, %d bytes, %s %.3f ms)",
                settings.host(), port(), settings.transport().word(), settings.threads(),
                settings.payloadBytes(), settings.distribution().name().toLowerCase(Locale.ROOT),
                settings.latencyNs() / 1e6);
    }

    /** The real latencies of the requests; to be read after the loops have stopped. */
    String totals() {
        long answered = loops.values().stream().mapToLong(loop -> loop.answered).sum();
        long sumNs = loops.values().stream().mapToLong(loop -> loop.delaySumNs).sum();
        long maxNs = loops.values().stream().mapToLong(loop -> loop.delayMaxNs).max().orElse(0);
        return String.format(Locale.ROOT, "answered %d requests, latency mean %.3f ms, max %.3f ms",
                answered, answered == 0 ? 0 : sumNs / 1e6 / answered, maxNs / 1e6);
    }

    /** Closes the listener, responds to requests read so far, cuts slow ones. */
    void stop() {
        listener.close().awaitUninterruptibly();
        List<Future<Void>> ends = new ArrayList<>();
        loops.values().forEach(loop -> ends.add(loop.stop()));
        ends.forEach(Future::awaitUninterruptibly);
        endGroups();
    }

    private void listen() throws InterruptedException {
        for (Loop loop : loops.values()) {
            loop.executor.submit(loop::tick).sync();
        }
        listener = new ServerBootstrap()
                .group(acceptor, workers)
                .channel(settings.transport().channel)
                .option(ChannelOption.SO_BACKLOG, BACKLOG)
                .option(ChannelOption.SO_REUSEADDR, true)
                .childOption(ChannelOption.TCP_NODELAY, true)
                .childOption(ChannelOption.ALLOW_HALF_CLOSURE, true)
                .childOption(ChannelOption.RECVBUF_ALLOCATOR,
                        new FixedRecvByteBufAllocator(RECEIVE_BYTES))
                .childHandler(new ChannelInitializer<>() {
                    @Override
                    protected void initChannel(Channel channel) {
                        channel.pipeline().addLast(new Connection(loops.get(channel.eventLoop())));
                    }
                })
                .bind(settings.host(), settings.port()).sync().channel();
    }

    private MultiThreadIoEventLoopGroup group(int threads) {
        return new MultiThreadIoEventLoopGroup(threads, settings.transport().handler());
    }

    private void endGroups() {
        workers.shutdownGracefully(0, GROUP_STOP_MS_MAX, TimeUnit.MILLISECONDS);
        acceptor.shutdownGracefully(0, GROUP_STOP_MS_MAX, TimeUnit.MILLISECONDS);
        workers.terminationFuture().awaitUninterruptibly(GROUP_STOP_MS_MAX);
        acceptor.terminationFuture().awaitUninterruptibly(GROUP_STOP_MS_MAX);
        payloads.release();
    }
}
