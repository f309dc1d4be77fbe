// Sockets, channels and HTTP in virtual threads: blocking calls that park, end, are interrupted.
// Each case prints one line, "ok NAME" or "not ok NAME - what happened"; Java 21 and later.

import com.sun.net.httpserver.HttpServer;
import java.io.DataInputStream;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

public class VirtualThreads extends Cases {
    static final InetAddress LOCAL = InetAddress.getLoopbackAddress();
    static final int SECONDS_MAX = 60;
    static final int CLIENTS = 500;

    public static void main(String[] arguments) throws Exception {
        Map<String, Case> cases = new LinkedHashMap<>();
        endings(cases);
        traffic(cases);
        runAll(cases, arguments, SECONDS_MAX, body -> Thread.ofVirtual().start(body));
    }

    static byte[] content(int length) {
        byte[] bytes = new byte[length];
        new Random(length).nextBytes(bytes);
        return bytes;
    }

    static void endings(Map<String, Case> cases) {
        cases.put("a read times out and the next one gets the data", () -> {
            ServerSocket listener = new ServerSocket(0, 5, LOCAL);
            Socket client = new Socket(LOCAL, listener.getLocalPort());
            Socket server = listener.accept();
            client.setSoTimeout(150);
            expect(SocketTimeoutException.class, () -> client.getInputStream().read());
            server.getOutputStream().write(7);
            check(client.getInputStream().read() == 7, "another byte");
        });
        cases.put("an interrupt closes a socket in read", () -> {
            ServerSocket listener = new ServerSocket(0, 5, LOCAL);
            Socket client = new Socket(LOCAL, listener.getLocalPort());
            Socket server = listener.accept();
            Thread here = Thread.currentThread();
            later(here::interrupt);
            expect(SocketException.class, () -> client.getInputStream().read());
            check(Thread.interrupted() && client.isClosed(), "open, or not interrupted");
            check(server.getInputStream().read() == -1, "no end");
        });
        cases.put("an interrupt closes a socket in write", () -> {
            ServerSocket listener = new ServerSocket(0, 5, LOCAL);
            Socket client = new Socket(LOCAL, listener.getLocalPort());
            listener.accept();
            Thread here = Thread.currentThread();
            later(here::interrupt);
            expect(SocketException.class, () -> {
                while (true) {
                    client.getOutputStream().write(new byte[100_000]);
                }
            });
            check(Thread.interrupted() && client.isClosed(), "open, or not interrupted");
        });
        cases.put("an interrupt closes a listener in accept", () -> {
            ServerSocket listener = new ServerSocket(0, 5, LOCAL);
            Thread here = Thread.currentThread();
            later(here::interrupt);
            expect(SocketException.class, listener::accept);
            check(Thread.interrupted() && listener.isClosed(), "open, or not interrupted");
        });
        cases.put("a close ends a read", () -> {
            ServerSocket listener = new ServerSocket(0, 5, LOCAL);
            Socket client = new Socket(LOCAL, listener.getLocalPort());
            Socket server = listener.accept();
            later(client::close);
            expect(SocketException.class, () -> client.getInputStream().read());
            check(server.getInputStream().read() == -1, "no end");
        });
        cases.put("an interrupt closes a channel in read", () -> {
            ServerSocketChannel listener = ServerSocketChannel.open().bind(new InetSocketAddress(LOCAL, 0));
            SocketChannel client = SocketChannel.open(listener.getLocalAddress());
            SocketChannel server = listener.accept();
            Thread here = Thread.currentThread();
            later(here::interrupt);
            expect(ClosedByInterruptException.class, () -> client.read(ByteBuffer.allocate(1)));
            check(Thread.interrupted() && !client.isOpen(), "open, or not interrupted");
            check(server.read(ByteBuffer.allocate(1)) == -1, "no end");
        });
    }

