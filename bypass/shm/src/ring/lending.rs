//! Reading a stream, some of whose bytes lie in contents that the writer has lent.
//!
//! A loan says: after so many bytes of the ring come these bytes of that content. It is published
//! after the bytes in front of it and before those behind it, so a reader that looks at the tail
//! first and at the loans then never reads past a loan.

use bypass_sys::iovec::Pieces;

use crate::atomic::Ordering;
use crate::layout::{Loan, LOANS};

use super::{Broken, Copy, Ring};

/// Knows the contents that were lent to this process.
pub trait Borrowed {
    /// Address and length of content `number`.
    fn content(&self, number: u32) -> Option<(*const u8, usize)>;
}

/// How far a reader has come.
#[derive(Clone, Copy)]
struct Place {
    head: u64,
    loans: u64,
    loan_bytes: u64,
}

/// What comes next.
enum Next {
    Nothing,
    Bytes(usize),
    Lent {
        content: u32,
        offset: usize,
        left: usize,
    },
}

/// Bytes that lie together.
enum Chunk {
    /// In the ring, from this cursor on.
    Ring(u64, usize),
    /// In a content, from this address on.
    Content(*const u8, usize),
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

    /// Frees `count` bytes that [`available`](Self::available) has shown.
    #[inline]
    pub fn discard(&self, count: usize) {
        let start = self.start();
        if let Ok(place) = self.walk(start, count, |_| ()) {
            self.commit(start, place);
        }
    }

    #[inline]
    fn start(&self) -> Place {
        Place {
            head: self.consumer.head.load(Ordering::Relaxed),
            loans: self.consumer.loans_done.load(Ordering::Relaxed),
            loan_bytes: self.consumer.loan_bytes.load(Ordering::Relaxed),
        }
    }

    #[inline]
    fn copy_out(&self, chunk: Chunk, to: &mut Pieces) {
        match chunk {
            Chunk::Ring(cursor, count) => self.copy(cursor, count, to, Copy::Out),
            // SAFETY: `walk` has checked that the content is mapped that far.
            Chunk::Content(from, count) => unsafe { to.fill(from, count) },
        }
    }

