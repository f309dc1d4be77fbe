// What Java promises of sockets and channels when calls are interrupted, closed, timed out or short.
// Each case prints one line, "ok NAME" or "not ok NAME - what happened"; Java 17 and later.

import java.io.IOException;
import java.io.InputStream;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.AsynchronousServerSocketChannel;
import java.nio.channels.AsynchronousSocketChannel;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.CompletionHandler;
import java.nio.channels.FileChannel;
import java.nio.channels.InterruptedByTimeoutException;
import java.nio.channels.NotYetConnectedException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

public class Channels extends Cases {
    static final InetAddress LOCAL = InetAddress.getLoopbackAddress();
    static final int SECONDS_MAX = 30;

    public static void main(String[] arguments) throws Exception {
        Map<String, Case> cases = new LinkedHashMap<>();
        streams(cases);
        blockingChannels(cases);
        selectors(cases);
        asynchronous(cases);
        runAll(cases, arguments, SECONDS_MAX, body -> {
            Thread thread = new Thread(body);
            thread.setDaemon(true);
            thread.start();
            return thread;
        });
    }

    record Sockets(Socket client, Socket server) {
        static Sockets open() throws IOException {
            try (ServerSocket listener = new ServerSocket(0, 5, LOCAL)) {
                return new Sockets(new Socket(LOCAL, listener.getLocalPort()), listener.accept());
            }
        }
    }

    record Pair(SocketChannel client, SocketChannel server) {
        static Pair open() throws IOException {
            try (ServerSocketChannel listener = listen()) {
                return new Pair(SocketChannel.open(listener.getLocalAddress()), listener.accept());
            }
        }
    }

    static ServerSocketChannel listen() throws IOException {
        return ServerSocketChannel.open().bind(new InetSocketAddress(LOCAL, 0));
    }

    static byte[] content(int length) {
        byte[] bytes = new byte[length];
        new Random(length).nextBytes(bytes);
        return bytes;
    }