    static void traffic(Map<String, Case> cases) {
        cases.put("virtual clients and a virtual server", () -> echo(true, true));
        cases.put("platform clients and a virtual server", () -> echo(false, true));
        cases.put("virtual clients and a platform server", () -> echo(true, false));
        cases.put("a lasting answer while the reader is late", () -> {
            ServerSocket listener = new ServerSocket(0, 5, LOCAL);
            Socket client = new Socket(LOCAL, listener.getLocalPort());
            Socket server = listener.accept();
            byte[] all = content(8_000_000);
            later(() -> {
                server.getOutputStream().write(all);
                server.close();
            });
            InputStream in = client.getInputStream();
            byte[] got = new byte[all.length];
            for (int at = 0, count; at < got.length; at += count) {
                count = in.read(got, at, Math.min(70_000, got.length - at));
                check(count > 0, "ended after " + at);
                if (at % 11 == 0) {
                    Thread.sleep(1);
                }
            }
            check(Arrays.equals(got, all) && in.read() == -1, "bytes");
        });
        cases.put("HttpClient and HttpServer in virtual threads", VirtualThreads::http);
    }

    static ExecutorService threads(boolean virtual) {
        return virtual ? Executors.newVirtualThreadPerTaskExecutor() : Executors.newFixedThreadPool(60);
    }

    /** Each client has one connection and asks 20 times; each answer is compared. */
    static void echo(boolean virtualClients, boolean virtualServer) throws Exception {
        int count = virtualClients && virtualServer ? CLIENTS : 50;
        try (ServerSocket listener = new ServerSocket(0, CLIENTS, LOCAL);
                ExecutorService servers = threads(virtualServer); ExecutorService clients = threads(virtualClients)) {
            Thread.ofPlatform().daemon().start(() -> {
                try {
                    while (true) {
                        Socket socket = listener.accept();
                        servers.submit(() -> {
                            try (socket) {
                                return socket.getInputStream().transferTo(socket.getOutputStream());
                            }
                        });
                    }
                } catch (Exception closed) {
                    // the listener was closed: all clients are done
                }
            });
            List<Future<Boolean>> ends = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                ends.add(clients.submit(asking(listener.getLocalPort(), number)));
            }
            for (Future<Boolean> end : ends) {
                check(end.get(), "another answer");
            }
        }
    }

    static Callable<Boolean> asking(int port, int number) {
        return () -> {
            try (Socket socket = new Socket(LOCAL, port)) {
                DataInputStream in = new DataInputStream(socket.getInputStream());
                boolean right = true;
                for (int round = 0; round < 20; round++) {
                    byte[] sent = content(1 + (number * 131 + round * 977) % 9000);
                    byte[] got = new byte[sent.length];
                    socket.getOutputStream().write(sent);
                    in.readFully(got);
                    right &= Arrays.equals(sent, got);
                }
                return right;
            }
        };
    }

    static void http() throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(LOCAL, 0), 0);
        server.setExecutor(Executors.newVirtualThreadPerTaskExecutor());
        server.createContext("/", exchange -> {
            byte[] body = exchange.getRequestBody().readAllBytes();
            exchange.sendResponseHeaders(200, body.length == 0 ? -1 : body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
        URI place = URI.create("http://127.0.0.1:" + server.getAddress().getPort() + "/");
        try (ExecutorService clients = Executors.newVirtualThreadPerTaskExecutor()) {
            HttpClient client = HttpClient.newBuilder().executor(clients).build();
            List<Future<Boolean>> ends = new ArrayList<>();
            for (int number = 0; number < 40; number++) {
                int seed = number;
                ends.add(clients.submit(() -> {
                    boolean right = true;
                    for (int round = 0; round < 20; round++) {
                        byte[] body = content(1 + (seed * 7919 + round * 10_007) % 200_000);
                        HttpResponse<byte[]> answer = client.send(HttpRequest.newBuilder(place)
                                .POST(HttpRequest.BodyPublishers.ofByteArray(body)).build(),
                                HttpResponse.BodyHandlers.ofByteArray());
                        right &= answer.statusCode() == 200 && Arrays.equals(answer.body(), body);
                    }
                    return right;
                }));
            }
            for (Future<Boolean> end : ends) {
                check(end.get(), "another answer");
            }
        }
        server.stop(0);
    }
}
