// gRPC through the gateway, and origins of HTTP/2; gateway-netty only.
package wirespeed.gateway.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import wirespeed.gateway.core.Meters;
import wirespeed.gateway.netty.Main;
import wirespeed.gateway.runtime.Launcher;

@Timeout(240)
class NettyGrpcTest extends CarrierContract {
    private static final MethodDescriptor.Marshaller<String> TEXT =
            new MethodDescriptor.Marshaller<>() {
                @Override
                public InputStream stream(String value) {
                    return new ByteArrayInputStream(value.getBytes(StandardCharsets.UTF_8));
                }

                @Override
                public String parse(InputStream bytes) {
                    try {
                        return new String(bytes.readAllBytes(), StandardCharsets.UTF_8);
                    } catch (IOException e) {
                        throw new UncheckedIOException(e);
                    }
                }
            };
    private static final MethodDescriptor<String, String> UNARY =
            method("unary", MethodDescriptor.MethodType.UNARY);
    private static final MethodDescriptor<String, String> STREAM =
            method("stream", MethodDescriptor.MethodType.SERVER_STREAMING);
    private static final MethodDescriptor<String, String> BOTH =
            method("both", MethodDescriptor.MethodType.BIDI_STREAMING);

    @TempDir
    Path folder;

    @Override
    public Launcher.Factory factory() {
        return Main::carrier;
    }

    @Override
    public Map<String, Object> options() {
        return Map.of("server.transport", "epoll", "server.threads", "1");
    }

    private static MethodDescriptor<String, String> method(String name,
            MethodDescriptor.MethodType type) {
        return MethodDescriptor.<String, String>newBuilder(TEXT, TEXT)
                .setFullMethodName("test.Echo/" + name).setType(type).build();
    }

    private static void unary(String asked, StreamObserver<String> answer) {
        if (asked.equals("nothing")) {
            answer.onError(Status.NOT_FOUND.withDescription("no such thing").asException());
            return;
        }
        answer.onNext(asked);
        answer.onCompleted();
    }

    private static void stream(String asked, StreamObserver<String> answer) {
        for (int i = 0; i < Integer.parseInt(asked); i++) {
            answer.onNext(i + "-" + "x".repeat(i % 3000));
        }
        answer.onCompleted();
    }

    private static StreamObserver<String> both(StreamObserver<String> answer) {
        return new StreamObserver<>() {
            @Override
            public void onNext(String said) {
                answer.onNext("heard " + said);
            }

            @Override
            public void onError(Throwable gone) {
                // The test looks at the client's side.
            }

            @Override
            public void onCompleted() {
                answer.onCompleted();
            }
        };
    }

    private Server origin(NettyServerBuilder builder) throws IOException {
        Server server = builder.addService(ServerServiceDefinition.builder("test.Echo")
                .addMethod(UNARY, ServerCalls.asyncUnaryCall(NettyGrpcTest::unary))
                .addMethod(STREAM, ServerCalls.asyncServerStreamingCall(NettyGrpcTest::stream))
                .addMethod(BOTH, ServerCalls.asyncBidiStreamingCall(NettyGrpcTest::both))
                .build()).build().start();
        closedLater(server::shutdownNow);
        return server;
    }

