//! Urgent bytes (MSG_OOB): they stay where they are in the stream, a mark says which byte it is.
//!
//! The writer stores the mark before it publishes the byte, so a reader that sees the byte sees the
//! mark. A read stops before it; the next one passes over it, as in the kernel.

use core::sync::atomic::Ordering;

use bypass_options::ShareWith;
use bypass_shm::ring::{Broken, Ring};
use bypass_sys::iovec::Pieces;
use bypass_sys::kernel;
use bypass_sys::signals::{self, Owner};

use super::{find, Stream};
use crate::process::table::{self, Kind};
use crate::process::{self, Outcome};
use crate::sockets::{self, Socket};

/// Where the urgent byte is, seen from what the program has read.
enum Place {
    /// Nowhere, or behind.
    None,
    /// So many bytes ahead; its mark.
    Ahead(usize, u64),
}

impl Stream {
    /// One load next to the cursor that every read loads anyway; almost always false.
    #[inline(always)]
    pub fn was_urgent(&self) -> bool {
        let line = &self.peer.segment.slot(self.slot).producer[1 - self.peer.side];
        line.urgent.load(Ordering::Acquire) != 0
    }

    fn place(&self) -> Place {
        let slot = self.peer.segment.slot(self.slot);
        let from = 1 - self.peer.side;
        let mark = slot.producer[from].urgent.load(Ordering::Acquire);
        let head = slot.consumer[from].head.load(Ordering::Relaxed) + self.stale(mark) as u64;
        match mark.checked_sub(1).and_then(|at| at.checked_sub(head)) {
            Some(ahead) => Place::Ahead(ahead as usize, mark),
            None => Place::None,
        }
    }

    /// 1 when the next byte is an urgent one that was fetched, and another has come since: then the
    /// former is over, and not read either.
    fn stale(&self, mark: u64) -> usize {
        let taken = self.socket.urgent_taken.load(Ordering::Relaxed);
        let line = &self.peer.segment.slot(self.slot).consumer[1 - self.peer.side];
        let is_next = taken == line.head.load(Ordering::Relaxed) + 1;
        usize::from(is_next && mark != taken)
    }

    /// Whether the urgent byte is read where it stands; a read still stops before it.
    fn is_urgent_in_line(&self) -> bool {
        self.socket.has(sockets::URGENT_IN_LINE)
    }

    fn mark(&self) -> u64 {
        let line = &self.peer.segment.slot(self.slot).producer[1 - self.peer.side];
        line.urgent.load(Ordering::Acquire)
    }

    /// Of so many bytes, those before the mark; all where that is passed, or the urgent byte is read in line.
    #[cold]
    pub fn bytes_to_mark(&self, available: usize) -> usize {
        match self.place() {
            Place::Ahead(ahead, _) if !self.is_urgent_in_line() => available.min(ahead),
            _ => available,
        }
    }

    /// Bytes that a read would find: up to the mark, or after it when the stream stands there.
    #[cold]
    pub fn readable_beside_urgent(&self, available: usize) -> usize {
        let available = available.saturating_sub(self.stale(self.mark()));
        if self.is_urgent_in_line() {
            return available;
        }
        match self.place() {
            Place::Ahead(0, _) => available.saturating_sub(1),
            Place::Ahead(ahead, _) => available.min(ahead),
            Place::None => available,
        }
    }

    /// The part of `available` bytes that one read would take: from where on, and how many.
    #[cold]
    pub fn span_beside_urgent(&self, available: usize) -> (usize, usize) {
        let stale = self.stale(self.mark());
        let (passed, most) = match self.place() {
            Place::Ahead(0, _) if !self.is_urgent_in_line() => (stale + 1, usize::MAX),
            Place::Ahead(ahead, _) if ahead > 0 => (stale, ahead),
            _ => (stale, usize::MAX),
        };
        (passed, available.saturating_sub(passed).min(most))
    }

    /// Whether POLLPRI is to be said.
    #[cold]
    pub fn has_urgent(&self) -> bool {
        let taken = self.socket.urgent_taken.load(Ordering::Relaxed);
        let Place::Ahead(ahead, mark) = self.place() else {
            return false;
        };
        // Its mark comes before the byte, which recv would not find yet.
        let ahead = ahead.saturating_add(self.stale(mark));
        let found = self.inbound().available(ahead.saturating_add(1));
        mark != taken && found.is_ok_and(|found| found > ahead)
    }

