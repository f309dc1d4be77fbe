// The admin API over a Unix socket that only the gateway's user may open.
package wirespeed.gateway.runtime;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.StandardProtocolFamily;
import java.net.URI;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import wirespeed.gateway.core.HeadCheck;
import wirespeed.gateway.core.Limits;
import wirespeed.gateway.core.Refusal;
import wirespeed.gateway.core.Request;
import wirespeed.gateway.core.StatusLine;

/** One request per connection; the rights of the file are the authentication. */
final class AdminSocket implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger("wirespeed.gateway");
    /** For a whole request and its answer. */
    private static final int PATIENCE_SECONDS = 30;
    private static final long RETRY_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final Path path;
    private final AdminApi api;
    private final ExecutorService threads;
    private final ServerSocketChannel listener;
    private final Object file;

    /** Listens; a file that a process left behind is replaced, one of a process that runs is not. */
    AdminSocket(Path path, AdminApi api, ExecutorService threads) {
        this.path = path.toAbsolutePath();
        this.api = api;
        this.threads = threads;
        if (isServed(this.path)) {
            throw new ConfigError("admin.socket: \"" + path + "\": another process listens on it");
        }
        try {
            listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
            bind();
            file = Files.readAttributes(this.path, BasicFileAttributes.class).fileKey();
        } catch (IOException | RuntimeException failed) {
            throw new ConfigError("admin.socket: \"" + path + "\": " + failed.getMessage());
        }
    }

    private static boolean isServed(Path path) {
        try (SocketChannel probe = SocketChannel.open(UnixDomainSocketAddress.of(path))) {
            return true;
        } catch (IOException none) {
            return false;
        }
    }

    /** In a folder of its own first: no other user can open it there before it has its rights. */
    private void bind() throws IOException {
        Path own = Files.createTempDirectory(path.getParent(), ".admin");
        Path made = own.resolve("s");
        try {
            listener.bind(UnixDomainSocketAddress.of(made));
            Files.setPosixFilePermissions(made, PosixFilePermissions.fromString("rw-------"));
            Files.move(made, path, StandardCopyOption.ATOMIC_MOVE);
        } finally {
            Files.deleteIfExists(made);
            Files.delete(own);
        }
    }

    void start() {
        Thread thread = new Thread(this::accept, "admin-socket");
        thread.setDaemon(true);
        thread.start();
    }

    private void accept() {
        while (listener.isOpen()) {
            try {
                SocketChannel client = listener.accept();
                CompletableFuture.delayedExecutor(PATIENCE_SECONDS, TimeUnit.SECONDS, Runnable::run)
                        .execute(() -> close(client));
                threads.execute(() -> serve(client));
            } catch (IOException closed) {
                if (listener.isOpen()) {
                    LOG.log(System.Logger.Level.WARNING, "admin.socket: " + closed);
                    // Without a descriptor left accept fails at once, again and again.
                    LockSupport.parkNanos(RETRY_NANOS);
                }
            } catch (java.util.concurrent.RejectedExecutionException stopped) {
                return;
            }
        }
    }

    private static void close(SocketChannel client) {
        try {
            client.close();
        } catch (IOException alreadyBroken) {
            // It is closed all the same.
        }
    }

    private void serve(SocketChannel client) {
        try (client) {
            InputStream in = Channels.newInputStream(client);
            OutputStream out = Channels.newOutputStream(client);
            AdminApi.Answer answer;
            boolean isHead = false;
            try {
                Request request = head(in);
                isHead = request.method().equals("HEAD");
                answer = answer(request, in);
            } catch (Refusal | IllegalArgumentException malformed) {
                answer = AdminApi.Answer.text(400, malformed.getMessage());
            }
            out.write(written(answer, isHead));
            client.shutdownOutput();
            // Closing with something unread would take back the answer.
            in.skipNBytes(AdminServer.BODY_BYTES_MAX);
        } catch (IOException gone) {
            // The client has closed, before its answer or after it.
            close(client);
        }
    }

    /** Byte by byte: what follows is the body's. */
    private static Request head(InputStream in) throws IOException {
        ByteArrayOutputStream read = new ByteArrayOutputStream();
        int end = -1;
        while (end < 0) {
            int next = in.read();
            if (next < 0) {
                throw new java.io.EOFException("a part of a request");
            }
            read.write(next);
            if (next == '\n') {
                end = HeadCheck.end(read.toByteArray(), 0, read.size(), 0, Limits.DEFAULT);
            } else if (read.size() > Limits.DEFAULT.headBytesMax()) {
                throw new Refusal(431, "head is too long");
            }
        }
        return HeadCheck.request(read.toByteArray(), 0, end, Limits.DEFAULT);
    }

    private AdminApi.Answer answer(Request request, InputStream in) throws IOException {
        String length = request.headers().get("Content-Length");
        if (request.headers().has("Transfer-Encoding")) {
            return AdminApi.Answer.text(411, "write Content-Length");
        }
        AdminApi.Asked asked = new AdminApi.Asked(request.method(), URI.create(request.target()),
                request.headers()::get, true);
        // The check of heads has found it to be a number.
        long bytes = length == null ? 0 : Math.min(Long.parseLong(length.trim()), Integer.MAX_VALUE);
        return AdminServer.answer(api, asked, new ByteArrayInputStream(in.readNBytes((int) Math.min(
                bytes, AdminServer.BODY_BYTES_MAX + 1))));
    }

    private static byte[] written(AdminApi.Answer answer, boolean isHead) throws IOException {
        byte[] body = answer.body().getBytes(StandardCharsets.UTF_8);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.write(("HTTP/1.1 " + answer.status() + " " + StatusLine.reason(answer.status())
                + "\r\nContent-Type: " + answer.type() + "\r\nContent-Length: " + body.length
                + answer.fields().entrySet().stream().map(one -> "\r\n" + one.getKey() + ": " + one.getValue())
                .collect(Collectors.joining())
                + "\r\nConnection: close\r\n\r\n").getBytes(StandardCharsets.ISO_8859_1));
        if (!isHead) {
            out.write(body);
        }
        return out.toByteArray();
    }

    /** The file goes, unless another process has put its own there. */
    @Override
    public void close() {
        try {
            listener.close();
            if (Files.exists(path) && Files.readAttributes(path, BasicFileAttributes.class).fileKey()
                    .equals(file)) {
                Files.delete(path);
            }
        } catch (IOException left) {
            LOG.log(System.Logger.Level.WARNING, "admin.socket: " + left);
        }
    }
}
