//! Reading a stream, some of whose bytes lie in contents that the writer shares without copying, and which may
//! continue in another ring.
//!
//! A record says: after so many bytes of the rings come these bytes of that content, or the stream goes
//! on in that ring. It is published after the bytes in front of it and before those behind it, so a
//! reader that looks at the tail first and at the records then never reads past a record.

use super::*;
use crate::layout::{Record, RECORDS};
use crate::record::What;

/// How far a reader has come.
#[derive(Clone, Copy)]
struct Position {
    head: u64,
    records: u64,
    loan_bytes: u64,
    /// Word of the ring where the byte at `head` lies.
    ring: u32,
    /// How often the way has led to another ring.
    changes: usize,
}

/// Rings that a reader is through with.
type Passed = [Option<Place>; RECORDS];

/// The next piece of the stream.
enum Next {
    Nothing,
    /// So many bytes of the ring, and whether a record was made behind them.
    Bytes(usize, bool),
    Lent {
        content: u32,
        offset: usize,
        left: usize,
    },
    /// The stream goes on there.
    Elsewhere(Place),
}

/// Bytes that lie together.
enum Chunk {
    /// In a ring, from this cursor on.
    Ring(Area, u64, usize),
    /// In a content, from this address on.
    Content(*const u8, usize),
}

impl Chunk {
    /// The same as memory: in a ring it may go on at the ring's begin.
    fn pieces(self) -> [(*const u8, usize); 2] {
        match self {
            Chunk::Ring(area, cursor, count) => {
                let first = count.min(area.size - area.offset(cursor));
                let rest = (area.bytes.cast_const(), count - first);
                [(area.at(cursor).cast_const(), first), rest]
            }
            Chunk::Content(at, count) => [(at, count), (at, 0)],
        }
    }
}

