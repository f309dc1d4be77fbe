//! Bytes on a connection, with the results that TCP gives: what reading, writing and ending share.

use core::sync::atomic::{AtomicU32, Ordering};

use bypass_shm::layout::{CLOSED, FIN, RST, SHUT};
use bypass_shm::ring::{Broken, Ring};
use bypass_sys::sandbox::is_confined;
use bypass_sys::thread::thread;
use bypass_sys::{kernel, lock};

use crate::peer::Peer;
use crate::process::table::{self, Entry, Kind};
use crate::process::{sole, Outcome};
use crate::sockets::{self, Event, Socket};

mod attaching;
mod capturing;
pub mod content;
mod ending;
mod holding;
mod lending;
mod readiness;
mod reading;
mod transport;
pub mod urgent;
mod writing;

pub use attaching::{attach, revive, share_buffers, share_linger};
pub use capturing::{opened as show_opened, By};
pub use ending::{alone_with, end, end_with_shadow, retire, Lingering};
pub use holding::{announce_held_back, index_of, named};
pub use lending::send as lend;
pub use readiness::{readiness, readiness_of, ALWAYS};
pub use reading::{bytes_to_mark, readable_bytes};
pub use writing::{unsent_bytes, PIECE};

/// What a blocked call waits for on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// Bytes or their end.
    Bytes,
    /// Space.
    Room,
}

/// A connection that an operation works on.
#[derive(Clone, Copy)]
pub struct Stream {
    /// Number of the socket object.
    pub index: usize,
    /// The object.
    pub socket: &'static Socket,
    /// Its segment; see [`find`] for how long it may be used.
    pub peer: &'static Peer,
    /// Its slot.
    pub slot: usize,
    /// The descriptor that it was found by; −1 where it was found otherwise.
    fd: i32,
    life: u32,
}

/// The connection behind `fd`. Segments of closed sockets stay mapped for seconds, far longer than
/// an operation that does not sleep; one that sleeps takes a reference.
#[inline]
pub fn find(fd: i32) -> Result<Stream, Outcome> {
    let entry = table::get(fd);
    match entry.kind() {
        Kind::Connected => {}
        Kind::Unbound | Kind::Listener => return Err(unconnected(entry)),
        Kind::Pooled | Kind::Internal => return Err(Outcome::Error(libc::EBADF)),
        Kind::Epoll | Kind::Kernel | Kind::Datagram => return Err(Outcome::Kernel),
    }
    of_socket(entry.index())
        .filter(|stream| stream.life == entry.generation())
        .map(|stream| Stream { fd, ..stream })
        .ok_or_else(|| {
            if table::get(fd) == entry {
                Outcome::Error(libc::EBADF)
            } else {
                Outcome::Kernel
            }
        })
}

/// The connection of socket object `index`.
#[inline]
pub fn of_socket(index: usize) -> Option<Stream> {
    let socket = sockets::get(index);
    let life = socket.life();
    let slot = socket.slot.load(Ordering::Relaxed) as usize;
    Some(Stream {
        index,
        socket,
        peer: socket.peer()?,
        slot,
        fd: -1,
        life,
    })
}

/// What is said on a socket without connection.
#[cold]
fn unconnected(entry: Entry) -> Outcome {
    let socket = sockets::get(entry.index());
    if entry.kind() == Kind::Unbound && socket.take_dissolved() {
        return Outcome::Error(libc::ECONNRESET);
    }
    Outcome::Error(libc::ENOTCONN)
}

/// Why no other thread reads, or writes, until it is dropped.
enum Right {
    /// No other thread uses sockets.
    Sole(#[allow(dead_code, reason = "held, not read")] sole::Inside<'static>),
    /// Among the threads of this process, and, taken after it, among the processes that hold the connection.
    #[allow(dead_code, reason = "held, not read")]
    Locks(Option<lock::Guard<'static>>, lock::Guard<'static>),
}

/// The result of one attempt.
pub enum Attempt {
    /// So many bytes have moved.
    Done(usize),
    /// errno.
    Failed(i32),
    /// Not now.
    Blocked,
    /// Nothing can be written before a process of another network namespace takes the connection, or the kernel gets it.
    Undecided,
}

impl From<Broken> for Attempt {
    fn from(_: Broken) -> Self {
        Self::Failed(libc::ECONNRESET)
    }
}

/// No process of the other side is left: an end that one of them wrote is not taken back by who maps the memory still.
#[cold]
fn after_the_last(ends: u32) -> u32 {
    match ends & (FIN | RST) {
        0 => ends | FIN | CLOSED,
        _ => ends | CLOSED,
    }
}

impl Stream {
    /// Bytes from the other side.
    #[inline]
    pub fn inbound(&self) -> Ring<'static> {
        self.peer.segment.ring(self.slot, 1 - self.peer.side)
    }

