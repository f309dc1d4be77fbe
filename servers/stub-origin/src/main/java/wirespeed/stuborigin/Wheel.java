/**
 * Timers of one loop: slots of a millisecond, entries linked in place, one armed timer of the loop.
 *
 * <p>The wheel reads no clock and schedules nothing itself, so that tests can turn it.
 */
package wirespeed.stuborigin;

/** A hashed wheel; an entry that is due after a whole turn waits in its slot for the next one. */
final class Wheel {
    static final long TICK_NS = 1_000_000;
    private static final int SLOTS = 4096;
    private static final int MASK = SLOTS - 1;
    /** The result of {@link #nextDueNs} if nothing waits. */
    static final long NEVER = Long.MAX_VALUE;

    private final Entry[] slots = new Entry[SLOTS];
    private long tick;
    private int size;

    /** An entry that becomes due; in one wheel at a time, once. */
    abstract static class Entry {
        private Entry next;
        private Entry previous;
        private long dueTick;
        private boolean isWaiting;

        /** Runs on the loop; may add this or other entries again. */
        abstract void due(long nowNs);
    }

    Wheel(long nowNs) {
        tick = nowNs / TICK_NS;
    }

    int size() {
        return size;
    }

    /** Adds an entry that becomes due at the first tick not before this time. */
    void add(Entry entry, long dueNs) {
        if (entry.isWaiting) {
            throw new IllegalStateException("an entry waits for one time only");
        }
        // The current tick was served already: the earliest is the next one.
        entry.dueTick = Math.max((dueNs + TICK_NS - 1) / TICK_NS, tick + 1);
        entry.isWaiting = true;
        int slot = (int) entry.dueTick & MASK;
        entry.previous = null;
        entry.next = slots[slot];
        if (entry.next != null) {
            entry.next.previous = entry;
        }
        slots[slot] = entry;
        size++;
    }

    void remove(Entry entry) {
        if (!entry.isWaiting) {
            return;
        }
        if (entry.previous != null) {
            entry.previous.next = entry.next;
        } else {
            slots[(int) entry.dueTick & MASK] = entry.next;
        }
        if (entry.next != null) {
            entry.next.previous = entry.previous;
        }
        entry.next = null;
        entry.previous = null;
        entry.isWaiting = false;
        size--;
    }

    /** Runs entries that are due by now, in the order of their ticks. */
    void advance(long nowNs) {
        long target = nowNs / TICK_NS;
        if (size == 0) {
            tick = Math.max(tick, target);
        }
        while (tick < target) {
            tick++;
            // Entries that a due entry adds go to a later tick, so this slot empties.
            for (Entry due = firstDue(); due != null; due = firstDue()) {
                remove(due);
                due.due(nowNs);
            }
        }
    }

    private Entry firstDue() {
        Entry each = slots[(int) tick & MASK];
        while (each != null && each.dueTick > tick) {
            each = each.next;
        }
        return each;
    }

    /** When to call {@link #advance} next: the next slot that is not empty. */
    long nextDueNs() {
        if (size == 0) {
            return NEVER;
        }
        long ahead = tick + 1;
        while (ahead < tick + SLOTS && slots[(int) ahead & MASK] == null) {
            ahead++;
        }
        return ahead * TICK_NS;
    }
}
