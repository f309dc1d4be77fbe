// What is collected arrives once and in order, whether the socket takes it, a part of it or nothing.
package wirespeed.gateway.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.epoll.Epoll;
import java.io.DataInputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Function;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.core.HeadSink;

class OutBufferTest {
    private static final int RECORD_INTS = 700;
    private static final int RECORDS = 400;

    private MultiThreadIoEventLoopGroup loops;
    private Socket client;
    private OutBuffer out;
    private Channel channel;

    private void connect(String name) throws Exception {
        Transport transport = Transport.of(name);
        loops = new MultiThreadIoEventLoopGroup(1, transport.handler());
        CompletableFuture<ChannelHandlerContext> accepted = new CompletableFuture<>();
        Channel listener = new ServerBootstrap().group(loops).channel(transport.server())
                .childOption(ChannelOption.SO_SNDBUF, 32 * 1024)
                .childHandler(new ChannelInitializer<>() {
                    @Override
                    protected void initChannel(Channel child) {
                        child.pipeline().addLast(new ChannelInboundHandlerAdapter() {
                            @Override
                            public void channelActive(ChannelHandlerContext context) {
                                accepted.complete(context);
                            }
                        });
                    }
                }).bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0)).sync()
                .channel();
        client = new Socket();
        client.setSoTimeout(60_000);
        client.setReceiveBufferSize(16 * 1024);
        client.connect(listener.localAddress());
        ChannelHandlerContext context = accepted.get(60, TimeUnit.SECONDS);
        channel = context.channel();
        out = new OutBuffer();
        channel.eventLoop().submit(() -> out.attach(context)).sync();
    }

    private long allocatedBy(List<ByteBuf> slices) {
        com.sun.management.ThreadMXBean threads = (com.sun.management.ThreadMXBean)
                java.lang.management.ManagementFactory.getThreadMXBean();
        long own = Thread.currentThread().getId();
        out.head(new HeadSink().put('h'));
        long before = threads.getThreadAllocatedBytes(own);
        slices.forEach(out::body);
        long allocated = threads.getThreadAllocatedBytes(own) - before;
        out.discard();
        return allocated;
    }

    @Test
    void small_bodies_are_copied_without_a_view_of_them() throws Exception {
        assumeTrue(Epoll.isAvailable());
        connect("epoll");
        ByteBuf read = channel.alloc().directBuffer(1000).writeZero(1000);
        assumeTrue(read.hasMemoryAddress(), "a Java without Unsafe makes views");
        long bytes = Long.MAX_VALUE;
        // The first round loads classes; later ones are few enough that no compiler removes the views.
        for (int round = 0; round < 5; round++) {
            bytes = Math.min(bytes, channel.eventLoop().submit(() -> {
                List<ByteBuf> slices = new ArrayList<>();
                for (int i = 0; i < 1000; i++) {
                    slices.add(read.retainedSlice(i, 1));
                }
                return allocatedBy(slices);
            }).sync().getNow());
        }
        assertEquals(1, read.refCnt());
        read.release();
        assertTrue(bytes < 16 * 1000, bytes + " bytes for 1000 slices");
    }

    @AfterEach
    void end() throws Exception {
        if (loops != null) {
            client.close();
            loops.shutdownGracefully(0, 5, TimeUnit.SECONDS).sync();
        }
    }

    /** Small records through the buffer, every tenth as a slice of its own behind it. */
    private void send(int record) {
        HeadSink sink = new HeadSink();
        ByteBuf body = Unpooled.directBuffer(RECORD_INTS * 4);
        for (int i = 0; i < RECORD_INTS; i++) {
            int value = record * RECORD_INTS + i;
            body.writeInt(value);
            sink.put((char) (value >>> 24 & 0xff)).put((char) (value >>> 16 & 0xff))
                    .put((char) (value >>> 8 & 0xff)).put((char) (value & 0xff));
        }
        if (record % 10 == 9) {
            out.body(body);
        } else {
            out.head(sink);
            body.release();
        }
        if (record % 3 != 0) {
            out.flush();
        }
    }

    private void all_arrive_in_order(String transport) throws Exception {
        connect(transport);
        // The client reads nothing until everything is written: the socket fills up on the way.
        boolean[] hadRoom = new boolean[1];
        channel.eventLoop().submit(() -> {
            for (int record = 0; record < RECORDS; record++) {
                send(record);
            }
            out.flush();
            hadRoom[0] = out.isWritable();
        }).sync();
        assertFalse(hadRoom[0], "the socket took everything: nothing was queued");
        DataInputStream in = new DataInputStream(
                new java.io.BufferedInputStream(client.getInputStream(), 1 << 16));
        for (int expected = 0; expected < RECORDS * RECORD_INTS; expected++) {
            assertEquals(expected, in.readInt());
        }
        // And once more straight to the socket, after the queue has run empty.
        channel.eventLoop().submit(() -> {
            send(RECORDS + 1);
            out.flush();
            assertTrue(out.isWritable());
        }).sync();
        assertEquals((RECORDS + 1) * RECORD_INTS, in.readInt());
    }

    @Test
    void epoll_keeps_the_order_when_the_socket_is_full() throws Exception {
        assumeTrue(Epoll.isAvailable());
        all_arrive_in_order("epoll");
    }

    @Test
    void nio_keeps_the_order_when_the_socket_is_full() throws Exception {
        all_arrive_in_order("nio");
    }

    @Test
    void nothing_is_sent_to_a_closed_socket_whose_number_may_be_another_ones() throws Exception {
        assumeTrue(Epoll.isAvailable());
        connect("epoll");
        channel.eventLoop().submit(() -> {
            send(1);
            out.flush();
        }).sync();
        channel.close().sync();
        channel.eventLoop().submit(() -> {
            send(2);
            out.flush();
        }).sync();
        DataInputStream in = new DataInputStream(client.getInputStream());
        assertEquals(RECORD_INTS, in.readInt());
        in.skipNBytes(RECORD_INTS * 4L - 4);
        assertEquals(-1, in.read());
    }

    @Test
    void small_pieces_in_a_full_socket_do_not_keep_the_buffers_they_came_in() throws Exception {
        keepsNoBuffer(20, out -> out::body);
    }

    @Test
    void small_chunks_in_a_full_socket_do_not_keep_the_buffers_they_came_in() throws Exception {
        // Every eighth does not fit into what is left of the buffer that collects them.
        keepsNoBuffer(500, out -> out::chunk);
    }

    private void keepsNoBuffer(int bytes, Function<OutBuffer, Consumer<ByteBuf>> way) throws Exception {
        connect("nio");
        List<ByteBuf> read = new ArrayList<>();
        channel.eventLoop().submit(() -> {
            while (out.isWritable()) {
                send(1);
                out.flush();
            }
            for (int i = 0; i < 100; i++) {
                ByteBuf buffer = Unpooled.directBuffer(4096).writeZero(bytes);
                read.add(buffer);
                way.apply(out).accept(buffer.readRetainedSlice(bytes));
                buffer.release();
            }
            out.flush();
        }).sync();
        assertEquals(0, read.stream().filter(buffer -> buffer.refCnt() > 0).count(),
                "buffers of 4 KiB are kept for " + bytes + " bytes each");
    }
}
