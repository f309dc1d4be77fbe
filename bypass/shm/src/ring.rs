//! One direction of a connection: bytes from one producer to one consumer.
//!
//! Cursors count bytes and never wrap in practice; a byte's place is its number modulo the size of the
//! ring that it lies in. A direction has a first ring of its own. A writer that finds it full goes on in
//! a larger one (`extents`): bytes in front of the record that says so lie in the ring before,
//! bytes behind it in the new one, until the next such record.
//!
//! The peer can write every cursor: what is used is computed from values loaded once and refused when it
//! exceeds the ring, and a ring is one that exists whatever the word says that names it, so a
//! copy never leaves the segment whatever the peer does.

use bypass_sys::iovec::Pieces;

use crate::atomic::{fence, fetch, fetch_for_writing, heavy, light, Ordering};
use crate::doorbell::News;
use crate::extents::Place;
use crate::layout::{ConsumerLine, Locks, ProducerLine, Records, UNREAD_MAX};

#[path = "ring/distance.rs"]
mod distance;
#[path = "ring/growing.rs"]
mod growing;
#[path = "ring/reading.rs"]
mod reading;
#[path = "ring/writing.rs"]
mod writing;

/// Lines of the ring that a short answer, or the header of a long one, is written to.
const ANSWER_LINES: usize = 5;
/// Looks at two cursors before they count as contradicting each other.
const LOOKS: usize = 8;

/// The cursors contradict each other: the peer does not keep the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

/// Memory around a direction: contents shared with its reader without copying, and larger rings.
pub trait Surroundings {
    /// Address and length of content `number`.
    fn content(&self, number: u32) -> Option<(*const u8, usize)>;
    /// Address and size of a larger ring; None of the first one.
    fn extent(&self, place: Place) -> Option<(*mut u8, usize)>;
    /// A ring of more than `over` bytes for direction number `direction`, if possible of `wanted`.
    fn take_extent(&self, direction: u32, over: usize, wanted: usize) -> Option<Place>;
    /// Whether there is one.
    fn has_extent(&self, over: usize) -> bool;
    /// The direction needs that ring no longer.
    fn give_back(&self, direction: u32, place: Place);
}

/// A direction, seen by either side.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    producer: &'a ProducerLine,
    /// State that the writer knows without loading cache lines that the reader uses.
    writer: &'a Locks,
    consumer: &'a ConsumerLine,
    records: &'a Records,
    around: Option<&'a dyn Surroundings>,
    /// Names the direction among all of the segment.
    direction: u32,
    first: Area,
}

/// Memory of a ring.
#[derive(Clone, Copy)]
struct Area {
    bytes: *mut u8,
    size: usize,
}

impl Area {
    /// Where byte `cursor` of the stream lies.
    fn at(self, cursor: u64) -> *mut u8 {
        self.bytes.wrapping_add(self.offset(cursor))
    }

    fn offset(self, cursor: u64) -> usize {
        cursor as usize & (self.size - 1)
    }