    static void streams(Map<String, Case> cases) {
        cases.put("a read times out and the next one gets the data", () -> {
            Sockets two = Sockets.open();
            two.client.setSoTimeout(150);
            expect(SocketTimeoutException.class, () -> two.client.getInputStream().read());
            two.server.getOutputStream().write(7);
            check(two.client.getInputStream().read() == 7, "another byte");
        });
        cases.put("an accept times out and the next one accepts", () -> {
            ServerSocket listener = new ServerSocket(0, 5, LOCAL);
            listener.setSoTimeout(150);
            expect(SocketTimeoutException.class, listener::accept);
            Socket client = new Socket(LOCAL, listener.getLocalPort());
            check(listener.accept().getPort() == client.getLocalPort(), "another port");
        });
        cases.put("a close ends another thread's read", () -> {
            Sockets two = Sockets.open();
            later(two.client::close);
            expect(SocketException.class, () -> two.client.getInputStream().read());
            check(two.server.getInputStream().read() == -1, "no end");
        });
        cases.put("a close ends another thread's accept", () -> {
            ServerSocket listener = new ServerSocket(0, 5, LOCAL);
            later(listener::close);
            expect(SocketException.class, listener::accept);
        });
        cases.put("a close ends another thread's write", () -> {
            Sockets two = Sockets.open();
            later(two.client::close);
            expect(SocketException.class, () -> {
                while (true) {
                    two.client.getOutputStream().write(new byte[100_000]);
                }
            });
        });
        cases.put("half a close leaves the other half", () -> {
            Sockets two = Sockets.open();
            two.client.shutdownOutput();
            check(two.server.getInputStream().read() == -1, "no end");
            two.server.getOutputStream().write(content(100_000));
            two.server.shutdownOutput();
            check(Arrays.equals(two.client.getInputStream().readAllBytes(), content(100_000)), "bytes");
        });
        cases.put("shutdownInput ends a read and gives the end", () -> {
            Sockets two = Sockets.open();
            later(two.client::shutdownInput);
            check(two.client.getInputStream().read() == -1, "no end");
        });
        cases.put("linger of zero resets", () -> {
            Sockets two = Sockets.open();
            two.client.setSoLinger(true, 0);
            two.client.close();
            expect(SocketException.class, () -> two.server.getInputStream().read());
        });
        cases.put("a reset is reported again to the next read", () -> {
            Sockets two = Sockets.open();
            two.client.setSoLinger(true, 0);
            two.client.close();
            expect(SocketException.class, () -> two.server.getInputStream().read());
            expect(SocketException.class, () -> two.server.getInputStream().read());
        });
        cases.put("available counts what has come", () -> {
            Sockets two = Sockets.open();
            two.client.getOutputStream().write(new byte[4321]);
            for (int i = 0; i < 1000 && two.server.getInputStream().available() < 4321; i++) {
                Thread.sleep(5);
            }
            check(two.server.getInputStream().available() == 4321, two.server.getInputStream().available());
        });
        cases.put("an urgent byte is dropped, the rest arrives", () -> {
            Sockets two = Sockets.open();
            two.client.getOutputStream().write(new byte[] {1, 2});
            two.client.sendUrgentData(9);
            two.client.getOutputStream().write(new byte[] {3});
            two.client.close();
            check(Arrays.equals(two.server.getInputStream().readAllBytes(), new byte[] {1, 2, 3}), "bytes");
        });
        cases.put("an urgent byte is read in line", () -> {
            Sockets two = Sockets.open();
            two.server.setOOBInline(true);
            two.client.getOutputStream().write(new byte[] {1, 2});
            two.client.sendUrgentData(9);
            two.client.close();
            check(Arrays.equals(two.server.getInputStream().readAllBytes(), new byte[] {1, 2, 9}), "bytes");
        });
        cases.put("addresses agree", () -> {
            Sockets two = Sockets.open();
            check(two.client.getLocalSocketAddress().equals(two.server.getRemoteSocketAddress())
                    && two.client.getRemoteSocketAddress().equals(two.server.getLocalSocketAddress()), two);
        });
        cases.put("no listener", () -> {
            int port;
            try (ServerSocket free = new ServerSocket(0, 5, LOCAL)) {
                port = free.getLocalPort();
            }
            expect(ConnectException.class, () -> new Socket(LOCAL, port));
        });
        cases.put("options are what was set", () -> {
            Sockets two = Sockets.open();
            two.client.setTcpNoDelay(true);
            two.client.setKeepAlive(true);
            two.client.setReuseAddress(true);
            two.client.setSoLinger(true, 3);
            two.client.setTrafficClass(8);
            check(two.client.getTcpNoDelay() && two.client.getKeepAlive() && two.client.getReuseAddress()
                    && two.client.getSoLinger() == 3 && two.client.getTrafficClass() == 8
                    && two.client.getReceiveBufferSize() > 0 && two.client.getSendBufferSize() > 0, "one differs");
        });
    }

