/** One payload for every path. */
package wirespeed.httpserver;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;

/** The content of {@code --payload}: random bytes, created once at start. */
final class Payload implements Content {
    private final Resource resource;

    Payload(int bytes) {
        ByteBuf body = Unpooled.directBuffer(Math.max(bytes, 1))
                .writeBytes(PayloadMaker.payload(bytes));
        resource = new Resource(body, null, bytes, 0);
    }

    @Override
    public Resource find(byte[] bytes, int from, int to, long nowS) {
        return resource;
    }

    @Override
    public void close() {
        resource.body().release();
    }
}