    /// Copies between the program's buffers and `count` bytes from `cursor` on.
    fn copy(self, cursor: u64, count: usize, pieces: &mut Pieces, way: Copy) {
        let mut done = 0;
        while done < count {
            let offset = self.offset(cursor.wrapping_add(done as u64));
            let (user, length) = pieces.take((count - done).min(self.size - offset));
            if length == 0 {
                return;
            }
            let ring = self.bytes.wrapping_add(offset);
            match way {
                // SAFETY: `offset + length` is at most the ring's size, the program vouches for its
                // buffer, and a program has no buffer inside a ring.
                Copy::In => unsafe { crate::atomic::copy_in(user, ring, length) },
                // SAFETY: as above.
                Copy::Out => unsafe { crate::atomic::copy_out(ring, user, length) },
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

impl<'a> Ring<'a> {
    /// # Safety
    /// `bytes` must be mapped, writable and shared for `size` bytes, a power of two.
    pub unsafe fn new(
        producer: &'a ProducerLine,
        writer: &'a Locks,
        consumer: &'a ConsumerLine,
        records: &'a Records,
        (bytes, size): (*mut u8, usize),
    ) -> Self {
        Self {
            producer,
            writer,
            consumer,
            records,
            around: None,
            direction: 0,
            first: Area { bytes, size },
        }
    }

    /// The same as direction number `direction`, with what lies around it.
    ///
    /// # Safety
    /// Contents must be mapped for reading and rings for writing, powers of two in size, as long as `'a`.
    pub unsafe fn with(self, around: &'a dyn Surroundings, direction: u32) -> Self {
        Self {
            around: Some(around),
            direction,
            ..self
        }
    }

    /// Empties the direction for a new connection.
    pub fn reset(&self) {
        for word in [
            &self.producer.tail,
            &self.producer.urgent,
            &self.producer.records,
            &self.writer.tail,
            &self.writer.head_seen,
            &self.writer.records,
            &self.writer.records_seen,
            &self.consumer.records_done,
            &self.consumer.loan_bytes,
            &self.consumer.head,
            &self.consumer.tail_seen,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [
            &self.producer.ends,
            &self.producer.want_space,
            &self.writer.has_sent_urgent,
            &self.writer.ring,
            &self.consumer.ring,
            &self.consumer.receive_buffer,
            &self.consumer.far,
        ] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The memory of the ring that `word` names.
    #[inline(always)]
    fn area(&self, word: u32) -> Area {
        if word == Place::FIRST.word() {
            self.first
        } else {
            self.extent(word)
        }
    }

    #[cold]
    fn extent(&self, word: u32) -> Area {
        let place = Place::from_word(word);
        self.around
            .and_then(|around| around.extent(place))
            .map_or(self.first, |(bytes, size)| Area { bytes, size })
    }

    /// Bytes between two cursors, as many as a direction can hold.
    #[inline(always)]
    fn between(head: u64, tail: u64) -> Result<usize, Broken> {
        let count = tail.wrapping_sub(head);
        if count <= UNREAD_MAX as u64 {
            Ok(count as usize)
        } else {
            Err(Broken)
        }
    }

    /// Fetches what a reader will need: the other side's cursor and the first bytes. Several
    /// connections that rang together are fetched together, instead of one wait after the other.
    #[inline]
    pub fn prefetch(&self) {
        let at = self.consumer.head.load(Ordering::Relaxed);
        let area = self.area(self.consumer.ring.load(Ordering::Relaxed));
        fetch(self.producer);
        for line in 0..2 {
            fetch(area.at(at.wrapping_add(line * 64)));
        }
    }

    /// Fetches what an answer will be written to, for a reader that is about to give one: lines that
    /// the other side has read since.
    #[inline]
    pub fn expect_push(&self) {
        let at = self.writer.tail.load(Ordering::Relaxed);
        let area = self.area(self.writer.ring.load(Ordering::Relaxed));
        fetch_for_writing(self.producer);
        let records = self.writer.records.load(Ordering::Relaxed);
        if records != 0 {
            // A writer that has shared contents before is likely to do so again.
            fetch_for_writing(self.record(records));
        }
        for line in 0..ANSWER_LINES {
            fetch_for_writing(area.at(at.wrapping_add(line as u64 * 64)));
        }
    }

    /// The next announcement as `ready_list` is to have it, for the writer that has just published bytes. In
    /// another ready list than the one before it is a ready flag, and the count goes on from the ready list's
    /// `latest`, so that the next one differs from what is seen there. Only what is announced somewhere is
    /// counted: after bytes that are not announced, the count must not wrap around to what was seen.
    #[inline]
    pub fn announcement(&self, ready_list: usize, latest: impl FnOnce() -> u8) -> News {
        let ready_list = ready_list as u32 + 1;
        let is_elsewhere = self.writer.ready_list_rung.load(Ordering::Relaxed) != ready_list;
        let count = if is_elsewhere {
            self.writer
                .ready_list_rung
                .store(ready_list, Ordering::Relaxed);
            u32::from(latest())
        } else {
            self.writer.news.load(Ordering::Relaxed).wrapping_add(1)
        };
        self.writer.news.store(count, Ordering::Relaxed);
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
            let known = Self::between(head, seen).ok();
            if let Some(known) = known.filter(|known| *known >= wanted) {
                return Ok(known);
            }
            let tail = self.producer.tail.load(Ordering::Acquire);
            match Self::between(head, tail) {
                Ok(used) => return Ok(used.saturating_add(self.lent_bytes())),
                // The reader has gone on between the two loads.
                Err(Broken) if self.consumer.head.load(Ordering::Acquire) != head => {}
                Err(broken) => return Err(broken),
            }
        }
        Err(Broken)
    }

    /// Bytes in the rings that the reader has not taken, as anybody sees them.
    pub fn unread(&self) -> usize {
        let tail = self.writer.tail.load(Ordering::Relaxed);
        let head = self.consumer.head.load(Ordering::Acquire);
        Self::between(head, tail).unwrap_or(0)
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
        light(fenced || was_used >= self.first.size as u64 / 2);
        let wanted = self.producer.want_space.load(Ordering::Relaxed);
        if wanted == 0 {
            return false;
        }
        let tail = self.producer.tail.load(Ordering::Relaxed);
        let unread = Self::between(head, tail).unwrap_or(0);
        unread < wanted as usize && self.producer.want_space.swap(0, Ordering::SeqCst) != 0
    }

    /// Whether the producer waits for room, which there may be now that its buffer has another size.
    pub fn is_any_space_wanted(&self) -> bool {
        // Behind the size: who waits after this look has seen it.
        core::sync::atomic::fence(Ordering::SeqCst);
        self.producer.want_space.swap(0, Ordering::SeqCst) != 0
    }
}

#[cfg(test)]
#[path = "ring/tests.rs"]
mod tests;