    static void blockingChannels(Map<String, Case> cases) {
        cases.put("an interrupt closes a channel in read", () -> {
            Pair two = Pair.open();
            Thread here = Thread.currentThread();
            later(here::interrupt);
            expect(ClosedByInterruptException.class, () -> two.client.read(ByteBuffer.allocate(10)));
            check(Thread.interrupted() && !two.client.isOpen(), "open, or not interrupted");
            check(two.server.read(ByteBuffer.allocate(10)) == -1, "no end");
        });
        cases.put("an interrupt closes a channel in write", () -> {
            Pair two = Pair.open();
            Thread here = Thread.currentThread();
            later(here::interrupt);
            expect(ClosedByInterruptException.class, () -> {
                while (true) {
                    two.client.write(ByteBuffer.allocate(100_000));
                }
            });
            check(Thread.interrupted() && !two.client.isOpen(), "open, or not interrupted");
        });
        cases.put("an interrupt closes a channel in accept", () -> {
            ServerSocketChannel listener = listen();
            Thread here = Thread.currentThread();
            later(here::interrupt);
            expect(ClosedByInterruptException.class, listener::accept);
            check(Thread.interrupted() && !listener.isOpen(), "open, or not interrupted");
        });
        cases.put("an interrupted thread's read closes at once", () -> {
            Pair two = Pair.open();
            Thread.currentThread().interrupt();
            expect(ClosedByInterruptException.class, () -> two.client.read(ByteBuffer.allocate(10)));
            check(Thread.interrupted(), "not interrupted");
        });
        cases.put("a close ends another thread's read of a channel", () -> {
            Pair two = Pair.open();
            later(two.client::close);
            expect(AsynchronousCloseException.class, () -> two.client.read(ByteBuffer.allocate(10)));
            check(two.server.read(ByteBuffer.allocate(10)) == -1, "no end");
        });
        cases.put("a close ends another thread's accept of a channel", () -> {
            ServerSocketChannel listener = listen();
            later(listener::close);
            expect(AsynchronousCloseException.class, listener::accept);
        });
        cases.put("a channel's socket times out", () -> {
            Pair two = Pair.open();
            two.client.socket().setSoTimeout(150);
            InputStream in = two.client.socket().getInputStream();
            expect(SocketTimeoutException.class, in::read);
            two.server.write(ByteBuffer.wrap(new byte[] {5}));
            check(in.read() == 5, "another byte");
        });
        cases.put("gather and scatter", () -> {
            Pair two = Pair.open();
            ByteBuffer[] out = {ByteBuffer.wrap(content(11)), ByteBuffer.wrap(content(3000)),
                ByteBuffer.allocate(0), ByteBuffer.wrap(content(77))};
            check(two.client.write(out) == 3088, "short write");
            ByteBuffer[] in = {ByteBuffer.allocate(11), ByteBuffer.allocate(3000), ByteBuffer.allocate(77)};
            for (long got = 0; got < 3088;) {
                got += two.server.read(in);
            }
            check(Arrays.equals(in[0].array(), content(11)) && Arrays.equals(in[1].array(), content(3000))
                    && Arrays.equals(in[2].array(), content(77)), "bytes");
        });
        cases.put("a file is transferred there and back", Channels::transferFile);
        cases.put("a channel that is not connected", () ->
                expect(NotYetConnectedException.class, () -> SocketChannel.open().read(ByteBuffer.allocate(1))));
        cases.put("a channel survives the switch of its mode", () -> {
            Pair two = Pair.open();
            ByteBuffer one = ByteBuffer.allocate(1);
            for (int round = 0; round < 50; round++) {
                two.client.configureBlocking(round % 2 == 0);
                two.server.write(ByteBuffer.wrap(new byte[] {(byte) round}));
                one.clear();
                while (two.client.read(one) == 0) {
                    Thread.onSpinWait();
                }
                check(one.get(0) == round, "another byte");
            }
        });
    }

    static void transferFile() throws Exception {
        Pair two = Pair.open();
        Path from = Files.createTempFile("channels", ".from");
        Path to = Files.createTempFile("channels", ".to");
        Files.write(from, content(5_000_000));
        Thread sender = new Thread(() -> {
            try (FileChannel file = FileChannel.open(from)) {
                for (long at = 0; at < 5_000_000;) {
                    at += file.transferTo(at, 5_000_000 - at, two.client);
                }
                two.client.shutdownOutput();
            } catch (IOException wrong) {
                System.out.println("# sender: " + wrong);
            }
        });
        sender.start();
        try (FileChannel file = FileChannel.open(to, StandardOpenOption.WRITE)) {
            for (long at = 0, got = 1; got > 0; at += got) {
                got = file.transferFrom(two.server, at, 1_000_000);
            }
        }
        sender.join();
        long differs = Files.mismatch(from, to);
        Files.delete(from);
        Files.delete(to);
        check(differs == -1, "differs at " + differs);
    }