impl Ring<'_> {
    /// Copies out and frees; returns how much.
    #[inline]
    pub fn pop(&self, to: &mut Pieces) -> Result<usize, Broken> {
        let start = self.start();
        let wanted = to.left();
        let place = self.walk(start, wanted, |chunk| self.copy_out(chunk, to))?;
        self.commit(start, place);
        Ok(wanted - to.left())
    }

    /// The same unless `refuse`, asked after the tail was looked at, forbids it: None then, and
    /// nothing is taken.
    #[inline]
    pub fn pop_unless(
        &self,
        to: &mut Pieces,
        refuse: impl FnOnce() -> bool,
    ) -> Result<Option<usize>, Broken> {
        let start = self.start();
        let before = to.clone();
        let place = self.walk(start, before.left(), |chunk| self.copy_out(chunk, to))?;
        if refuse() {
            *to = before;
            return Ok(None);
        }
        self.commit(start, place);
        Ok(Some(before.left() - to.left()))
    }

    /// Copies out and keeps, beginning `skip` bytes after the first.
    #[inline]
    pub fn peek(&self, to: &mut Pieces, skip: usize) -> Result<usize, Broken> {
        let mut place = self.start();
        if skip > 0 {
            place = self.walk(place, skip, |_| ())?;
        }
        let wanted = to.left();
        self.walk(place, wanted, |chunk| self.copy_out(chunk, to))?;
        Ok(wanted - to.left())
    }

    /// Shows up to `wanted` bytes where they lie, piece by piece, until `take` takes less of one than
    /// there is; how many there were and how many it has taken. All stay there until they are
    /// [discarded](Self::discard).
    #[inline]
    pub fn show(
        &self,
        wanted: usize,
        mut take: impl FnMut(*const u8, usize) -> usize,
    ) -> Result<(usize, usize), Broken> {
        let (mut shown, mut taken) = (0, 0);
        self.walk(self.start(), wanted, |chunk| {
            for (at, length) in chunk.pieces() {
                if shown == taken && length > 0 {
                    taken += take(at, length).min(length);
                }
                shown += length;
            }
        })?;
        Ok((shown, taken))
    }

    /// Frees `count` bytes that [`available`](Self::available) has shown.
    #[inline]
    pub fn discard(&self, count: usize) {
        let start = self.start();
        if let Ok(place) = self.walk(start, count, |_| ()) {
            self.commit(start, place);
        }
    }

    #[inline]
    fn start(&self) -> Position {
        Position {
            head: self.consumer.head.load(Ordering::Relaxed),
            records: self.consumer.records_done.load(Ordering::Relaxed),
            loan_bytes: self.consumer.loan_bytes.load(Ordering::Relaxed),
            ring: self.consumer.ring.load(Ordering::Relaxed),
            changes: 0,
        }
    }

    #[inline]
    fn copy_out(&self, chunk: Chunk, to: &mut Pieces) {
        match chunk {
            Chunk::Ring(area, cursor, count) => {
                let is_far = self.comes_from_far(area, cursor, count);
                area.copy(cursor, count, to, Copy::Out);
                if is_far {
                    area.evict(cursor, count);
                }
            }
            // SAFETY: `walk` has checked that the content is mapped that far.
            Chunk::Content(from, count) => unsafe { to.fill(from, count) },
        }
    }

    /// Visits up to `count` bytes in order; returns the place behind them.
    #[inline]
    fn walk(
        &self,
        mut place: Position,
        mut count: usize,
        mut visit: impl FnMut(Chunk),
    ) -> Result<Position, Broken> {
        // Bounded, because a peer could send its reader from ring to ring for ever.
        while count > 0 && place.changes <= RECORDS {
            count -= match self.next(place, count)? {
                Next::Nothing => break,
                Next::Bytes(there, has_record) => {
                    let length = there.min(count);
                    visit(Chunk::Ring(self.area(place.ring), place.head, length));
                    place.head = place.head.wrapping_add(length as u64);
                    if !has_record {
                        // All that was published when the tail was looked at.
                        break;
                    }
                    length
                }
                Next::Lent {
                    content,
                    offset,
                    left,
                } => {
                    let length = left.min(count);
                    visit(Chunk::Content(
                        self.address(content, offset, length)?,
                        length,
                    ));
                    place.loan_bytes += length as u64;
                    if length == left {
                        place.records = place.records.wrapping_add(1);
                        place.loan_bytes = 0;
                    }
                    length
                }
                Next::Elsewhere(ring) => {
                    place.ring = ring.word();
                    place.records = place.records.wrapping_add(1);
                    place.changes += 1;
                    0
                }
            };
        }
        Ok(place)
    }

    fn address(&self, number: u32, offset: usize, length: usize) -> Result<*const u8, Broken> {
        let content = self.around.and_then(|around| around.content(number));
        let (base, size) = content.ok_or(Broken)?;
        let end = offset.checked_add(length).filter(|end| *end <= size);
        end.map(|_| base.wrapping_add(offset)).ok_or(Broken)
    }

    #[inline]
    fn commit(&self, start: Position, place: Position) {
        if place.changes > 0 {
            return self.commit_changes(start, place);
        }
        self.commit_place(start, place);
    }

    #[inline]
    fn commit_place(&self, start: Position, place: Position) {
        let consumer = self.consumer;
        if place.loan_bytes != start.loan_bytes || place.records != start.records {
            consumer
                .loan_bytes
                .store(place.loan_bytes, Ordering::Relaxed);
            consumer.ring.store(place.ring, Ordering::Relaxed);
            // Release: the entry has been read before its writer may use it again.
            consumer
                .records_done
                .store(place.records, Ordering::Release);
        }
        if place.head != start.head {
            // Release: the bytes have been copied before they may be overwritten.
            consumer.head.store(place.head, Ordering::Release);
        }
    }

    /// Commits a read that went from ring to ring, and gives back the rings that are not read any more.
    #[cold]
    fn commit_changes(&self, start: Position, place: Position) {
        let passed = self.passed(start, place);
        self.commit_place(start, place);
        if let Some(around) = self.around {
            for ring in passed.into_iter().flatten() {
                around.give_back(self.direction, ring);
            }
        }
    }

    /// Rings that were left behind and are not read any more.
    fn passed(&self, start: Position, place: Position) -> Passed {
        let mut passed = Passed::default();
        let mut left = start.ring;
        let count = place.records.wrapping_sub(start.records) as usize;
        for (number, entry) in passed.iter_mut().enumerate().take(count) {
            let record = self.record(start.records.wrapping_add(number as u64));
            if let What::Ring(next) = record.what() {
                *entry = (left != place.ring).then(|| Place::from_word(left));
                left = next.word();
            }
        }
        passed
    }

    #[inline]
    fn next(&self, place: Position, wanted: usize) -> Result<Next, Broken> {
        let mut tail = self.consumer.tail_seen.load(Ordering::Relaxed);
        if Self::between(place.head, tail)? < wanted {
            tail = self.see_tail();
        }
        let mut count = Self::between(place.head, tail)?;
        // After the tail: whoever has published bytes behind a record has published the record.
        let made = self.producer.records.load(Ordering::Acquire);
        let has_record = made != place.records;
        if has_record {
            let record = self.record_of(made, place.records)?;
            let before = record.at.load(Ordering::Relaxed).wrapping_sub(place.head);
            if before > count as u64 {
                // The record is newer than the tail that was looked at.
                count = Self::between(place.head, self.see_tail())?;
            }
            if before > count as u64 {
                return Err(Broken);
            }
            if before == 0 {
                return Self::after(record, place.loan_bytes);
            }
            count = before as usize;
        }
        if count > self.area(place.ring).size {
            return Err(Broken);
        }
        Ok(match count {
            0 => Next::Nothing,
            _ => Next::Bytes(count, has_record),
        })
    }

    #[inline]
    fn see_tail(&self) -> u64 {
        let tail = self.producer.tail.load(Ordering::Acquire);
        self.consumer.tail_seen.store(tail, Ordering::Relaxed);
        tail
    }

    fn record_of(&self, made: u64, number: u64) -> Result<&Record, Broken> {
        if made.wrapping_sub(number) <= RECORDS as u64 {
            Ok(self.record(number))
        } else {
            Err(Broken)
        }
    }

    /// What a record says of which `done` bytes are read already.
    fn after(record: &Record, done: u64) -> Result<Next, Broken> {
        match record.what() {
            What::Ring(place) => Ok(Next::Elsewhere(place)),
            What::Lent {
                content,
                offset,
                length,
            } => {
                let left = (length as u64).checked_sub(done).filter(|left| *left > 0);
                Ok(Next::Lent {
                    content,
                    offset: offset.checked_add(done as usize).ok_or(Broken)?,
                    left: left.ok_or(Broken)? as usize,
                })
            }
        }
    }

    /// Unread bytes in contents shared without copying; 0 also when the peer contradicts itself.
    pub fn lent_bytes(&self) -> usize {
        let done = self.consumer.records_done.load(Ordering::Relaxed);
        let made = self.producer.records.load(Ordering::Acquire);
        if made == done {
            return 0;
        }
        let length = |number: u64| match self.record(done.wrapping_add(number)).what() {
            What::Lent { length, .. } => length as u64,
            What::Ring(_) => 0,
        };
        let under_way = made.wrapping_sub(done).min(RECORDS as u64);
        let sum: u64 = (0..under_way).map(length).sum();
        let read = self.consumer.loan_bytes.load(Ordering::Relaxed);
        usize::try_from(sum.saturating_sub(read)).unwrap_or(usize::MAX)
    }
}
