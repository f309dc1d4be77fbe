/** Sends a part of a file that is too large to be kept in memory. */
package wirespeed.httpserver;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelPromise;
import io.netty.channel.DefaultFileRegion;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** Sends from the page cache to the socket if the transport can, else in pieces. */
abstract class FileSender {
    private long seenBytes;

    /** Opens the file, so that a failure can still become a status. */
    static FileSender open(Path path, long from, long bytes, boolean isRegionSupported)
            throws IOException {
        FileChannel channel = FileChannel.open(path, StandardOpenOption.READ);
        return isRegionSupported ? new Region(channel, from, bytes)
                : new Pieces(channel, from, bytes);
    }

    /** Starts; the future completes with the last byte. */
    abstract ChannelFuture start(ChannelHandlerContext context);

    abstract long sentBytes();

    /** Whether bytes were sent since the last call. */
    boolean hasProgressed() {
        boolean hasProgressed = sentBytes() != seenBytes;
        seenBytes = sentBytes();
        return hasProgressed;
    }

    private static final class Region extends FileSender {
        private final DefaultFileRegion region;

        Region(FileChannel channel, long from, long bytes) {
            region = new DefaultFileRegion(channel, from, bytes);
        }

        @Override
        ChannelFuture start(ChannelHandlerContext context) {
            return context.writeAndFlush(region);
        }

        @Override
        long sentBytes() {
            return region.transferred();
        }
    }

    /** io_uring has no file regions: a piece is read after the previous one was sent. */
    private static final class Pieces extends FileSender {
        private static final int PIECE_BYTES = 64 * 1024;
        private final FileChannel channel;
        private final long end;
        private long position;
        private ChannelHandlerContext context;
        private ChannelPromise done;

        Pieces(FileChannel channel, long from, long bytes) {
            this.channel = channel;
            position = from;
            end = from + bytes;
        }

        @Override
        ChannelFuture start(ChannelHandlerContext ctx) {
            context = ctx;
            done = ctx.newPromise();
            done.addListener(ended -> channel.close());
            next();
            return done;
        }

        @Override
        long sentBytes() {
            return position;
        }

        private void next() {
            if (position >= end) {
                done.setSuccess();
                return;
            }
            ByteBuf piece = context.alloc().directBuffer(PIECE_BYTES);
            try {
                int bytes = piece.writeBytes(channel, position,
                        (int) Math.min(PIECE_BYTES, end - position));
                if (bytes <= 0) {
                    throw new IOException("the file became shorter while it was sent");
                }
                position += bytes;
            } catch (IOException unreadable) {
                piece.release();
                done.setFailure(unreadable);
                return;
            }
            context.writeAndFlush(piece).addListener(sent -> {
                if (sent.isSuccess()) {
                    next();
                } else {
                    done.setFailure(sent.cause());
                }
            });
        }
    }
}