    static void selectors(Map<String, Case> cases) {
        cases.put("connect, write, read and end by selector", Channels::bySelector);
        cases.put("a wakeup ends a select", () -> {
            Selector selector = Selector.open();
            Pair two = Pair.open();
            two.client.configureBlocking(false).register(selector, SelectionKey.OP_READ);
            later(selector::wakeup);
            check(selector.select(20_000) == 0 && two.client.isOpen(), "selected");
        });
        cases.put("an interrupt ends a select and closes nothing", () -> {
            Selector selector = Selector.open();
            Pair two = Pair.open();
            two.client.configureBlocking(false).register(selector, SelectionKey.OP_READ);
            Thread here = Thread.currentThread();
            later(here::interrupt);
            check(selector.select(20_000) == 0 && Thread.interrupted() && two.client.isOpen(), "closed");
        });
        cases.put("a close by another thread takes the key away", () -> {
            Selector selector = Selector.open();
            Pair two = Pair.open();
            SelectionKey key = two.client.configureBlocking(false).register(selector, SelectionKey.OP_READ);
            later(() -> {
                two.client.close();
                selector.wakeup();
            });
            selector.select(20_000);
            selector.selectNow();
            check(!key.isValid() && selector.keys().isEmpty(), "the key is there");
            check(two.server.read(ByteBuffer.allocate(1)) == -1, "no end");
        });
        cases.put("a cancelled key can be registered again", () -> {
            Selector selector = Selector.open();
            Pair two = Pair.open();
            two.client.configureBlocking(false).register(selector, SelectionKey.OP_READ).cancel();
            selector.selectNow();
            two.client.register(selector, SelectionKey.OP_READ);
            two.server.write(ByteBuffer.wrap(new byte[1]));
            check(selector.select(20_000) == 1, "not selected");
        });
        cases.put("a full channel is not writable until it is read", () -> {
            Selector selector = Selector.open();
            Pair two = Pair.open();
            SelectionKey key = two.client.configureBlocking(false).register(selector, SelectionKey.OP_WRITE);
            long sent = 0;
            while (selector.select(300) > 0) {
                selector.selectedKeys().clear();
                sent += two.client.write(ByteBuffer.allocate(100_000));
            }
            check(key.isValid() && sent > 0, "nothing was sent");
            for (long got = 0; got < sent;) {
                got += two.server.read(ByteBuffer.allocate(100_000));
            }
            check(selector.select(20_000) == 1, "still not writable");
        });
        cases.put("no listener for a selector", () -> {
            int port;
            try (ServerSocket free = new ServerSocket(0, 5, LOCAL)) {
                port = free.getLocalPort();
            }
            SocketChannel client = SocketChannel.open();
            client.configureBlocking(false);
            expect(ConnectException.class, () -> {
                if (!client.connect(new InetSocketAddress(LOCAL, port))) {
                    Selector selector = Selector.open();
                    client.register(selector, SelectionKey.OP_CONNECT);
                    selector.select(20_000);
                    client.finishConnect();
                }
            });
        });
    }

