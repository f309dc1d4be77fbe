//! Taking bytes from the other side.

use core::sync::atomic::Ordering;

use bypass_shm::layout::{LATE, RST};
use bypass_shm::ring::{Broken, Ring};
use bypass_stats::Counter;
use bypass_sys::iovec::Pieces;

use super::attaching;
use super::capturing::{self, By};
use super::{Attempt, For, Stream};
use crate::peer::Notice;
use crate::process;
use crate::sockets;

impl Stream {
    /// Takes what is there.
    pub fn attempt_read(&self, to: &mut Pieces, flags: i32) -> Attempt {
        super::announce_held_back();
        let _guard = match self.lock(For::Bytes) {
            Ok(guard) => guard,
            Err(error) => return Attempt::Failed(error),
        };
        // Another process than its server may have taken it.
        if self.is_opening() && self.socket.is_undecided() {
            return match self.is_shut(sockets::SHUT_READ) {
                true => Attempt::Done(0),
                false => Attempt::Blocked,
            };
        }
        let ring = self.inbound();
        // What is thrown away is not shown: the buffer of such a call may not even exist.
        let before = (flags & libc::MSG_TRUNC == 0)
            .then(|| capturing::before(to))
            .flatten();
        let taken = take_or_end(|| self.take_bytes(ring, to, flags), || self.inbound_ends());
        match taken {
            Err(broken) => {
                self.peer.condemn(self.slot);
                broken.into()
            }
            Ok((0, ends)) => self.read_nothing(ends),
            Ok((count, _)) => {
                if flags & libc::MSG_PEEK == 0 {
                    self.show_passed(By::Peer, before, count);
                    self.has_read(count);
                    self.expect_answer();
                }
                Attempt::Done(count)
            }
        }
    }

    fn take_bytes(&self, ring: Ring, to: &mut Pieces, flags: i32) -> Result<usize, Broken> {
        if flags & libc::MSG_PEEK != 0 {
            return self.peek_bytes(ring, to, flags);
        }
        if flags & libc::MSG_TRUNC != 0 {
            let mut count = ring.available(to.left())?.min(to.left());
            // Asked after that: the mark of a byte is there before the byte.
            if self.was_urgent() {
                let most = self.pass_urgent(&ring)?.min(to.left());
                count = ring.available(most)?.min(most);
            }
            to.skip(count);
            ring.discard(count);
            return Ok(count);
        }
        if self.was_urgent() {
            return self.take_beside_urgent(ring, to);
        }
        // Asked again after the tail was looked at: the mark of a byte is there before the byte.
        match ring.pop_unless(to, || self.was_urgent())? {
            Some(count) => Ok(count),
            None => self.take_beside_urgent(ring, to),
        }
    }

    /// Looks at what a read would take; with MSG_TRUNC only at how much.
    pub fn peek_bytes(&self, ring: Ring, to: &mut Pieces, flags: i32) -> Result<usize, Broken> {
        let there = ring.available(usize::MAX)?;
        // Asked after that: the mark of a byte is there before the byte.
        let (from, count) = if self.was_urgent() {
            self.span_beside_urgent(there)
        } else {
            (0, there)
        };
        if flags & libc::MSG_TRUNC != 0 {
            return Ok(count.min(to.left()));
        }
        let mut part = to.clone();
        part.limit(count);
        ring.peek(&mut part, from)
    }

    /// How many bytes end a read that may wait.
    #[inline]
    pub fn target(&self, flags: i32, wanted: usize) -> usize {
        if flags & libc::MSG_WAITALL != 0 {
            return wanted;
        }
        if self.socket.has(sockets::LOW_WATER) {
            return self.socket.low_water.load(Ordering::Relaxed) as usize;
        }
        1
    }

    /// Counts what was read otherwise, and notifies the other side of the room.
    pub fn has_read(&self, count: usize) {
        self.count_in(count);
        let fenced = self.peer.segment.is_fenced(1 - self.peer.side);
        if self.inbound().is_space_wanted(count, fenced) {
            self.peer.ring(self.slot, Notice::Room);
        }
    }

    /// Runs `work` with the reading side locked.
    pub fn reading<T>(&self, work: impl FnOnce() -> Result<T, i32>) -> Result<T, i32> {
        let _guard = self.lock(For::Bytes)?;
        work()
    }

