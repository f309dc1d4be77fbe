//! Giving bytes to the other side.

use core::sync::atomic::Ordering;

use bypass_shm::layout::{CLOSED, RST, SHUT};
use bypass_stats::Counter;
use bypass_sys::iovec::Pieces;

use super::attaching;
use super::capturing::{self, By};
use super::{Attempt, For, Stream};
use crate::peer::Notice;
use crate::process;
use crate::sockets::{self, Event};

/// Bytes of one write that go to a peer that has closed, before its reset is known, where the program
/// has not chosen SO_SNDBUF: what the kernel sends at once.
const VANISHING_MAX: usize = 512 << 10;

/// Bytes that are written before the reader is notified: what a processor's cache holds next to other data.
pub const PIECE: usize = 128 << 10;

impl Stream {
    /// Counts what was written and notifies the other side.
    pub fn publish(&self, count: usize) {
        self.count_out(count);
        self.take_held_back();
        self.announce();
    }

    /// Notifies the other side that bytes have come.
    #[inline]
    pub(super) fn announce(&self) {
        self.peer.ring(self.slot, Notice::News);
    }

    #[inline]
    fn count_out(&self, count: usize) {
        process::count(Counter::Writes, 1);
        process::count(Counter::BytesOut, count as u64);
        if let Some(row) = process::stats().and_then(|stats| stats.row_quick(self.index)) {
            if row.fd.load(Ordering::Relaxed) == 0 {
                attaching::take_over_row(self);
            }
            let sum = row.bytes_out.load(Ordering::Relaxed) + count as u64;
            row.bytes_out.store(sum, Ordering::Relaxed);
        }
    }

    /// Whether its connect is not over. By a thread that holds a lock of the stream, after which its state says so, too.
    #[inline]
    pub fn is_opening(&self) -> bool {
        self.socket.has(sockets::OPENING) && self.stays_opening()
    }

    #[cold]
    fn stays_opening(&self) -> bool {
        let is_opening = self.socket.is_opening();
        if !is_opening && self.socket.change(Event::Connect) {
            process::count(Counter::ConnectsShm, 1);
            self.peer.is_reached.store(true, Ordering::Relaxed);
        }
        is_opening
    }

    /// Why nothing can be written, if so. Done(()) means: the bytes vanish, as on the way to a
    /// peer that has closed and will answer with a reset.
    pub fn check_writable(&self) -> Result<Option<()>, i32> {
        if self.is_opening() {
            return Err(libc::EAGAIN);
        }
        if let Some(error) = self.refusal() {
            return Err(error);
        }
        let ends = self.inbound_ends();
        if ends & (CLOSED | SHUT) != 0 {
            if ends & CLOSED == 0 {
                self.reset_by_peer();
            }
            self.wrote_to_closed();
            self.peer.ring_ourselves(self.slot);
            return Ok(Some(()));
        }
        Ok(None)
    }

    /// What a write of no bytes says, if it fails. A reset that was not reported yet comes first, without a signal.
    pub fn refusal(&self) -> Option<i32> {
        self.is_refusing()
            .then(|| self.take_reset().unwrap_or(libc::EPIPE))
    }

    /// Whether a write fails; the error stays to be reported.
    pub fn is_refusing(&self) -> bool {
        let is_reset = self.inbound_ends() & RST != 0;
        is_reset || self.is_shut(sockets::SHUT_WRITE | sockets::WROTE_TO_CLOSED)
    }

    /// The peer has shut both directions down: its reset of what we write ends its own socket too.
    #[cold]
    fn reset_by_peer(&self) {
        let place = self.peer.segment.slot(self.slot);
        place.producer[self.peer.side]
            .ends
            .fetch_or(RST, Ordering::SeqCst);
        self.peer.ring(self.slot, Notice::Bytes);
    }

    /// Most bytes of one write to a peer that has closed.
    pub fn vanishing_max(&self) -> usize {
        match self.socket.send_buffer.load(Ordering::Relaxed) as usize {
            0 => VANISHING_MAX,
            chosen => chosen.saturating_mul(2).min(VANISHING_MAX),
        }
    }

    /// Writes a piece: the reader of a long write begins while the rest is copied.
    pub fn attempt_write(&self, from: &mut Pieces, flags: i32) -> Attempt {
        if from.left() <= PIECE || self.inbound_ends() & CLOSED != 0 {
            return self.attempt_piece(from, flags);
        }
        let mut piece = from.clone();
        piece.limit(PIECE);
        // An urgent byte is the last one of all.
        let attempt = self.attempt_piece(&mut piece, flags & !libc::MSG_OOB);
        if let Attempt::Done(count) = attempt {
            from.skip(count);
        }
        attempt
    }

    fn attempt_piece(&self, from: &mut Pieces, flags: i32) -> Attempt {
        self.announce_others();
        if !self.expects_more(flags) {
            self.peer.expect_ringing(self.slot);
        }
        self.socket.has_answered.store(1, Ordering::Relaxed);
        let right = match self.lock(For::Room) {
            Ok(guard) => guard,
            Err(error) => return Attempt::Failed(error),
        };
        match self.check_writable() {
            Err(libc::EAGAIN) if self.is_over_packets() => return Attempt::Blocked,
            Err(libc::EAGAIN) => return Attempt::Undecided,
            Err(error) => return Attempt::Failed(error),
            Ok(Some(())) => return Attempt::Done(from.left().min(self.vanishing_max())),
            Ok(None) => {}
        }
        let ring = self.outbound();
        let before = capturing::before(from);
        // Behind a zero-copy share that is not read yet a mark would be in the wrong place.
        let is_urgent = flags & libc::MSG_OOB != 0 && ring.lent_bytes() == 0;
        let mut pushed = if is_urgent {
            self.push_urgent(from)
        } else {
            ring.push(from)
        };
        if from.left() > 0 && pushed.is_ok() {
            // Full: ask for a ring, and look once more in case the reader was faster.
            process::count(Counter::RingFull, 1);
            self.want_room(&ring);
            pushed = pushed.and_then(|first| Ok(first + ring.push(from)?));
        }
        match pushed {
            Err(broken) => {
                self.peer.condemn(self.slot);
                broken.into()
            }
            Ok(0) => Attempt::Blocked,
            Ok(count) => {
                self.show_passed(By::Us, before, count);
                let is_held = !is_urgent && self.expects_more(flags) && self.hold_back(&right);
                if is_held {
                    self.count_out(count);
                } else {
                    self.publish(count);
                }
                if is_urgent {
                    self.signal_urgent();
                }
                Attempt::Done(count)
            }
        }
    }

    /// Runs `work` with the writing side locked.
    pub fn writing<T>(&self, work: impl FnOnce() -> Result<T, i32>) -> Result<T, i32> {
        let _guard = self.lock(For::Room)?;
        work()
    }
}

/// Bytes that the other side has not acknowledged (SIOCOUTQ). On one host those beyond its buffer: the kernel acknowledges
/// what lies there, read or not.
pub fn unsent_bytes(stream: &Stream) -> usize {
    let ring = stream.outbound();
    let unread = ring.unread() + ring.lent_bytes();
    match stream.is_over_packets() {
        true => unread,
        false => unread.saturating_sub(ring.receive_buffer()),
    }
}