    private Server plainOrigin() throws IOException {
        return origin(NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0)));
    }

    private Channel channel(NettyChannelBuilder builder) {
        ManagedChannel channel = builder.build();
        closedLater(channel::shutdownNow);
        return channel;
    }

    private Channel plain(Carrier gateway) {
        return channel(NettyChannelBuilder.forAddress(gateway.address).usePlaintext());
    }

    private static String config(Server server) {
        return "[server]\nh2c = true\n[origins.o]\nhttp2 ="
                + " \"prior-knowledge\"\naddresses = [\"127.0.0.1:" + server.getPort() + "\"]\n";
    }

    private static String ask(Channel channel, String text) {
        return ClientCalls.blockingUnaryCall(channel, UNARY, CallOptions.DEFAULT, text);
    }

    private static long opened(Carrier gateway) {
        return gateway.runtime.gateway().meters().stream()
                .mapToLong(one -> one.get(Meters.Count.ORIGIN_CONNECTIONS_OPENED)).sum();
    }

    @Test
    void unary_calls_pass_and_share_a_connection() throws Exception {
        Carrier gateway = start(config(plainOrigin()));
        Channel channel = plain(gateway);
        for (int i = 0; i < 50; i++) {
            String text = i + "x".repeat(i * 1000);
            assertEquals(text, ask(channel, text));
        }
        assertEquals(1, opened(gateway));
    }

    @Test
    void an_error_arrives_with_its_text() throws Exception {
        Channel channel = plain(start(config(plainOrigin())));
        StatusRuntimeException error = assertThrows(StatusRuntimeException.class,
                () -> ask(channel, "nothing"));
        assertEquals(Status.Code.NOT_FOUND, error.getStatus().getCode());
        assertEquals("no such thing", error.getStatus().getDescription());
        assertEquals("again", ask(channel, "again"));
    }

    @Test
    void a_stream_of_answers_arrives_whole() throws Exception {
        Channel channel = plain(start(config(plainOrigin())));
        Iterator<String> answers = ClientCalls.blockingServerStreamingCall(channel, STREAM,
                CallOptions.DEFAULT, "2000");
        for (int i = 0; i < 2000; i++) {
            assertEquals(i + "-" + "x".repeat(i % 3000), answers.next());
        }
        assertTrue(!answers.hasNext());
    }

    @Test
    void both_sides_speak_alternately() throws Exception {
        Channel channel = plain(start(config(plainOrigin())));
        BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        StreamObserver<String> speaker = ClientCalls.asyncBidiStreamingCall(
                channel.newCall(BOTH, CallOptions.DEFAULT), new StreamObserver<>() {
                    @Override
                    public void onNext(String text) {
                        heard.add(text);
                    }

                    @Override
                    public void onError(Throwable failed) {
                        heard.add("failed: " + failed);
                    }

                    @Override
                    public void onCompleted() {
                        heard.add("end");
                    }
                });
        for (int i = 0; i < 20; i++) {
            speaker.onNext("word " + i);
            assertEquals("heard word " + i, heard.poll(60, TimeUnit.SECONDS));
        }
        speaker.onCompleted();
        assertEquals("end", heard.poll(60, TimeUnit.SECONDS));
    }

    @Test
    void many_calls_at_a_time_are_not_mixed_up() throws Exception {
        Carrier gateway = start(config(plainOrigin()));
        Channel channel = plain(gateway);
        List<java.util.concurrent.Future<String>> answers = new ArrayList<>();
        for (int i = 0; i < 300; i++) {
            answers.add(ClientCalls.futureUnaryCall(channel.newCall(UNARY, CallOptions.DEFAULT),
                    "call " + i));
        }
        for (int i = 0; i < 300; i++) {
            assertEquals("call " + i, answers.get(i).get(60, TimeUnit.SECONDS));
        }
        assertTrue(opened(gateway) <= 5, opened(gateway) + " connections for 300 calls");
    }

    @Test
    void both_hops_agree_on_http2_in_the_handshake() throws Exception {
        Certificate certificate = new Certificate(folder);
        Server server = origin(NettyServerBuilder.forAddress(
                new InetSocketAddress("127.0.0.1", 0)).useTransportSecurity(
                certificate.certificate.toFile(), certificate.key.toFile()));
        Carrier gateway = start("[tls]\ncertificate = \"" + certificate.certificate + "\"\nkey = \""
                + certificate.key + "\"\norigin-ca = \"" + certificate.certificate + "\"\n"
                + "[timeouts]\nhead = \"2m\"\n[origins.o]\ntls = true\n"
                + "http2 = \"alpn\"\nconnect = \"1m\"\naddresses = [\"127.0.0.1:"
                + server.getPort() + "\"]\n");
        Channel channel = channel(NettyChannelBuilder.forAddress(gateway.address).sslContext(
                GrpcSslContexts.forClient().trustManager(certificate.certificate.toFile())
                        .build()));
        assertEquals("secret", ask(channel, "secret"));
        assertEquals("again", ask(channel, "again"));
        assertEquals(1, opened(gateway));
    }

    @Test
    void an_origin_that_comes_back_is_asked_again() throws Exception {
        // An address of its own: no other process takes the port there meanwhile.
        String host = "127.0.0.78";
        Server first = origin(NettyServerBuilder.forAddress(new InetSocketAddress(host, 0)));
        Carrier gateway = start(config(first).replace("127.0.0.1", host));
        Channel channel = plain(gateway);
        assertEquals("one", ask(channel, "one"));
        int port = first.getPort();
        first.shutdownNow().awaitTermination();
        awaitNoConnection(gateway);
        origin(NettyServerBuilder.forAddress(new InetSocketAddress(host, port)));
        assertEquals("two", ask(channel, "two"));
    }

    /** A call that the gateway sends before it sees the end of its connection is lost with it. */
    private static void awaitNoConnection(Carrier gateway) throws InterruptedException {
        while (gateway.runtime.gateway().pools().stream()
                .anyMatch(pools -> pools.describe().contains("\"open\":1"))) {
            Thread.sleep(5);
        }
    }

    @Test
    void a_client_of_http1_gets_the_answer_of_an_origin_of_http2() throws Exception {
        Carrier gateway = start(config(plainOrigin()));
        try (Socket socket = new Socket(gateway.address.getAddress(), gateway.address.getPort())) {
            socket.setSoTimeout(60_000);
            socket.getOutputStream().write(("POST /test.Echo/unary HTTP/1.1\r\nHost: a\r\n"
                    + "Content-Type: application/grpc\r\nTE: trailers\r\nConnection: close, TE\r\n"
                    + "Content-Length: 7\r\n\r\n\0\0\0\0\2hi")
                    .getBytes(StandardCharsets.ISO_8859_1));
            String answer = new String(socket.getInputStream().readAllBytes(),
                    StandardCharsets.ISO_8859_1);
            assertTrue(answer.startsWith("HTTP/1.1 200"), answer);
            assertTrue(answer.contains("\0\0\0\0\2hi"), answer);
            assertTrue(answer.endsWith("0\r\ngrpc-status: 0\r\n\r\n"), answer);
        }
    }

    @Test
    void a_call_to_a_dead_origin_is_unavailable() throws Exception {
        Server server = plainOrigin();
        Channel channel = plain(start(config(server)));
        assertEquals("x", ask(channel, "x"));
        server.shutdownNow().awaitTermination();
        StatusRuntimeException error = assertThrows(StatusRuntimeException.class,
                () -> ask(channel, "x"));
        assertEquals(Status.Code.UNAVAILABLE, error.getStatus().getCode());
    }
}