    /// Visits up to `count` bytes in order; returns the place behind them.
    #[inline]
    fn walk(
        &self,
        mut place: Place,
        mut count: usize,
        mut visit: impl FnMut(Chunk),
    ) -> Result<Place, Broken> {
        while count > 0 {
            count -= match self.next(place, count)? {
                Next::Nothing => break,
                Next::Bytes(there) => {
                    let length = there.min(count);
                    visit(Chunk::Ring(place.head, length));
                    place.head = place.head.wrapping_add(length as u64);
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
                        place.loans = place.loans.wrapping_add(1);
                        place.loan_bytes = 0;
                    }
                    length
                }
            };
        }
        Ok(place)
    }

    fn address(&self, number: u32, offset: usize, length: usize) -> Result<*const u8, Broken> {
        let content = self.borrowed.and_then(|borrowed| borrowed.content(number));
        let (base, size) = content.ok_or(Broken)?;
        let end = offset.checked_add(length).filter(|end| *end <= size);
        end.map(|_| base.wrapping_add(offset)).ok_or(Broken)
    }

    #[inline]
    fn commit(&self, start: Place, place: Place) {
        let consumer = self.consumer;
        if place.loan_bytes != start.loan_bytes || place.loans != start.loans {
            consumer
                .loan_bytes
                .store(place.loan_bytes, Ordering::Relaxed);
            // Release: the entry has been read before its writer may use it again.
            consumer.loans_done.store(place.loans, Ordering::Release);
        }
        if place.head != start.head {
            // Release: the bytes have been copied before they may be overwritten.
            consumer.head.store(place.head, Ordering::Release);
        }
    }

    #[inline]
    fn next(&self, place: Place, wanted: usize) -> Result<Next, Broken> {
        let mut tail = self.consumer.tail_seen.load(Ordering::Relaxed);
        if self.used(tail, place.head)? < wanted {
            tail = self.see_tail();
        }
        let mut count = self.used(tail, place.head)?;
        // After the tail: whoever has published bytes behind a loan has published the loan.
        let made = self.producer.loans.load(Ordering::Acquire);
        if made != place.loans {
            let loan = self.loan(made, place.loans)?;
            let before = loan.at.load(Ordering::Relaxed).wrapping_sub(place.head);
            if before > count as u64 {
                // The loan is newer than the tail that was looked at.
                count = self.used(self.see_tail(), place.head)?;
            }
            if before > count as u64 {
                return Err(Broken);
            }
            if before == 0 {
                return Self::lent(loan, place.loan_bytes);
            }
            count = before as usize;
        }
        Ok(if count == 0 {
            Next::Nothing
        } else {
            Next::Bytes(count)
        })
    }

    #[inline]
    fn see_tail(&self) -> u64 {
        let tail = self.producer.tail.load(Ordering::Acquire);
        self.consumer.tail_seen.store(tail, Ordering::Relaxed);
        tail
    }

    fn loan(&self, made: u64, number: u64) -> Result<&Loan, Broken> {
        if made.wrapping_sub(number) <= LOANS as u64 {
            Ok(&self.loans.0[number as usize % LOANS])
        } else {
            Err(Broken)
        }
    }

    fn lent(loan: &Loan, done: u64) -> Result<Next, Broken> {
        let length = loan.length.load(Ordering::Relaxed);
        let place = loan.place.load(Ordering::Relaxed);
        let left = length.checked_sub(done).filter(|left| *left > 0);
        Ok(Next::Lent {
            content: (place >> 32) as u32,
            offset: (place as u32 as usize)
                .checked_add(done as usize)
                .ok_or(Broken)?,
            left: left.ok_or(Broken)? as usize,
        })
    }

    /// Where the next loan is written, after so many.
    #[inline]
    pub(super) fn next_loan(&self, made: u64) -> &Loan {
        &self.loans.0[made as usize % LOANS]
    }

    /// Bytes lent and not yet read; 0 also when the peer contradicts itself.
    pub fn lent_bytes(&self) -> usize {
        let done = self.consumer.loans_done.load(Ordering::Relaxed);
        let made = self.producer.loans.load(Ordering::Acquire);
        if made == done {
            return 0;
        }
        let mut sum = 0u64;
        for number in 0..made.wrapping_sub(done).min(LOANS as u64) {
            let loan = &self.loans.0[done.wrapping_add(number) as usize % LOANS];
            sum = sum.saturating_add(loan.length.load(Ordering::Relaxed));
        }
        let read = self.consumer.loan_bytes.load(Ordering::Relaxed);
        usize::try_from(sum.saturating_sub(read)).unwrap_or(usize::MAX)
    }

    /// Sends `length` bytes of content `number` from `offset` on, behind everything pushed so far;
    /// false when too many loans are under way.
    pub fn lend(&self, number: u32, offset: u32, length: u32) -> bool {
        let made = self.writer.loans.load(Ordering::Relaxed);
        let mut done = self.writer.loans_seen.load(Ordering::Relaxed);
        if made.wrapping_sub(done) >= LOANS as u64 {
            done = self.consumer.loans_done.load(Ordering::Acquire);
            self.writer.loans_seen.store(done, Ordering::Relaxed);
        }
        if length == 0 || made.wrapping_sub(done) >= LOANS as u64 {
            return false;
        }
        let loan = self.next_loan(made);
        let tail = self.writer.tail.load(Ordering::Relaxed);
        loan.at.store(tail, Ordering::Relaxed);
        let place = u64::from(number) << 32 | u64::from(offset);
        loan.place.store(place, Ordering::Relaxed);
        loan.length.store(u64::from(length), Ordering::Relaxed);
        // Release: the entry, and the tail in front of it.
        let made = made.wrapping_add(1);
        self.writer.loans.store(made, Ordering::Relaxed);
        self.producer.loans.store(made, Ordering::Release);
        true
    }
}
