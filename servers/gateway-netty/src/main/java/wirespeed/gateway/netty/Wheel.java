// The timers of one event loop.
package wirespeed.gateway.netty;

import wirespeed.gateway.runtime.ThrottledLog;

/**
 * A hashed wheel with one entry a connection. Activity only moves the entry's deadline, a plain
 * write; the entry is looked at when its slot comes up, and put into a later one if it is not due.
 * Only a deadline that moves forward past its slot costs a relink. Used by one thread.
 */
final class Wheel {
    static final int TICK_MILLIS = 100;
    private static final int SLOTS = 1024;
    private static final long NONE = Long.MAX_VALUE;

    /** Something with a deadline; each connection is one. */
    abstract static class Entry {
        private Entry previous;
        private Entry next;
        private long slotTick;
        private long deadlineMillis = NONE;

        /** The deadline has passed; the entry is out of the wheel until it is armed again. */
        abstract void onTimeout(long nowMillis);
    }

    private final Entry[] slots = new Entry[SLOTS];
    private final Entry due = sentinel();
    private long tick;

    Wheel(long nowMillis) {
        tick = nowMillis / TICK_MILLIS;
        for (int i = 0; i < SLOTS; i++) {
            slots[i] = sentinel();
        }
    }

    private static Entry sentinel() {
        Entry sentinel = new Entry() {
            @Override
            void onTimeout(long nowMillis) {
                throw new IllegalStateException("the head of a list has no deadline");
            }
        };
        sentinel.previous = sentinel;
        sentinel.next = sentinel;
        return sentinel;
    }

    /** Sets the deadline; the entry is called at most one tick after it. */
    void arm(Entry entry, long deadlineMillis) {
        entry.deadlineMillis = deadlineMillis;
        if (entry.next == null) {
            link(entry);
        } else if (deadlineMillis / TICK_MILLIS + 1 < entry.slotTick) {
            unlink(entry);
            link(entry);
        }
    }

    /**
     * The entry is not called until it is armed again. It stays where it is for that: taking it out touches
     * its neighbours, which belong to connections that did nothing for long.
     */
    void disarm(Entry entry) {
        entry.deadlineMillis = NONE;
    }

    /** The entry is of no more use, and the wheel must not keep what it belongs to. */
    void remove(Entry entry) {
        entry.deadlineMillis = NONE;
        if (entry.next != null) {
            unlink(entry);
        }
    }

    /** Calls what is due. */
    void advance(long nowMillis) {
        long now = nowMillis / TICK_MILLIS;
        // After a long stop one round visits every slot; more would visit them twice.
        if (now - tick > SLOTS) {
            tick = now - SLOTS;
        }
        while (tick < now) {
            tick++;
            expire(slots[(int) (tick % SLOTS)], nowMillis);
        }
    }

    private void expire(Entry slot, long nowMillis) {
        if (slot.next == slot) {
            return;
        }
        // Moved to a list of their own first: an entry that is called may remove any other.
        due.next = slot.next;
        due.previous = slot.previous;
        due.next.previous = due;
        due.previous.next = due;
        slot.next = slot;
        slot.previous = slot;
        while (due.next != due) {
            Entry entry = due.next;
            unlink(entry);
            if (entry.deadlineMillis <= nowMillis) {
                entry.deadlineMillis = NONE;
                call(entry, nowMillis);
            } else if (entry.deadlineMillis != NONE) {
                link(entry);
            }
        }
    }

    /** One connection's fault, or memory that ran out, must not cost the others their timers. */
    private static void call(Entry entry, long nowMillis) {
        try {
            entry.onTimeout(nowMillis);
        } catch (RuntimeException | Error fault) {
            ThrottledLog.fault("a timer", fault);
        }
    }

    private void link(Entry entry) {
        long wanted = entry.deadlineMillis / TICK_MILLIS + 1;
        entry.slotTick = Math.min(Math.max(wanted, tick + 1), tick + SLOTS - 1);
        Entry slot = slots[(int) (entry.slotTick % SLOTS)];
        entry.previous = slot.previous;
        entry.next = slot;
        slot.previous.next = entry;
        slot.previous = entry;
    }

    private static void unlink(Entry entry) {
        entry.previous.next = entry.next;
        entry.next.previous = entry.previous;
        entry.previous = null;
        entry.next = null;
    }
}
