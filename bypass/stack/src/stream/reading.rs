//! read and its relatives.

use core::sync::atomic::Ordering;

use bypass_shm::layout::RST;
use bypass_shm::ring::{Broken, Ring};
use bypass_stats::Counter;
use bypass_sys::iovec::Pieces;

use super::{current, find, is_nonblocking, timeout, Attempt, Hold, Stream};
use crate::peer::Bell;
use crate::wait::For;
use crate::{process, sockets, table, Outcome};

impl Stream {
    fn attempt_read(&self, to: &mut Pieces, flags: i32) -> Attempt {
        super::announce_held_back();
        let _guard = match self.lock(For::Bytes) {
            Ok(guard) => guard,
            Err(error) => return Attempt::Failed(error),
        };
        let ring = self.inbound();
        let count = match self.take_bytes(ring, to, flags) {
            Ok(0) if self.inbound_ends() != 0 => self.take_bytes(ring, to, flags),
            other => other,
        };
        match count {
            Err(broken) => {
                self.condemn();
                broken.into()
            }
            Ok(0) => self.read_nothing(),
            Ok(count) => {
                if flags & libc::MSG_PEEK == 0 {
                    self.has_read(count);
                    self.expect_answer();
                }
                Attempt::Done(count)
            }
        }
    }

    fn take_bytes(&self, ring: Ring, to: &mut Pieces, flags: i32) -> Result<usize, Broken> {
        if flags & libc::MSG_PEEK != 0 {
            return ring.peek(to, 0);
        }
        if flags & libc::MSG_TRUNC != 0 {
            let count = ring.available(to.left())?.min(to.left());
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

    /// Counts what was read otherwise, and tells the other side of the room.
    pub fn has_read(&self, count: usize) {
        self.count_in(count);
        let fenced = self.peer.segment.is_fenced(1 - self.peer.side);
        if self.inbound().is_space_wanted(count, fenced) {
            self.peer.ring(self.slot, Bell::Room);
        }
    }

    /// Runs `work` with the reading side locked.
    pub fn reading<T>(&self, work: impl FnOnce() -> Result<T, i32>) -> Result<T, i32> {
        let _guard = self.lock(For::Bytes)?;
        work()
    }

    /// Where nothing can be read: whether that is for ever, or the reset that was not told yet.
    pub fn end_of_reading(&self) -> Result<bool, i32> {
        match self.read_nothing() {
            Attempt::Failed(error) => Err(error),
            Attempt::Blocked => Ok(false),
            Attempt::Done(_) => Ok(true),
        }
    }

    fn read_nothing(&self) -> Attempt {
        let ends = self.inbound_ends();
        if ends & RST != 0 {
            return self.tell_reset().map_or(Attempt::Done(0), Attempt::Failed);
        }
        if ends != 0 || self.socket.has(sockets::SHUT_READ) {
            return Attempt::Done(0);
        }
        Attempt::Blocked
    }

    fn count_in(&self, count: usize) {
        process::count(Counter::Reads, 1);
        process::count(Counter::BytesIn, count as u64);
        if let Some(row) = process::stats().and_then(|stats| stats.row_quick(self.index)) {
            let sum = row.bytes_in.load(Ordering::Relaxed) + count as u64;
            row.bytes_in.store(sum, Ordering::Relaxed);
        }
    }

    /// Where reads and writes alternate: the next answer's lines are on their way while the program
    /// thinks about it. Whoever only reads leaves them to the other side.
    #[inline]
    fn expect_answer(&self) {
        if self.socket.has_answered.load(Ordering::Relaxed) != 0 {
            self.socket.has_answered.store(0, Ordering::Relaxed);
            self.outbound().expect_push();
        }
    }
}

const PEEK_ALL: i32 = libc::MSG_PEEK | libc::MSG_WAITALL;

#[cold]
fn peek_all(fd: i32, to: &mut Pieces, flags: i32) -> Outcome {
    let stream = match find(fd) {
        Ok(stream) => stream,
        Err(outcome) => return outcome,
    };
    let _held = Hold::take(stream);
    match crate::peek::peek_all(&stream, to, is_nonblocking(&stream, flags)) {
        Ok(0) if to.left() > 0 => match stream.end_of_reading() {
            Ok(true) => Outcome::Done(0),
            Ok(false) => Outcome::Error(libc::EAGAIN),
            Err(error) => Outcome::Error(error),
        },
        other => other.into(),
    }
}

/// read and its relatives.
#[inline]
pub fn read(fd: i32, to: &mut Pieces, flags: i32) -> Outcome {
    if flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 && !table::is_kernel(fd) {
        return match flags & libc::MSG_OOB {
            0 => Outcome::Error(libc::EAGAIN),
            _ => crate::urgent::receive(fd, to, flags),
        };
    }
    if flags & PEEK_ALL == PEEK_ALL {
        return peek_all(fd, to, flags);
    }
    let wanted = to.left();
    let mut deadline = None;
    let mut held = None;
    let mut done = 0;
    loop {
        let stream = match current(fd, &held) {
            Ok(stream) => stream,
            Err(outcome) => {
                return if done > 0 {
                    Outcome::Done(done as isize)
                } else {
                    outcome
                }
            }
        };
        if wanted == 0 {
            return Outcome::Done(0);
        }
        let error = match stream.attempt_read(to, flags) {
            Attempt::Done(count) => {
                done += count;
                let is_enough = done == wanted || count == 0 || flags & libc::MSG_PEEK != 0;
                if is_enough || flags & libc::MSG_WAITALL == 0 {
                    return Outcome::Done(done as isize);
                }
                continue;
            }
            Attempt::Failed(error) => error,
            Attempt::Blocked if is_nonblocking(&stream, flags) => libc::EAGAIN,
            Attempt::Blocked => {
                let timeout_ns = stream.socket.receive_timeout_ns.load(Ordering::Relaxed);
                let deadline = *deadline.get_or_insert_with(|| timeout(timeout_ns));
                held.get_or_insert_with(|| Hold::take(stream));
                match stream.block(For::Bytes, deadline) {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
        };
        return if done > 0 {
            Outcome::Done(done as isize)
        } else {
            Outcome::Error(error)
        };
    }
}

/// Bytes that a read would find (FIONREAD).
pub fn readable_bytes(stream: &Stream) -> usize {
    let available = stream.inbound().available(usize::MAX).unwrap_or(0);
    if stream.was_urgent() {
        return stream.readable_beside_urgent(available);
    }
    available
}
