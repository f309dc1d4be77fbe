// Which frames of a client end its connection before the codec sees them.
package wirespeed.gateway.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.handler.codec.http2.Http2CodecUtil;
import io.netty.handler.codec.http2.Http2Error;
import io.netty.handler.codec.http2.Http2Exception;
import org.junit.jupiter.api.Test;

class Http2FrameWatchTest {
    private static final int HEADERS = 1;
    private static final int WINDOW_UPDATE = 8;
    private static final int WINDOW_MILLIS = 10_000;

    private final Http2FrameWatch watch = Http2FrameWatch.ofClient();

    Http2FrameWatchTest() throws Http2Exception {
        watch.look(Http2CodecUtil.connectionPrefaceBuf(), 5);
    }

    private void sees(int count, int type, int stream, long nowMillis) throws Http2Exception {
        ByteBuf frames = Unpooled.buffer();
        for (int i = 0; i < count; i++) {
            frames.writeMedium(4).writeByte(type).writeByte(0).writeInt(stream).writeInt(1);
        }
        watch.look(frames, nowMillis);
    }

    @Test
    void the_first_frames_are_not_a_flood_however_young_the_clock_is() throws Http2Exception {
        sees(2000, WINDOW_UPDATE, 0, 5);
        Http2Exception flood = assertThrows(Http2Exception.class, () -> sees(1, WINDOW_UPDATE, 0, 6));
        assertEquals(Http2Error.ENHANCE_YOUR_CALM, flood.error());
        sees(2000, WINDOW_UPDATE, 0, 2 * WINDOW_MILLIS);
    }

    @Test
    void data_explains_updates_that_come_when_its_client_has_taken_it() throws Http2Exception {
        watch.sent(1 << 20);
        sees(2000 + 4098, WINDOW_UPDATE, 0, 3 * WINDOW_MILLIS);
        assertThrows(Http2Exception.class, () -> sees(1, WINDOW_UPDATE, 0, 3 * WINDOW_MILLIS));
    }

    @Test
    void however_much_was_sent_updates_without_end_are_a_flood() throws Http2Exception {
        for (int i = 0; i < 10_000; i++) {
            watch.sent(1 << 20);
        }
        sees(202_000, WINDOW_UPDATE, 0, 5);
        assertThrows(Http2Exception.class, () -> sees(1, WINDOW_UPDATE, 0, 6));
    }

    @Test
    void a_head_without_a_stream_is_left_to_the_codec() throws Http2Exception {
        sees(2, HEADERS, 0, 5);
    }
}
