// The buffers of an answer that waits for its client's window, and its end when no window can open any more.
package wirespeed.gateway.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.AbstractByteBufAllocator;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.buffer.UnpooledByteBufAllocator;
import io.netty.channel.embedded.EmbeddedChannel;
import io.netty.handler.codec.http2.AbstractHttp2ConnectionHandlerBuilder;
import io.netty.handler.codec.http2.DefaultHttp2Headers;
import io.netty.handler.codec.http2.Http2CodecUtil;
import io.netty.handler.codec.http2.Http2ConnectionDecoder;
import io.netty.handler.codec.http2.Http2ConnectionEncoder;
import io.netty.handler.codec.http2.Http2Headers;
import io.netty.handler.codec.http2.Http2Settings;
import io.netty.handler.codec.http2.Http2Stream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import wirespeed.gateway.core.Chain;
import wirespeed.gateway.core.Forwarding;
import wirespeed.gateway.core.Gateway;
import wirespeed.gateway.core.Limits;
import wirespeed.gateway.core.Networks;
import wirespeed.gateway.core.RouteTable;
import wirespeed.gateway.core.Snapshot;

class Http2CodecTest {
    private static final int SETTINGS = 4;
    private static final int HEADERS = 1;
    private static final int END_OF_BOTH = 5;
    /** Less than a stream takes before it is full. */
    private static final int PIECES = 60_000;

    /** Counts the buffers that were asked for. */
    private static final class Counted extends AbstractByteBufAllocator {
        int buffers;

        Counted() {
            super(true);
        }

        @Override
        protected ByteBuf newHeapBuffer(int bytes, int bytesMax) {
            buffers++;
            return UnpooledByteBufAllocator.DEFAULT.heapBuffer(bytes, bytesMax);
        }

        @Override
        protected ByteBuf newDirectBuffer(int bytes, int bytesMax) {
            buffers++;
            return UnpooledByteBufAllocator.DEFAULT.directBuffer(bytes, bytesMax);
        }

        @Override
        public boolean isDirectBufferPooled() {
            return false;
        }
    }

    /** A stream whose user writes what the test says. */
    private static final class Answer extends Http2Frames {
        private Boolean isBlocked;
        private Throwable failed;

        Answer(Http2Codec codec, Http2Stream stream) {
            super(codec, stream);
        }

        @Override
        void take(ByteBuf data, Http2Headers head, boolean isEnd) {
            // Requests have a head only, which has begun the stream.
        }

        @Override
        boolean isDeaf() {
            return false;
        }

        @Override
        void readComplete() {
            // The test writes when it wants.
        }

        @Override
        void reset(long error) {
            failed = new IllegalStateException("reset: " + error);
        }

        @Override
        void broken(Throwable cause) {
            failed = cause;
        }

        @Override
        void faulted(Throwable fault) {
            failed = fault;
        }

        @Override
        void closed() {
            // With the channel, after the test.
        }

        @Override
        void roomAgain() {
            // There is nothing more to write.
        }

        @Override
        void inputShut(boolean blocked) {
            isBlocked = blocked;
        }
    }

    private static final class Codec extends Http2Codec {
        private Answer answer;

        Codec(Http2ConnectionDecoder decoder, Http2ConnectionEncoder encoder, Http2Settings settings,
                Loop loop) {
            super(decoder, encoder, settings, loop);
        }

        @Override
        Http2Frames begun(Http2Stream stream, Http2Headers head, boolean isEnd) {
            answer = new Answer(this, stream);
            own(stream, answer);
            return answer;
        }
    }

    private static final class Builder extends AbstractHttp2ConnectionHandlerBuilder<Codec, Builder> {
        private final Loop loop;

        Builder(Loop loop) {
            this.loop = loop;
            server(true);
        }

        @Override
        protected Codec build() {
            return super.build();
        }

        @Override
        protected Codec build(Http2ConnectionDecoder decoder, Http2ConnectionEncoder encoder,
                Http2Settings settings) {
            return new Codec(decoder, encoder, settings, loop);
        }
    }

    private final Counted memory = new Counted();
    private final EmbeddedChannel channel = new EmbeddedChannel();
    private Codec codec;

