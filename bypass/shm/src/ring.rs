//! One direction of a connection: bytes from one producer to one consumer.
//!
//! Cursors count bytes and never wrap in practice; a byte's place is its number modulo the size.
//! The peer can write every cursor: `used` is computed from values loaded once and refused when
//! it exceeds the size, so a copy never leaves the ring whatever the peer does.

use bypass_sys::iovec::Pieces;

use crate::atomic::{copy_in, copy_out, fence, fetch, fetch_for_writing, heavy, light, Ordering};
use crate::doorbell::News;
use crate::layout::{ConsumerLine, Loans, Locks, ProducerLine};

#[path = "ring/lending.rs"]
mod lending;
pub use lending::Borrowed;

/// Lines of the ring that a short answer, or the header of a long one, is written to.
const ANSWER_LINES: usize = 5;
/// Looks at two cursors before they count as contradicting each other.
const LOOKS: usize = 8;

/// The cursors contradict each other: the peer does not keep the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

/// A direction, seen by either side.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    producer: &'a ProducerLine,
    /// What the writer knows without a look at lines that the reader looks at.
    writer: &'a Locks,
    consumer: &'a ConsumerLine,
    loans: &'a Loans,
    borrowed: Option<&'a dyn Borrowed>,
    bytes: *mut u8,
    size: usize,
}

impl<'a> Ring<'a> {
    /// # Safety
    /// `bytes` must be mapped, writable and shared for `size` bytes, a power of two.
    pub unsafe fn new(
        producer: &'a ProducerLine,
        writer: &'a Locks,
        consumer: &'a ConsumerLine,
        loans: &'a Loans,
        bytes: *mut u8,
        size: usize,
    ) -> Self {
        Self {
            producer,
            writer,
            consumer,
            loans,
            borrowed: None,
            bytes,
            size,
        }
    }

    /// The same, for a reader of what was lent too.
    pub fn with(self, borrowed: &'a dyn Borrowed) -> Self {
        Self {
            borrowed: Some(borrowed),
            ..self
        }
    }

