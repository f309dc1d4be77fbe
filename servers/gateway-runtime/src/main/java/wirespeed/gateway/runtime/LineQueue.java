// Lines on their way to a writer, bounded in number and in characters.
package wirespeed.gateway.runtime;

import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** Many producers, one consumer; no producer waits for space. */
final class LineQueue {
    private final ArrayBlockingQueue<String> lines;
    private final AtomicLong chars = new AtomicLong();
    private final long charsMax;

    LineQueue(int linesMax, long charsMax) {
        this.lines = new ArrayBlockingQueue<>(linesMax);
        this.charsMax = charsMax;
    }

    /** False when the queue is full. */
    boolean offer(String line) {
        if (chars.addAndGet(line.length()) <= charsMax && lines.offer(line)) {
            return true;
        }
        chars.addAndGet(-line.length());
        return false;
    }

    /** The next line, or null when there is none within this time. */
    String poll(long millis) throws InterruptedException {
        return taken(lines.poll(millis, TimeUnit.MILLISECONDS));
    }

    /** The next line, or null when there is none now. */
    String poll() {
        return taken(lines.poll());
    }

    private String taken(String line) {
        if (line != null) {
            chars.addAndGet(-line.length());
        }
        return line;
    }

    boolean isEmpty() {
        return lines.isEmpty();
    }
}
