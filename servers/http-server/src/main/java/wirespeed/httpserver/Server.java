/** The server as a whole: event loops, the listening socket, start and stop. */
package wirespeed.httpserver;

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
import java.util.Collection;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

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
    private Channel listener;

    private Server(Settings settings) throws IOException {
        this.settings = settings;
        workers = group(settings.threads());
        // Connections of a benchmark are opened once: one loop can accept and serve. With several,
        // an acceptor that also serves would give its own connections higher latency than others.
        acceptor = settings.threads() == 1 ? workers : group(1);
        for (EventExecutor executor : workers) {
            loops.put((EventLoop) executor, new Loop((EventLoop) executor, content(), settings));
        }
    }

    /** Listens and serves; the message of an exception says what to do. */
    static Server start(Settings settings) throws IOException {
        Server server = new Server(settings);
        try {
            server.listen();
        } catch (Exception failure) {
            server.endGroups();
            server.loops.values().forEach(loop -> loop.content.close());
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

    /** The serving loops; their state belongs to their threads. */
    Collection<Loop> loops() {
        return loops.values();
    }

    String description() {
        String what = settings.root() == null ? settings.payloadBytes() + " bytes"
                : "files of " + settings.root();
        return "listening on " + settings.host() + ":" + port() + " (" + settings.transport().word()
                + ", threads " + settings.threads() + ", " + what + ")";
    }

    /** Closes the listener, responds to requests read so far, cuts slow ones. */
    void stop() {
        listener.close().awaitUninterruptibly();
        List<Future<Void>> ends = new ArrayList<>();
        loops.values().forEach(loop -> ends.add(loop.stop()));
        ends.forEach(Future::awaitUninterruptibly);
        endGroups();
        loops.values().forEach(loop -> loop.content.close());
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

    private Content content() throws IOException {
        return settings.root() == null ? new Payload(settings.payloadBytes())
                : new Folder(settings.root(), settings.threads());
    }

    private void endGroups() {
        workers.shutdownGracefully(0, GROUP_STOP_MS_MAX, TimeUnit.MILLISECONDS);
        acceptor.shutdownGracefully(0, GROUP_STOP_MS_MAX, TimeUnit.MILLISECONDS);
        workers.terminationFuture().awaitUninterruptibly(GROUP_STOP_MS_MAX);
        acceptor.terminationFuture().awaitUninterruptibly(GROUP_STOP_MS_MAX);
    }
}