    /// Empties the ring for a new connection.
    pub fn reset(&self) {
        for word in [
            &self.producer.tail,
            &self.producer.urgent,
            &self.producer.loans,
            &self.writer.tail,
            &self.writer.head_seen,
            &self.writer.loans,
            &self.writer.loans_seen,
            &self.consumer.loans_done,
            &self.consumer.loan_bytes,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [
            &self.producer.ends,
            &self.producer.want_space,
            &self.writer.has_sent_urgent,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        self.consumer.head.store(0, Ordering::Relaxed);
        self.consumer.tail_seen.store(0, Ordering::Relaxed);
    }

    /// Bytes the ring can hold.
    pub fn size(&self) -> usize {
        self.size
    }

    fn used(&self, tail: u64, head: u64) -> Result<usize, Broken> {
        let used = tail.wrapping_sub(head);
        if used <= self.size as u64 {
            Ok(used as usize)
        } else {
            Err(Broken)
        }
    }

    /// Free bytes by what is known; looks at the consumer only when fewer than `wanted`. For the
    /// writer, who holds its lock.
    pub fn space(&self, wanted: usize) -> Result<usize, Broken> {
        let tail = self.writer.tail.load(Ordering::Relaxed);
        let seen = self.writer.head_seen.load(Ordering::Relaxed);
        let space = self.size - self.used(tail, seen)?;
        if space >= wanted {
            return Ok(space);
        }
        let head = self.consumer.head.load(Ordering::Acquire);
        self.writer.head_seen.store(head, Ordering::Relaxed);
        Ok(self.size - self.used(tail, head)?)
    }

    /// Asks the consumer to ring when it has made room; the caller looks at the space once more.
    pub fn want_space(&self) {
        if self.producer.want_space.load(Ordering::Relaxed) == 0 {
            self.producer.want_space.store(1, Ordering::Relaxed);
            heavy();
        } else {
            // Already asked, with a heavy fence or in front of bytes that the consumer has still
            // to read (`announce_want`): it will see that, only our own look must come after.
            fence(Ordering::SeqCst);
        }
    }

    /// Says that more is to come than fits, before the bytes that do are published: the tail's
    /// release takes it along, so a consumer that sees those bytes sees this without a fence.
    pub fn announce_want(&self) {
        self.producer.want_space.store(1, Ordering::Relaxed);
    }

    /// Fetches what a reader will need: the other side's cursor and the first bytes. Several
    /// connections that rang together are fetched together, instead of one wait after the other.
    #[inline]
    pub fn prefetch(&self) {
        let at = self.consumer.head.load(Ordering::Relaxed) as usize;
        fetch(self.producer);
        for line in 0..2 {
            let place = at.wrapping_add(line * 64) & (self.size - 1);
            fetch(self.bytes.wrapping_add(place));
        }
    }

    /// Fetches what an answer will be written to, for a reader that is about to give one: lines that
    /// the other side has read since.
    #[inline]
    pub fn expect_push(&self) {
        let at = self.writer.tail.load(Ordering::Relaxed) as usize;
        fetch_for_writing(self.producer);
        let loans = self.writer.loans.load(Ordering::Relaxed);
        if loans != 0 {
            // Who has lent before will lend again.
            fetch_for_writing(self.next_loan(loans));
        }
        for line in 0..ANSWER_LINES {
            let place = at.wrapping_add(line * 64) & (self.size - 1);
            fetch_for_writing(self.bytes.wrapping_add(place));
        }
    }

    /// The number of the next announcement, for the writer that has just published bytes.
    #[inline]
    pub fn count_news(&self) -> u32 {
        let count = self.writer.news.load(Ordering::Relaxed).wrapping_add(1);
        self.writer.news.store(count, Ordering::Relaxed);
        count
    }

    /// Announcement `count` as `lane` is to have it.
    #[inline]
    pub fn announcement(&self, count: u32, lane: usize) -> News {
        let lane = lane as u32 + 1;
        let is_elsewhere = self.writer.lane_rung.load(Ordering::Relaxed) != lane;
        if is_elsewhere {
            self.writer.lane_rung.store(lane, Ordering::Relaxed);
        }
        News {
            count,
            is_elsewhere,
        }
    }

    /// Bytes that can be read, at least when fewer than `wanted` are known to be there. Anybody may
    /// ask, also without the reader's lock: nothing is stored, because what a looker has seen may
    /// be older than what the reader has taken meanwhile.
    #[inline]
    pub fn available(&self, wanted: usize) -> Result<usize, Broken> {
        // Bounded, because a peer could move its own view of our cursor for ever.
        for _ in 0..LOOKS {
            let head = self.consumer.head.load(Ordering::Acquire);
            let seen = self.consumer.tail_seen.load(Ordering::Relaxed);
            if let Some(known) = self.used(seen, head).ok().filter(|known| *known >= wanted) {
                return Ok(known);
            }
            let tail = self.producer.tail.load(Ordering::Acquire);
            match self.used(tail, head) {
                Ok(used) => return Ok(used.saturating_add(self.lent_bytes())),
                // The reader has gone on between the two loads.
                Err(Broken) if self.consumer.head.load(Ordering::Acquire) != head => {}
                Err(broken) => return Err(broken),
            }
        }
        Err(Broken)
    }

    /// Whether `wanted` bytes are free; for anybody, as [`available`](Self::available). Cursors that
    /// contradict each other look like room: the write will say what is wrong.
    #[inline]
    pub fn has_room(&self, wanted: usize) -> bool {
        let tail = self.writer.tail.load(Ordering::Relaxed);
        let is_free = |head: u64| {
            let used = self.used(tail, head);
            used.map_or(true, |used| self.size - used >= wanted)
        };
        let seen = self.writer.head_seen.load(Ordering::Relaxed);
        (self.used(tail, seen).is_ok() && is_free(seen))
            || is_free(self.consumer.head.load(Ordering::Acquire))
    }

    /// Bytes in the ring that the reader has not taken, as anybody sees them.
    pub fn unread(&self) -> usize {
        let tail = self.writer.tail.load(Ordering::Relaxed);
        let head = self.consumer.head.load(Ordering::Acquire);
        self.used(tail, head).unwrap_or(0)
    }

    /// Copies as much as fits; returns how much.
    pub fn push(&self, from: &mut Pieces) -> Result<usize, Broken> {
        let wanted = from.left().min(self.size);
        // A third at least is kept known as free, so that `has_room` rarely looks itself.
        let count = self.space(wanted.max(self.size / 3))?.min(wanted);
        let tail = self.writer.tail.load(Ordering::Relaxed);
        if count > 0 && count < from.left() {
            self.announce_want();
        }
        self.copy(tail, count, from, Copy::In);
        self.publish(tail.wrapping_add(count as u64));
        Ok(count)
    }

    /// The reader may have the bytes in front of `tail`.
    #[inline]
    fn publish(&self, tail: u64) {
        self.writer.tail.store(tail, Ordering::Relaxed);
        self.producer.tail.store(tail, Ordering::Release);
    }

    /// [`push`](Self::push) of memory of ours.
    pub fn push_slice(&self, bytes: &[u8]) -> Result<usize, Broken> {
        let at = bytes.as_ptr().cast_mut().cast();
        let piece = [libc::iovec {
            iov_base: at,
            iov_len: bytes.len(),
        }];
        // SAFETY: the slice is readable; pushing only reads.
        unsafe { Pieces::new(&piece) }.map_or(Ok(0), |mut pieces| self.push(&mut pieces))
    }

    /// Where the next bytes go, for a producer that fills the ring itself, e.g. from a file: at
    /// most `limit` bytes that lie together.
    pub fn hole(&self, limit: usize) -> Result<(*mut u8, usize), Broken> {
        let space = self.space(limit.min(self.size))?;
        let at = self.writer.tail.load(Ordering::Relaxed) as usize & (self.size - 1);
        Ok((
            self.bytes.wrapping_add(at),
            space.min(limit).min(self.size - at),
        ))
    }

    /// Publishes `count` bytes that were put into the [`hole`](Self::hole).
    pub fn filled(&self, count: usize) {
        let tail = self.writer.tail.load(Ordering::Relaxed);
        self.publish(tail.wrapping_add(count as u64));
    }

    /// Whether the producer waits for the room that taking `count` bytes has just made; asked once
    /// it is worth a wake. `fenced`: the producer's side wants fences.
    #[inline]
    pub fn is_space_wanted(&self, count: usize, fenced: bool) -> bool {
        let head = self.consumer.head.load(Ordering::Relaxed);
        let tail = self.consumer.tail_seen.load(Ordering::Relaxed);
        // A producer waits only when the ring was full; then the pair (head, want_space) needs a
        // fence on our side too. Rings that are nearly empty, the usual case, are spared it.
        let was_used = tail.wrapping_sub(head).saturating_add(count as u64);
        light(fenced || was_used >= self.size as u64 / 2);
        if self.producer.want_space.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let used = self
            .used(self.producer.tail.load(Ordering::Relaxed), head)
            .unwrap_or(0);
        self.size - used >= self.size / 3 && self.producer.want_space.swap(0, Ordering::SeqCst) != 0
    }

    fn copy(&self, cursor: u64, count: usize, pieces: &mut Pieces, way: Copy) {
        let mut done = 0;
        while done < count {
            let at = (cursor as usize).wrapping_add(done) & (self.size - 1);
            let (user, length) = pieces.take((count - done).min(self.size - at));
            if length == 0 {
                return;
            }
            let ring = self.bytes.wrapping_add(at);
            match way {
                // SAFETY: `at + length` is at most the ring's size, the program vouches for its
                // buffer, and a program has no buffer inside a ring.
                Copy::In => unsafe { copy_in(user, ring, length) },
                // SAFETY: as above.
                Copy::Out => unsafe { copy_out(ring, user, length) },
            }
            done += length;
        }
    }
}

#[derive(Clone, Copy)]
enum Copy {
    In,
    Out,
}

#[cfg(test)]
#[path = "ring/tests.rs"]
mod tests;
