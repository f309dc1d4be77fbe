// Lines that wait for a disk are bounded in number and in characters.
package wirespeed.gateway.runtime;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class LineQueueTest {
    @Test
    void long_lines_fill_it_before_many_do() {
        LineQueue queue = new LineQueue(10, 100);
        assertTrue(queue.offer("x".repeat(60)));
        assertFalse(queue.offer("y".repeat(60)));
        assertTrue(queue.offer("z".repeat(40)));
        assertEquals("x".repeat(60), queue.poll());
        assertTrue(queue.offer("y".repeat(60)));
    }

    @Test
    void a_line_for_which_there_is_no_place_takes_no_room() {
        LineQueue queue = new LineQueue(1, 100);
        assertTrue(queue.offer("a"));
        for (int i = 0; i < 1000; i++) {
            assertFalse(queue.offer("b"));
        }
        assertEquals("a", queue.poll());
        assertTrue(queue.offer("c".repeat(100)));
        assertEquals("c".repeat(100), queue.poll());
        assertNull(queue.poll());
        assertTrue(queue.isEmpty());
    }
}
