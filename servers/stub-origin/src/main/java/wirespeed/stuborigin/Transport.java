/** The transports: Java's NIO, native epoll, io_uring. */
package wirespeed.stuborigin;

import io.netty.channel.IoHandlerFactory;
import io.netty.channel.ServerChannel;
import io.netty.channel.epoll.Epoll;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.uring.IoUring;
import io.netty.channel.uring.IoUringIoHandler;
import io.netty.channel.uring.IoUringIoHandlerConfig;
import io.netty.channel.uring.IoUringServerSocketChannel;

/** A transport; an unavailable one is an error, never replaced by another. */
enum Transport {
    NIO(NioServerSocketChannel.class) {
        @Override
        IoHandlerFactory handler() {
            return NioIoHandler.newFactory();
        }

        @Override
        Throwable unavailable() {
            return null;
        }
    },
    EPOLL(EpollServerSocketChannel.class) {
        @Override
        IoHandlerFactory handler() {
            return RegisteredEpoll.newFactory();
        }

        @Override
        Throwable unavailable() {
            return Epoll.unavailabilityCause();
        }
    },
    IO_URING(IoUringServerSocketChannel.class) {
        @Override
        IoHandlerFactory handler() {
            return IoUringIoHandler.newFactory(new IoUringIoHandlerConfig().setRingSize(RING_SIZE));
        }

        @Override
        Throwable unavailable() {
            return IoUring.unavailabilityCause();
        }
    };

    /**
     * Fits a read and a write of a thousand connections: with the default of 128 the kernel is
     * entered in between, which costs 7 % of the CPU time at 1000 connections.
     */
    private static final int RING_SIZE = 4096;
    final Class<? extends ServerChannel> channel;

    Transport(Class<? extends ServerChannel> channel) {
        this.channel = channel;
    }

    abstract IoHandlerFactory handler();

    /** Why this machine cannot use it; null if it can. */
    abstract Throwable unavailable();

    /** The name on the command line. */
    String word() {
        return name().toLowerCase(java.util.Locale.ROOT);
    }

    static Transport named(String word) {
        for (Transport transport : values()) {
            if (transport.word().equals(word)) {
                return transport;
            }
        }
        throw new BadUsage("give nio, epoll or io_uring");
    }

    /** The root cause in one line: the outer ones only say that a class did not start. */
    static String reason(Throwable cause) {
        Throwable deepest = cause;
        while (deepest.getCause() != null && deepest.getCause() != deepest) {
            deepest = deepest.getCause();
        }
        return String.valueOf(deepest.getMessage()).lines().findFirst().orElse("no reason given");
    }
}