    static void bySelector() throws Exception {
        Selector selector = Selector.open();
        ServerSocketChannel listener = listen();
        listener.configureBlocking(false).register(selector, SelectionKey.OP_ACCEPT);
        SocketChannel client = SocketChannel.open();
        client.configureBlocking(false);
        client.setOption(StandardSocketOptions.TCP_NODELAY, true);
        client.register(selector, SelectionKey.OP_CONNECT);
        client.connect(listener.getLocalAddress());
        ByteBuffer all = ByteBuffer.wrap(content(3_000_000));
        ByteBuffer got = ByteBuffer.allocate(3_000_000);
        for (boolean ended = false; !ended;) {
            check(selector.select(20_000) > 0, "nothing happens at " + got.position());
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    listener.accept().configureBlocking(false).register(selector, SelectionKey.OP_READ);
                } else if (key.isConnectable()) {
                    check(client.finishConnect(), "not connected");
                    key.interestOps(SelectionKey.OP_WRITE);
                } else if (key.isWritable()) {
                    client.write(all);
                    if (!all.hasRemaining()) {
                        client.shutdownOutput();
                        key.interestOps(0);
                    }
                } else if (got.hasRemaining()) {
                    ((SocketChannel) key.channel()).read(got);
                } else {
                    ended = ((SocketChannel) key.channel()).read(ByteBuffer.allocate(1)) == -1;
                }
            }
            selector.selectedKeys().clear();
        }
        check(Arrays.equals(got.array(), all.array()), "bytes");
    }

    static void asynchronous(Map<String, Case> cases) {
        cases.put("an asynchronous echo", Channels::echoAsynchronously);
        cases.put("an asynchronous read times out", () -> {
            AsynchronousServerSocketChannel listener = AsynchronousServerSocketChannel.open()
                    .bind(new InetSocketAddress(LOCAL, 0));
            AsynchronousSocketChannel client = AsynchronousSocketChannel.open();
            client.connect(listener.getLocalAddress()).get();
            listener.accept().get();
            CompletableFuture<Integer> end = new CompletableFuture<>();
            client.read(ByteBuffer.allocate(1), 150, TimeUnit.MILLISECONDS, null, into(end));
            check(cause(end) instanceof InterruptedByTimeoutException, cause(end));
        });
        cases.put("a close ends an asynchronous read and accept", () -> {
            AsynchronousServerSocketChannel listener = AsynchronousServerSocketChannel.open()
                    .bind(new InetSocketAddress(LOCAL, 0));
            AsynchronousSocketChannel client = AsynchronousSocketChannel.open();
            client.connect(listener.getLocalAddress()).get();
            AsynchronousSocketChannel server = listener.accept().get();
            CompletableFuture<Integer> end = new CompletableFuture<>();
            client.read(ByteBuffer.allocate(1), null, into(end));
            CompletableFuture<AsynchronousSocketChannel> accepted = new CompletableFuture<>();
            listener.accept(null, into(accepted));
            later(client::close);
            later(listener::close);
            check(cause(end) instanceof AsynchronousCloseException, "read");
            check(cause(accepted) instanceof AsynchronousCloseException, "accept");
            check(server.read(ByteBuffer.allocate(1)).get() == -1, "no end");
        });
    }

    static void echoAsynchronously() throws Exception {
        AsynchronousServerSocketChannel listener = AsynchronousServerSocketChannel.open()
                .bind(new InetSocketAddress(LOCAL, 0));
        AsynchronousSocketChannel client = AsynchronousSocketChannel.open();
        client.connect(listener.getLocalAddress()).get();
        AsynchronousSocketChannel server = listener.accept().get();
        CompletableFuture<Integer> end = new CompletableFuture<>();
        AtomicInteger left = new AtomicInteger(300);
        ByteBuffer buffer = ByteBuffer.allocate(1000);
        server.read(buffer, null, new CompletionHandler<Integer, Void>() {
            public void completed(Integer count, Void none) {
                try {
                    buffer.flip();
                    while (buffer.hasRemaining()) {
                        server.write(buffer).get();
                    }
                    buffer.clear();
                    if (left.decrementAndGet() > 0) {
                        server.read(buffer, null, this);
                    } else {
                        end.complete(0);
                    }
                } catch (Exception wrong) {
                    end.completeExceptionally(wrong);
                }
            }

            public void failed(Throwable wrong, Void none) {
                end.completeExceptionally(wrong);
            }
        });
        for (int round = 0; round < 300; round++) {
            client.write(ByteBuffer.wrap(new byte[] {(byte) round})).get();
            ByteBuffer one = ByteBuffer.allocate(1);
            check(client.read(one).get() == 1 && one.get(0) == (byte) round, "another byte");
        }
        check(end.get() == 0, "the server failed");
    }

    static <T> CompletionHandler<T, Void> into(CompletableFuture<T> end) {
        return new CompletionHandler<>() {
            public void completed(T value, Void none) {
                end.complete(value);
            }

            public void failed(Throwable wrong, Void none) {
                end.completeExceptionally(wrong);
            }
        };
    }

    static Throwable cause(CompletableFuture<?> end) throws Exception {
        try {
            end.get(20, TimeUnit.SECONDS);
            return null;
        } catch (ExecutionException wrong) {
            return wrong.getCause();
        }
    }
}
