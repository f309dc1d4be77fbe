// Memory that a request borrows: a body buffer and a place to compose a head.
package wirespeed.gateway.tomcat;

import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.atomic.AtomicInteger;
import wirespeed.gateway.core.HeadSink;

/** From a pool and not thread-local: virtual threads live for one request only. */
final class Scratch {
    static final int BODY_BYTES = 16 * 1024;

    final byte[] body = new byte[BODY_BYTES];
    final HeadSink sink = new HeadSink();

    /** Last in, first out, so that what is used is in the processor's caches. */
    static final class Pool {
        private static final int KEPT_MAX = 1024;
        private final ConcurrentLinkedDeque<Scratch> unused = new ConcurrentLinkedDeque<>();
        private final AtomicInteger count = new AtomicInteger();

        Scratch take() {
            Scratch scratch = unused.pollFirst();
            if (scratch == null) {
                return new Scratch();
            }
            count.decrementAndGet();
            return scratch;
        }

        void giveBack(Scratch scratch) {
            if (count.get() < KEPT_MAX) {
                count.incrementAndGet();
                unused.addFirst(scratch);
            }
        }
    }
}