    /// Where nothing could be read after `ends` was looked at: whether that is for ever, or the reset
    /// that was not reported yet.
    pub fn end_of_reading(&self, ends: u32) -> Result<bool, i32> {
        match self.read_nothing(ends) {
            Attempt::Failed(error) => Err(error),
            Attempt::Blocked | Attempt::Undecided => Ok(false),
            Attempt::Done(_) => Ok(true),
        }
    }

    fn read_nothing(&self, ends: u32) -> Attempt {
        self.see_end(ends);
        if ends & (RST | LATE) == RST {
            return self.tell_reset().map_or(Attempt::Done(0), Attempt::Failed);
        }
        if ends != 0 {
            self.show_ended(By::Peer);
        }
        if ends != 0 || self.is_shut(sockets::SHUT_READ) {
            return Attempt::Done(0);
        }
        Attempt::Blocked
    }

    fn count_in(&self, count: usize) {
        process::count(Counter::Reads, 1);
        process::count(Counter::BytesIn, count as u64);
        if let Some(row) = process::stats().and_then(|stats| stats.row_quick(self.index)) {
            if row.fd.load(Ordering::Relaxed) == 0 {
                attaching::take_over_row(self);
            }
            let sum = row.bytes_in.load(Ordering::Relaxed) + count as u64;
            row.bytes_in.store(sum, Ordering::Relaxed);
        }
    }

    /// Where reads and writes alternate: the next answer's lines are on their way while the program
    /// thinks about it. A program that only reads leaves them to the other side.
    #[inline]
    fn expect_answer(&self) {
        if self.socket.has_answered.load(Ordering::Relaxed) != 0 {
            self.socket.has_answered.store(0, Ordering::Relaxed);
            self.outbound().expect_push();
        }
    }
}

/// Takes bytes. Where there are none, says how the direction had ended before the look that found
/// none: bytes may come, and their end behind them, between a look and the question for the end.
#[inline]
fn take_or_end(
    mut take: impl FnMut() -> Result<usize, Broken>,
    ends: impl Fn() -> u32,
) -> Result<(usize, u32), Broken> {
    let mut known = 0;
    for _ in 0..LOOKS_MAX {
        let count = take()?;
        let now = if count == 0 { ends() } else { known };
        if now == known {
            return Ok((count, known));
        }
        known = now;
    }
    Err(Broken)
}

/// An honest writer changes how its direction has ended a few times at most; a forger would keep the reader here.
const LOOKS_MAX: u32 = 64;

/// Bytes up to the urgent one, as FIONREAD counts them: none where the stream stands there.
pub fn bytes_to_mark(stream: &Stream) -> usize {
    let available = stream.inbound().available(usize::MAX).unwrap_or(0);
    match stream.was_urgent() {
        true => stream.bytes_to_mark(available),
        false => available,
    }
}

/// Bytes that a read would find.
pub fn readable_bytes(stream: &Stream) -> usize {
    let available = stream.inbound().available(usize::MAX).unwrap_or(0);
    if stream.was_urgent() {
        return stream.readable_beside_urgent(available);
    }
    available
}

#[cfg(test)]
mod tests {
    use super::*;
    use bypass_shm::layout::FIN;
    use std::cell::Cell;

    /// A writer that writes and closes as the reader has looked for bytes `looks` times and for the
    /// end `questions` times.
    fn read_while_it_closes(looks: u32, questions: u32) -> (usize, u32) {
        let (looked, asked) = (Cell::new(0), Cell::new(0));
        let has_closed = || looked.get() > looks || asked.get() > questions;
        let take = || {
            let is_there = has_closed();
            looked.set(looked.get() + 1);
            Ok(if is_there { 3 } else { 0 })
        };
        let ends = || {
            let ends = if has_closed() { FIN } else { 0 };
            asked.set(asked.get() + 1);
            ends
        };
        take_or_end(take, ends).unwrap_or((0, FIN))
    }

    #[test]
    fn a_writer_that_ends_in_another_way_each_time_is_not_looked_at_for_ever() {
        let asked = Cell::new(0);
        let ends = || {
            asked.set(asked.get() + 1);
            asked.get()
        };
        assert!(take_or_end(|| Ok(0), ends).is_err());
    }

    #[test]
    fn bytes_that_come_with_the_end_are_not_taken_for_the_end() {
        for looks in 0..4 {
            for questions in 0..4 {
                let found = read_while_it_closes(looks, questions);
                assert!(
                    found == (0, 0) || found.0 == 3,
                    "{looks} {questions}: {found:?}"
                );
            }
        }
    }
}