    /** A request of a client that opens this window for its answer. */
    private Answer request(int window) {
        Gateway gateway = new Gateway(Map.of(), List.of(), new Snapshot(1, new Chain(List.of()),
                new RouteTable(List.of()), Map.of(), Limits.DEFAULT, new Forwarding("gateway", Networks.NONE)));
        codec = new Builder(new Loop(channel.eventLoop(), gateway, Transport.of("nio"), null, null,
                Map.of())).build();
        channel.config().setAllocator(memory);
        channel.pipeline().addLast(codec);
        ByteBuf sent = Http2CodecUtil.connectionPrefaceBuf();
        ByteBuf block = Unpooled.buffer();
        for (String text : new String[] {":method", "GET", ":scheme", "http", ":path", "/"}) {
            if (text.startsWith(":")) {
                block.writeByte(0); // A literal field.
            }
            block.writeByte(text.length()).writeCharSequence(text, StandardCharsets.US_ASCII);
        }
        channel.writeInbound(Unpooled.wrappedBuffer(sent,
                frame(SETTINGS, 0, 0, Unpooled.buffer().writeShort(4).writeInt(window)),
                frame(HEADERS, END_OF_BOTH, 1, block)));
        assertNotNull(codec.answer, "no request has come");
        codec.answer.writeHead(new DefaultHttp2Headers().status("200"), false);
        return codec.answer;
    }

    private static ByteBuf frame(int type, int flags, int stream, ByteBuf payload) {
        return Unpooled.wrappedBuffer(Unpooled.buffer().writeMedium(payload.readableBytes()).writeByte(type)
                .writeByte(flags).writeInt(stream), payload);
    }

    private void socketTakes(boolean isMore) {
        channel.unsafe().outboundBuffer().setUserDefinedWritability(1, isMore);
        channel.runPendingTasks();
        assertEquals(isMore, channel.isWritable());
    }

    private boolean hasSent(String text) {
        StringBuilder sent = new StringBuilder();
        for (ByteBuf one = channel.readOutbound(); one != null; one = channel.readOutbound()) {
            sent.append(one.toString(StandardCharsets.ISO_8859_1));
            one.release();
        }
        return sent.toString().endsWith(text);
    }

    @AfterEach
    void close() {
        // Not by the codec, which would wait for the stream.
        channel.unsafe().close(channel.newPromise());
        channel.runPendingTasks();
        channel.releaseOutbound();
    }

    @Test
    void small_pieces_share_buffers() {
        Answer answer = request(0);
        int before = memory.buffers;
        for (int i = 0; i < PIECES; i++) {
            answer.writeData(Unpooled.directBuffer(1).writeByte('a'), false);
            answer.flushWritten();
            channel.runPendingTasks();
        }
        int taken = memory.buffers - before;
        assertTrue(taken < PIECES / 1000, taken + " buffers for " + PIECES + " pieces");
    }

    @Test
    void the_end_waits_without_all_that_was_read_with_it() {
        Answer answer = request(0);
        answer.writeData(Unpooled.directBuffer(1).writeByte('a'), false);
        ByteBuf read = Unpooled.directBuffer(LoopReceive.LARGE_BYTES).writeZero(100);
        answer.writeData(read.readRetainedSlice(100), true);
        answer.flushWritten();
        channel.runPendingTasks();
        assertEquals(1, read.refCnt());
        read.release();
    }

    private void offersTable(int bytes) {
        channel.writeInbound(frame(SETTINGS, 0, 0, Unpooled.buffer().writeShort(1).writeInt(bytes)));
    }

    private long table() {
        return codec.encoder().configuration().headersConfiguration().maxHeaderTableSize();
    }

    @Test
    void a_peer_that_offers_memory_for_fields_does_not_choose_how_much_is_used() {
        request(10);
        offersTable(1 << 30);
        assertEquals(4096, table());
        offersTable(100);
        assertEquals(100, table());
        offersTable(0);
        assertEquals(0, table());
    }

    @Test
    void a_full_socket_that_takes_the_last_of_a_window_ends_the_wait_of_a_client_that_is_gone() {
        Answer answer = request(10);
        socketTakes(false);
        answer.writeData(Unpooled.copiedBuffer("0123456789abc", StandardCharsets.US_ASCII), false);
        answer.flushWritten();
        codec.inputShut();
        channel.runPendingTasks();
        assertEquals(false, answer.isBlocked, "its window is open");
        assertFalse(hasSent("0123456789"));
        socketTakes(true);
        assertTrue(hasSent("0123456789"));
        assertEquals(true, answer.isBlocked, "it waits for a window that cannot open");
        assertEquals(null, answer.failed);
    }
}
