// Looks at the frame heads of one HTTP/2 connection: who floods, and who reuses a stream.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.handler.codec.http2.Http2Error;
import io.netty.handler.codec.http2.Http2Exception;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/**
 * The codec bounds RST_STREAM, CONTINUATION and empty DATA; frames that cost the other side nothing
 * and the gateway an answer or a look are bounded here, over windows of ten seconds. Of an origin only
 * frames that have no place in an answer are counted. Reads no socket and no clock: bytes and time come
 * in.
 */
final class Http2FrameWatch {
    private static final int PREFACE_BYTES = 24;
    private static final int HEAD_BYTES = 9;
    private static final long WINDOW_MILLIS = 10_000;
    private static final int SETTINGS_MAX = 100;
    private static final int CONTROLS_MAX = 2000;
    /** Origins of gRPC measure their way by PING. */
    private static final int ORIGIN_CONTROLS_MAX = 10_000;
    private static final int WINDOW_UPDATES_MAX = 2000;
    /** Beyond those: what data explains that was sent and that its client takes in its own time. */
    private static final int UPDATES_DUE_MAX = 200_000;
    private static final int SMALL_DATA_MAX = 10_000;
    private static final int SMALL_DATA_BYTES = 16;
    /** Streams and gaps that are remembered; more than any client has open. */
    private static final int STREAMS_MAX = 1000;
    private static final int GAPS_MAX = 32;
    private static final int END_STREAM = 1;

    private record Gap(int from, int to) {
    }

    private final boolean isOrigin;
    private final byte[] head = new byte[HEAD_BYTES];
    private final Set<Integer> open = new LinkedHashSet<>();
    private final List<Gap> gaps = new ArrayList<>(0);
    private int headLength;
    private int skip;
    private int highest;
    /** The first look begins the first window, whatever the clock says then. */
    private long windowMillis = Long.MIN_VALUE / 2;
    private int settings;
    private int controls;
    private int windowUpdates;
    private int smallData;
    private int updatesDue;

    private Http2FrameWatch(boolean isOrigin) {
        this.isOrigin = isOrigin;
        skip = isOrigin ? 0 : PREFACE_BYTES;
    }

    static Http2FrameWatch ofClient() {
        return new Http2FrameWatch(false);
    }

    static Http2FrameWatch ofOrigin() {
        return new Http2FrameWatch(true);
    }

    /** Data went to the client, who may answer it with updates of its windows. */
    void sent(int bytes) {
        updatesDue = Math.min(UPDATES_DUE_MAX, updatesDue + 2 + bytes / 256);
    }

    /** Looks at received bytes and leaves them as they are; refuses with an error of the connection. */
    void look(ByteBuf in, long nowMillis) throws Http2Exception {
        if (nowMillis - windowMillis > WINDOW_MILLIS) {
            windowMillis = nowMillis;
            settings = controls = windowUpdates = smallData = 0;
        }
        int at = in.readerIndex();
        while (at < in.writerIndex()) {
            if (skip > 0) {
                int count = Math.min(skip, in.writerIndex() - at);
                skip -= count;
                at += count;
                continue;
            }
            int count = Math.min(HEAD_BYTES - headLength, in.writerIndex() - at);
            in.getBytes(at, head, headLength, count);
            headLength += count;
            at += count;
            if (headLength == HEAD_BYTES) {
                headLength = 0;
                skip = (head[0] & 0xff) << 16 | (head[1] & 0xff) << 8 | head[2] & 0xff;
                if (isOrigin) {
                    originFrame(head[3]);
                } else {
                    frame(head[3], head[4], skip);
                }
            }
        }
    }

    private void frame(int type, int flags, int length) throws Http2Exception {
        int stream = (head[5] & 0x7f) << 24 | (head[6] & 0xff) << 16 | (head[7] & 0xff) << 8
                | head[8] & 0xff;
        switch (type) {
            case 0 -> data(stream, flags, length);
            case 1 -> headers(stream, flags);
            case 3 -> open.remove(stream);
            case 4 -> bound(++settings, SETTINGS_MAX, "SETTINGS");
            case 8 -> windowUpdate();
            case 5, 7, 9 -> {
                // The codec refuses or bounds them.
            }
            default -> bound(++controls, CONTROLS_MAX, "PING, PRIORITY or unknown");
        }
    }

    private void originFrame(int type) throws Http2Exception {
        switch (type) {
            case 0, 1, 3, 8, 9 -> {
                // Parts of answers, and updates of windows that requests need.
            }
            case 4 -> bound(++settings, SETTINGS_MAX, "SETTINGS");
            default -> bound(++controls, ORIGIN_CONTROLS_MAX, "PING, GOAWAY or unknown");
        }
    }

    private static void bound(int count, long max, String what) throws Http2Exception {
        if (count > max) {
            throw Http2Exception.connectionError(Http2Error.ENHANCE_YOUR_CALM,
                    "more than %d %s frames in ten seconds", max, what);
        }
    }

    private void windowUpdate() throws Http2Exception {
        if (++windowUpdates > WINDOW_UPDATES_MAX && --updatesDue < 0) {
            bound(windowUpdates, WINDOW_UPDATES_MAX, "WINDOW_UPDATE");
        }
    }

    private void data(int stream, int flags, int length) throws Http2Exception {
        if ((flags & END_STREAM) != 0) {
            open.remove(stream);
        } else if (length < SMALL_DATA_BYTES) {
            bound(++smallData, SMALL_DATA_MAX, "tiny DATA");
        }
    }

    /** RFC 9113 §5.1: a stream that its client has ended is over, and numbers only grow. */
    private void headers(int stream, int flags) throws Http2Exception {
        if (stream == 0) {
            // The codec refuses it.
            return;
        }
        boolean isNew = stream > highest;
        if (!isNew && !open.contains(stream)) {
            throw Http2Exception.connectionError(isInGap(stream) ? Http2Error.PROTOCOL_ERROR
                    : Http2Error.STREAM_CLOSED, "HEADERS for stream %d, which is over", stream);
        }
        boolean isEnd = (flags & END_STREAM) != 0;
        if (isNew) {
            remember(stream, !isEnd);
        } else if (isEnd) {
            open.remove(stream);
        }
    }

    private void remember(int stream, boolean isOpen) {
        int expected = highest == 0 ? 1 : highest + 2;
        if (stream > expected && gaps.size() < GAPS_MAX) {
            gaps.add(new Gap(expected, stream - 1));
        }
        highest = stream;
        if (!isOpen) {
            return;
        }
        open.add(stream);
        if (open.size() > STREAMS_MAX) {
            open.remove(open.iterator().next());
        }
    }

    private boolean isInGap(int stream) {
        return gaps.stream().anyMatch(gap -> stream >= gap.from() && stream <= gap.to());
    }
}
