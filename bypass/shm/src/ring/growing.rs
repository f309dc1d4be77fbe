//! How a direction comes to a larger ring and back.

use super::*;
use crate::layout::{LOANS, RECORDS};
use crate::record::What;

/// Part of what a direction holds that stands for the reader's buffer when the program has not chosen
/// its size: the kernel's first window.
const RECEIVE_DEFAULT: usize = 64 << 10;
/// Short writes after which a larger ring is left: each new line of it has to be fetched, those of
/// the first one are at hand.
const SHORT_WRITES: u32 = 8;

impl Ring<'_> {
    /// The entry that is written after so many records.
    #[inline]
    pub(super) fn record(&self, made: u64) -> &crate::layout::Record {
        &self.records.0[made as usize % RECORDS]
    }

    /// Most that may be unread: the kernel's doubled SO_SNDBUF, and SO_RCVBUF.
    fn limit(&self) -> usize {
        let send = self.writer.send_buffer.load(Ordering::Relaxed) as usize;
        let limit = match send {
            0 => UNREAD_MAX,
            chosen => (2 * chosen).saturating_add(self.receive_buffer()),
        };
        limit.clamp(self.first.size, UNREAD_MAX)
    }

    /// The reader's SO_RCVBUF.
    pub fn receive_buffer(&self) -> usize {
        match self.consumer.receive_buffer.load(Ordering::Relaxed) {
            0 => RECEIVE_DEFAULT,
            chosen => chosen as usize,
        }
    }

    /// Bytes of the writer's own ring that are in use.
    fn used_here(&self, head: u64, size: usize) -> Result<usize, Broken> {
        let tail = self.writer.tail.load(Ordering::Relaxed);
        let unread = Self::between(head, tail)?;
        let since_start = tail.wrapping_sub(self.writer.since.load(Ordering::Relaxed));
        let used = unread.min(usize::try_from(since_start).unwrap_or(usize::MAX));
        if used <= size {
            Ok(used)
        } else {
            Err(Broken)
        }
    }

    #[cold]
    pub(super) fn free_in_extent(&self, word: u32, head: u64) -> Result<usize, Broken> {
        let size = self.area(word).size;
        let free = size - self.used_here(head, size)?;
        let unread = Self::between(head, self.writer.tail.load(Ordering::Relaxed))?;
        Ok(free.min(self.limit().saturating_sub(unread)))
    }

    /// Where `wanted` bytes do not fit: room in a larger ring, as far as the limit allows. `space` bytes
    /// are free by the latest look.
    #[cold]
    pub(super) fn grow(&self, wanted: usize, space: usize) -> Result<usize, Broken> {
        let tail = self.writer.tail.load(Ordering::Relaxed);
        let unread = Self::between(self.writer.head_seen.load(Ordering::Relaxed), tail)?;
        let most = self.limit().saturating_sub(unread);
        let needed = wanted.min(most);
        if needed <= space {
            return Ok(space);
        }
        Ok(self.enlarge(needed).map_or(space, |size| size.min(most)))
    }

    /// Goes on in a larger ring; its size.
    fn enlarge(&self, needed: usize) -> Option<usize> {
        let around = self.around.filter(|_| self.may_record(RECORDS))?;
        let size = self.area(self.writer.ring.load(Ordering::Relaxed)).size;
        let place = around.take_extent(self.direction, size, needed)?;
        self.go_on_in(place);
        around.extent(place).map(|(_, size)| size)
    }

    /// Bytes written from now on lie in `place`. The reader is notified before it sees any of them.
    fn go_on_in(&self, place: Place) {
        let tail = self.writer.tail.load(Ordering::Relaxed);
        self.writer.since.store(tail, Ordering::Relaxed);
        self.writer.short_writes.store(0, Ordering::Relaxed);
        self.writer.ring.store(place.word(), Ordering::Relaxed);
        self.say(What::Ring(place));
    }

    /// Whether fewer than `most` records are under way.
    fn may_record(&self, most: usize) -> bool {
        let made = self.writer.records.load(Ordering::Relaxed);
        let seen = self.writer.records_seen.load(Ordering::Relaxed);
        if made.wrapping_sub(seen) < most as u64 {
            return true;
        }
        let done = self.consumer.records_done.load(Ordering::Acquire);
        self.writer.records_seen.store(done, Ordering::Relaxed);
        made.wrapping_sub(done) < most as u64
    }

    /// Puts a record behind everything written so far.
    fn say(&self, what: What) {
        let made = self.writer.records.load(Ordering::Relaxed);
        let tail = self.writer.tail.load(Ordering::Relaxed);
        self.record(made).write(tail, what);
        let made = made.wrapping_add(1);
        self.writer.records.store(made, Ordering::Relaxed);
        // Release: the entry, and the tail in front of it.
        self.producer.records.store(made, Ordering::Release);
    }

    /// Sends `length` bytes of content `number` from `offset` on, behind everything pushed so far;
    /// false when too many records are under way.
    pub fn lend(&self, number: u32, offset: u32, length: u32) -> bool {
        let what = What::Lent {
            content: number,
            offset: offset as usize,
            length: length as usize,
        };
        let may_lend = what.fits() && self.may_record(LOANS);
        if may_lend {
            self.say(what);
        }
        may_lend
    }

    /// The value of `want_space`: when two thirds at most are in use, of the ring and of the limit.
    pub(super) fn threshold(&self) -> u32 {
        let word = self.writer.ring.load(Ordering::Relaxed);
        let size = self.area(word).size;
        let most = size.min(self.limit());
        (most - most / 3 + 1) as u32
    }

    #[cold]
    pub(super) fn is_roomy_by_growth(&self) -> bool {
        let size = self.area(self.writer.ring.load(Ordering::Relaxed)).size;
        let head = self.consumer.head.load(Ordering::Acquire);
        let Ok(used) = self.used_here(head, size) else {
            return true;
        };
        let limit = self.limit();
        let can_grow = || {
            let around = self.around.filter(|_| self.may_record_as_looker());
            limit > size && around.is_some_and(|around| around.has_extent(size))
        };
        let is_below_limit = self.unread() <= limit - limit / 3;
        is_below_limit && (size - used >= size / 3 || can_grow())
    }

    /// [`may_record`](Self::may_record) for whoever does not hold the writer's lock.
    fn may_record_as_looker(&self) -> bool {
        let made = self.writer.records.load(Ordering::Relaxed);
        let done = self.consumer.records_done.load(Ordering::Acquire);
        made.wrapping_sub(done) < RECORDS as u64
    }

    /// Before a write of `count` bytes into a larger ring: after some short ones in a row, none of which
    /// had anything unread in front of it, the first ring is enough again.
    #[cold]
    pub(super) fn consider_return(&self, count: usize) {
        if count > self.first.size / 2 || !self.is_all_read() {
            self.writer.short_writes.store(0, Ordering::Relaxed);
            return;
        }
        let before = self.writer.short_writes.load(Ordering::Relaxed);
        self.writer
            .short_writes
            .store(before.wrapping_add(1), Ordering::Relaxed);
        if before >= SHORT_WRITES {
            self.go_on_in(Place::FIRST);
        }
    }

    /// Whether the reader has come to the end of all that was written.
    fn is_all_read(&self) -> bool {
        let head = self.consumer.head.load(Ordering::Acquire);
        self.writer.head_seen.store(head, Ordering::Relaxed);
        let done = self.consumer.records_done.load(Ordering::Acquire);
        head == self.writer.tail.load(Ordering::Relaxed)
            && done == self.writer.records.load(Ordering::Relaxed)
    }

    /// Where the direction is in a larger ring: whether nothing is unread, and nothing was written since
    /// the last call; for one thread that asks from time to time.
    pub fn is_idle(&self) -> Option<bool> {
        let word = self.writer.ring.load(Ordering::Relaxed);
        let tail = self.writer.tail.load(Ordering::Relaxed);
        let was_idle = self.writer.idle_at.load(Ordering::Relaxed) == tail;
        self.writer.idle_at.store(tail, Ordering::Relaxed);
        let has_grown = Place::from_word(word) != Place::FIRST;
        has_grown.then(|| was_idle && self.idle_extent().is_some())
    }

    fn idle_extent(&self) -> Option<Place> {
        let place = Place::from_word(self.writer.ring.load(Ordering::Relaxed));
        let tail = self.writer.tail.load(Ordering::Relaxed);
        let is_idle = self.writer.idle_at.load(Ordering::Relaxed) == tail
            && self.consumer.head.load(Ordering::Acquire) == tail
            && self.consumer.records_done.load(Ordering::Acquire)
                == self.writer.records.load(Ordering::Relaxed);
        (place != Place::FIRST && is_idle).then_some(place)
    }

    /// Goes back to the first ring if the direction is idle; returns the larger one, whose memory is not
    /// accessed any more, although the direction owns it until the reader gives it back. The caller holds the
    /// writer's lock.
    pub fn leave_idle_extent(&self) -> Option<Place> {
        let place = self.idle_extent()?;
        let tail = self.writer.tail.load(Ordering::Relaxed);
        self.writer.head_seen.store(tail, Ordering::Relaxed);
        self.go_on_in(Place::FIRST);
        Some(place)
    }
}
