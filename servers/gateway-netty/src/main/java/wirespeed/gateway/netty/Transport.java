// How sockets are driven: NIO, epoll or io_uring, chosen at start and never replaced silently.
package wirespeed.gateway.netty;

import io.netty.channel.Channel;
import io.netty.channel.FixedRecvByteBufAllocator;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.RecvByteBufAllocator;
import io.netty.channel.ServerChannel;
import io.netty.channel.epoll.Epoll;
import io.netty.channel.epoll.EpollDatagramChannel;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.DatagramChannel;
import io.netty.channel.socket.nio.NioDatagramChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.channel.uring.IoUring;
import io.netty.channel.uring.IoUringDatagramChannel;
import io.netty.channel.uring.IoUringIoHandler;
import io.netty.channel.uring.IoUringIoHandlerConfig;
import io.netty.channel.uring.IoUringServerSocketChannel;
import io.netty.channel.uring.IoUringSocketChannel;

/**
 * One kind of socket.
 *
 * @param name as in the configuration
 * @param handler makes the selector of a loop
 * @param server class of listening sockets
 * @param socket class of connections
 * @param datagram class of the sockets that names are asked with
 */
record Transport(String name, IoHandlerFactory handler, Class<? extends ServerChannel> server,
        Class<? extends Channel> socket, Class<? extends DatagramChannel> datagram) {
    /** A read and a write of a thousand connections fit without entering the kernel in between. */
    private static final int RING_SIZE = 4096;

    /** The transport with this name; one that this machine does not have is an error. */
    static Transport of(String name) {
        return switch (name) {
            case "nio" -> new Transport(name, NioIoHandler.newFactory(),
                    NioServerSocketChannel.class, NioSocketChannel.class,
                    NioDatagramChannel.class);
            case "epoll" -> {
                require(name, Epoll.isAvailable() ? null : Epoll.unavailabilityCause());
                yield new Transport(name, RegisteredEpoll.newFactory(),
                        EpollServerSocketChannel.class, EpollSocketChannel.class,
                        EpollDatagramChannel.class);
            }
            case "io_uring" -> {
                require(name, IoUring.isAvailable() ? null : IoUring.unavailabilityCause());
                yield new Transport(name, IoUringIoHandler.newFactory(
                        new IoUringIoHandlerConfig().setRingSize(RING_SIZE)),
                        IoUringServerSocketChannel.class, IoUringSocketChannel.class,
                        IoUringDatagramChannel.class);
            }
            default -> throw new IllegalArgumentException("no transport " + name);
        };
    }

    /** How reads get their memory; io_uring's reads are under way while others are asked for. */
    RecvByteBufAllocator receive(int bytes) {
        return name.equals("io_uring") ? new FixedRecvByteBufAllocator(bytes)
                : new LoopReceive(bytes);
    }

    private static void require(String name, Throwable cause) {
        if (cause != null) {
            throw new IllegalArgumentException("transport " + name + " is not available here: "
                    + cause.getMessage() + "; try --transport nio");
        }
    }
}