    /// Bytes to the other side.
    #[inline]
    pub fn outbound(&self) -> Ring<'static> {
        self.peer.segment.ring(self.slot, self.peer.side)
    }

    /// A place for at most `wanted` outgoing bytes that lie together. Where there is none, the reader
    /// is notified that room is wanted, and it is looked for once more; the length may still be 0.
    pub fn hole(&self, wanted: usize) -> Result<(*mut u8, usize), i32> {
        let ring = self.outbound();
        let look = || ring.hole(wanted).map_err(|_| libc::ECONNRESET);
        let found = look()?;
        if found.1 > 0 {
            return Ok(found);
        }
        self.want_room(&ring);
        look()
    }

    /// Whether a byte of ours was ever sent with MSG_OOB.
    #[inline]
    pub fn has_sent_urgent(&self) -> bool {
        let known = &self.peer.segment.slot(self.slot).locks[self.peer.side];
        known.has_sent_urgent.load(Ordering::Relaxed) != 0
    }

    /// How the other side's direction has ended, if it has.
    #[inline]
    pub fn inbound_ends(&self) -> u32 {
        let line = &self.peer.segment.slot(self.slot).producer[1 - self.peer.side];
        let ends = line.ends.load(Ordering::Acquire);
        if ends != 0 && self.socket.has(sockets::OPENING) {
            return self.decided_ends(ends);
        }
        if self.peer.has_lost_others.load(Ordering::Relaxed) {
            return after_the_last(ends);
        }
        ends
    }

    /// What a process says that was refused the connection does not count.
    #[cold]
    fn decided_ends(&self, ends: u32) -> u32 {
        match self.socket.is_undecided() {
            true => 0,
            false => ends,
        }
    }

    fn lock(&self, what: For) -> Result<Right, i32> {
        // Other processes that hold the end know nothing of our threads.
        if let Some(inside) = sole::enter().filter(|_| !self.socket.has(sockets::SHARED)) {
            return self.if_alive(Right::Sole(inside));
        }
        self.take_locks(what)
    }

    /// Runs `work` while no thread writes, within [`sole::visit`]: every thread takes locks during a visit, and the
    /// ownership, which comes back after it, must not be waited for.
    pub fn visiting_writer(&self, work: impl FnOnce()) {
        if let Ok(_right) = self.take_locks(For::Room) {
            work();
        }
    }

    fn take_locks(&self, what: For) -> Result<Right, i32> {
        let shared = &self.peer.segment.slot(self.slot).locks[self.peer.side];
        let (own, shared) = match what {
            For::Bytes => (&self.socket.reading, &shared.read),
            For::Room => (&self.socket.writing, &shared.write),
        };
        let take = |word| lock::take(word, thread().tid()).ok_or(libc::ECONNRESET);
        let own = take(own)?;
        // Asked with the first one held: whoever shares the connection holds both ways of it meanwhile.
        let shared = self.socket.has(sockets::SHARED).then(|| take(shared));
        self.if_alive(Right::Locks(shared.transpose()?, own))
    }

    /// From now on other processes hold the connection too, or may. No thread reads or writes meanwhile.
    pub fn begin_sharing(&self) {
        let _guards = (self.lock(For::Bytes), self.lock(For::Room));
        let shut = self.socket.flags.load(Ordering::Relaxed) & sockets::SHUT;
        self.shared_shut().store(shut, Ordering::SeqCst);
        self.socket.set(sockets::SHARED, true);
    }

    /// Whether the socket is still the connection that was found.
    #[inline]
    pub fn is_alive(&self) -> bool {
        self.socket.life() == self.life
    }

    #[inline]
    fn if_alive(&self, right: Right) -> Result<Right, i32> {
        if self.is_alive() {
            Ok(right)
        } else {
            Err(libc::EBADF)
        }
    }

    /// The program receives the error of a reset once; afterwards the stream is simply over.
    fn tell_reset(&self) -> Option<i32> {
        if self.socket.has(sockets::RESET_TOLD) {
            return None;
        }
        self.socket.set(sockets::RESET_TOLD, true);
        attaching::describe_end(self.index, self.shut_flags());
        self.show_reset(By::Peer);
        Some(self.failure())
    }

    /// The error of a reset, which a call has taken and could not return, is yet to be reported.
    pub fn keep_reset(&self, error: i32) {
        let is_resets = !matches!(error, libc::EAGAIN | libc::EINTR | libc::EFAULT);
        if is_resets && self.socket.has(sockets::RESET_TOLD) {
            self.socket.error.store(error as u32, Ordering::SeqCst);
            self.socket.set(sockets::RESET_TOLD, false);
        }
    }

    /// The error of a reset that the program has not received yet; also of one that a write to a closed peer has caused.
    pub fn take_reset(&self) -> Option<i32> {
        let is_reset = self.inbound_ends() & RST != 0 || self.is_shut(sockets::WROTE_TO_CLOSED);
        is_reset.then(|| self.tell_reset()).flatten()
    }

    /// Whether a read would not block.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.inbound_ends() != 0 || self.has_bytes() || self.is_shut(sockets::SHUT_READ)
    }

    /// Whether a read would find as many bytes as SO_RCVLOWAT demands.
    #[inline]
    pub fn has_enough(&self) -> bool {
        if !self.socket.has(sockets::LOW_WATER) {
            return self.has_bytes();
        }
        let low_water = self.socket.low_water.load(Ordering::Relaxed) as usize;
        readable_bytes(self) >= low_water
    }

    /// Whether a read would find bytes.
    #[inline]
    pub fn has_bytes(&self) -> bool {
        let available = self.inbound().available(1).unwrap_or(1);
        available > 0
            && (!self.was_urgent() || {
                let all = self.inbound().available(2).unwrap_or(2);
                self.readable_beside_urgent(all) > 0
            })
    }

    /// Whether a write would not block, by the kernel's measure: a third is free.
    #[inline]
    pub fn is_writable(&self) -> bool {
        let ring = self.outbound();
        let is_roomy = ring.is_roomy() || {
            // A caller that looks for room and finds none is notified when there is some.
            self.want_room(&ring);
            ring.is_roomy()
        };
        if is_roomy {
            return !self.socket.is_in_progress();
        }
        self.inbound_ends() & (CLOSED | RST | SHUT) != 0 || self.is_shut(sockets::SHUT_WRITE)
    }

    /// Asks the reader to ring when it has made room, and for a signal if the program has asked for those.
    #[inline]
    pub fn want_room(&self, ring: &Ring) {
        if self.socket.has(sockets::ASYNC) {
            self.socket.set(sockets::AWAITS_ROOM, true);
        }
        ring.want_space();
    }

    /// Whether the connection was shut down so (`SHUT_READ`, `SHUT_WRITE`, `WROTE_TO_CLOSED`), by this
    /// process or by another that holds the end too.
    #[inline]
    pub fn is_shut(&self, how: u32) -> bool {
        self.shut_flags() & how != 0
    }

    /// The socket's flags, with what others that hold the end have shut down.
    #[inline]
    pub fn shut_flags(&self) -> u32 {
        let flags = self.socket.flags.load(Ordering::Relaxed);
        if flags & sockets::SHARED == 0 {
            return flags;
        }
        flags | self.shared_shut().load(Ordering::Relaxed) & sockets::SHUT
    }

    /// See [`is_shut`](Self::is_shut).
    pub fn set_shut(&self, how: Event) {
        if self.socket.change(how) {
            self.share_shut(self.socket.flags.load(Ordering::Relaxed) & sockets::SHUT);
            attaching::describe_end(self.index, self.shut_flags());
        }
    }

    /// Bytes were written to a peer that had closed.
    pub fn wrote_to_closed(&self) {
        self.socket.set(sockets::WROTE_TO_CLOSED, true);
        self.share_shut(sockets::WROTE_TO_CLOSED);
        attaching::describe_end(self.index, self.shut_flags());
    }

    fn share_shut(&self, how: u32) {
        if self.socket.has(sockets::SHARED) {
            self.shared_shut().fetch_or(how, Ordering::SeqCst);
        }
    }

    /// The directions that the processes that hold the end have shut down.
    fn shared_shut(&self) -> &'static AtomicU32 {
        &self.peer.segment.slot(self.slot).locks[self.peer.side].shut
    }
}

/// Asked only where a call would block.
pub fn is_nonblocking(stream: &Stream, flags: i32) -> bool {
    if flags & libc::MSG_DONTWAIT != 0 {
        return true;
    }
    if !stream.socket.has(sockets::SHARED) {
        return stream.socket.has(sockets::NONBLOCK);
    }
    is_file_nonblocking(stream.index, stream.fd)
}

/// O_NONBLOCK of a connection that other processes hold too, which may have changed it. `fd` is one of its descriptors,
/// as far as one is known.
#[cold]
pub fn is_file_nonblocking(index: usize, fd: i32) -> bool {
    let socket = sockets::get(index);
    let entry = socket.entry(index);
    let fd = Some(fd).filter(|fd| table::get(*fd) == entry);
    let fd = fd.or_else(|| table::all(entry).next());
    // A confined process may not ask; it has noted the flag before.
    let flags = fd.filter(|_| !is_confined());
    let flags = flags.and_then(|fd| kernel::fcntl(fd, libc::F_GETFL, 0).ok());
    flags.map_or(socket.has(sockets::NONBLOCK), |flags| {
        flags as i32 & libc::O_NONBLOCK != 0
    })
}