    /// Reads up to the mark, or passes over the urgent byte and reads on. The reader's lock is held.
    #[cold]
    pub fn take_beside_urgent(&self, ring: Ring, to: &mut Pieces) -> Result<usize, Broken> {
        let mut part = to.clone();
        part.limit(self.pass_urgent(&ring)?);
        let count = ring.peek(&mut part, 0)?;
        to.skip(count);
        ring.discard(count);
        Ok(count)
    }

    /// Passes over urgent bytes that the stream stands at; how many can be read before the next.
    #[cold]
    pub fn pass_urgent(&self, ring: &Ring) -> Result<usize, Broken> {
        ring.discard(self.stale(self.mark()).min(ring.available(1)?));
        Ok(match self.place() {
            Place::Ahead(0, _) if self.is_urgent_in_line() => usize::MAX,
            Place::Ahead(0, _) if ring.available(1)? > 0 => {
                ring.discard(1);
                usize::MAX
            }
            Place::Ahead(ahead, _) => ahead,
            Place::None => usize::MAX,
        })
    }

    /// Pushes what fits; its last byte is the urgent one. The writer's lock is held.
    pub fn push_urgent(&self, from: &mut Pieces) -> Result<usize, Broken> {
        let ring = self.outbound();
        let count = ring.make_room(from.left())?.min(from.left());
        if count == 0 {
            return Ok(0);
        }
        let mut part = from.clone();
        part.limit(count);
        let line = &self.peer.segment.slot(self.slot).producer[self.peer.side];
        let end = line.tail.load(Ordering::Relaxed).wrapping_add(count as u64);
        line.urgent.store(end, Ordering::Release);
        let known = &self.peer.segment.slot(self.slot).locks[self.peer.side];
        known.has_sent_urgent.store(1, Ordering::Relaxed);
        let pushed = ring.push(&mut part)?;
        from.skip(pushed);
        Ok(pushed)
    }

    /// SIGURG to the process or group that the other side has named with F_SETOWN. The number comes from the
    /// peer, so the signal is sent only where the peer could send it itself.
    pub fn signal_urgent(&self) {
        let slot = self.peer.segment.slot(self.slot);
        let owner = slot.locks[1 - self.peer.side].owner.load(Ordering::Relaxed) as i32;
        let names_somebody = !(-1..=0).contains(&owner);
        if names_somebody && process::settings().share_with == ShareWith::Own {
            let _ = kernel::kill(owner, libc::SIGURG);
        }
    }
}

/// Shows the other side whom the program has named as the owner of `fd`, to send SIGURG to.
pub fn share_owner(fd: i32, socket: &Socket) {
    let number = match signals::owner_of(fd) {
        None => 0,
        Some(Owner::Thread(number) | Owner::Process(number)) => number,
        Some(Owner::Group(number)) => -number,
    };
    let slot = socket.slot.load(Ordering::Relaxed) as usize;
    if let Some(peer) = socket.peer() {
        let place = &peer.segment.slot(slot).locks[peer.side].owner;
        place.store(number as u32, Ordering::Relaxed);
    }
}

/// recv with MSG_OOB.
pub fn receive(fd: i32, to: &mut Pieces, flags: i32) -> Outcome {
    // Asked for before the connection is.
    if table::get(fd).kind() == Kind::Unbound {
        return Outcome::Error(libc::EINVAL);
    }
    let stream = match find(fd) {
        Ok(stream) => stream,
        Err(outcome) => return outcome,
    };
    if stream.is_urgent_in_line() {
        return Outcome::Error(libc::EINVAL);
    }
    stream.reading(|| take(&stream, to, flags)).into()
}

/// The reader's lock is held: a peek writes down how far it has seen, too.
fn take(stream: &Stream, to: &mut Pieces, flags: i32) -> Result<usize, i32> {
    let taken = &stream.socket.urgent_taken;
    let (ahead, mark) = match stream.place() {
        Place::Ahead(ahead, mark) if mark != taken.load(Ordering::Relaxed) => (ahead, mark),
        _ => return Err(libc::EINVAL),
    };
    // The mark is the peer's word: a wild one lies beyond everything that is there.
    let ahead = ahead.saturating_add(stream.stale(mark));
    match stream.inbound().available(ahead.saturating_add(1)) {
        Ok(available) if available > ahead => {}
        Ok(_) => return Err(libc::EAGAIN),
        Err(_) => return Err(libc::ECONNRESET),
    }
    if flags & libc::MSG_PEEK == 0 {
        taken.store(mark, Ordering::Relaxed);
    }
    to.limit(1);
    let peeked = stream.inbound().peek(to, ahead);
    peeked.map_err(|_| libc::ECONNRESET)
}

/// SIOCATMARK.
pub fn is_at_mark(stream: &Stream) -> bool {
    matches!(stream.place(), Place::Ahead(0, _))
}
