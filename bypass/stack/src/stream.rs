//! Bytes on a connection: read, write, shutdown, close, with the results that TCP gives.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::sync::Arc;

use bypass_shm::layout::{CLOSED, FIN, RST};
use bypass_shm::lock;
use bypass_shm::ring::{Broken, Pieces, Ring};
use bypass_shm::stats::{Counter, Reason};
use bypass_shm::sys as kernel;

use crate::peer::{Bell, Peer};
use crate::sockets::{self, Socket};
use crate::sys::thread;
use crate::table::{self, Entry, Kind};
use crate::wait::{self, Deadline, For};
use crate::{process, sole, Outcome};

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
        Kind::Epoll | Kind::Kernel => return Err(Outcome::Kernel),
    }
    of_socket(entry.index())
        .filter(|stream| stream.life == entry.generation())
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
        life,
    })
}

/// Why nobody else reads, or writes, until it is dropped.
enum Right {
    /// No other thread uses sockets.
    Sole(#[allow(dead_code, reason = "held, not read")] sole::Inside<'static>),
    Lock(#[allow(dead_code, reason = "held, not read")] lock::Guard<'static>),
}

/// What came of one attempt.
enum Attempt {
    Done(usize),
    Failed(i32),
    Blocked,
}

impl From<Broken> for Attempt {
    fn from(_: Broken) -> Self {
        Self::Failed(libc::ECONNRESET)
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
    /// is told that room is wanted, and it is looked for once more; the length may still be 0.
    pub fn hole(&self, wanted: usize) -> Result<(*mut u8, usize), i32> {
        let ring = self.outbound();
        let look = || ring.hole(wanted).map_err(|_| libc::ECONNRESET);
        let found = look()?;
        if found.1 > 0 {
            return Ok(found);
        }
        ring.want_space();
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
        line.ends.load(Ordering::Acquire)
    }

    fn lock(&self, what: For) -> Result<Right, i32> {
        // Other processes that hold the end know nothing of our threads.
        if let Some(inside) = sole::enter().filter(|_| !self.socket.has(sockets::SHARED)) {
            return self.if_alive(Right::Sole(inside));
        }
        let place = self.peer.segment.slot(self.slot);
        let locks = &place.locks[self.peer.side];
        let word = match what {
            For::Bytes => &locks.read,
            For::Room => &locks.write,
        };
        let guard = lock::take(word, thread().tid()).ok_or(libc::ECONNRESET)?;
        self.if_alive(Right::Lock(guard))
    }

    #[inline]
    fn if_alive(&self, right: Right) -> Result<Right, i32> {
        if self.socket.life() == self.life {
            Ok(right)
        } else {
            Err(libc::EBADF)
        }
    }

    /// The program has to be told of a reset once; afterwards the stream is simply over.
    fn tell_reset(&self) -> Option<i32> {
        if self.socket.has(sockets::RESET_TOLD) {
            return None;
        }
        self.socket.set(sockets::RESET_TOLD, true);
        Some(libc::ECONNRESET)
    }

    /// The peer has forged its cursors: nothing it says counts any more.
    #[cold]
    fn condemn(&self) {
        process::fall_back(Reason::PeerProtocol);
        let place = self.peer.segment.slot(self.slot);
        place.producer[1 - self.peer.side]
            .ends
            .fetch_or(RST | CLOSED, Ordering::SeqCst);
        place.producer[self.peer.side]
            .ends
            .fetch_or(RST, Ordering::SeqCst);
    }

    /// Whether a read would not block.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.inbound_ends() != 0 || self.has_bytes() || self.socket.has(sockets::SHUT_READ)
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
        let has_room = || ring.has_room(ring.size() / 3);
        let is_roomy = has_room() || {
            // Whoever looks for room and finds none is told when there is.
            ring.want_space();
            has_room()
        };
        is_roomy
            || self.inbound_ends() & (CLOSED | RST) != 0
            || self.socket.has(sockets::SHUT_WRITE)
    }

    fn attempt_read(&self, to: &mut Pieces, flags: i32) -> Attempt {
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

    /// Counts what was written and tells the other side.
    pub fn publish(&self, count: usize) {
        process::count(Counter::Writes, 1);
        process::count(Counter::BytesOut, count as u64);
        if let Some(row) = process::stats().and_then(|stats| stats.row_quick(self.index)) {
            let sum = row.bytes_out.load(Ordering::Relaxed) + count as u64;
            row.bytes_out.store(sum, Ordering::Relaxed);
        }
        let news = self.outbound().count_news();
        self.peer.ring(self.slot, Bell::News(news));
    }

    /// Why nothing can be written, if so. Done(()) means: the bytes vanish, as on the way to a
    /// peer that has closed and will answer with a reset.
    pub fn check_writable(&self) -> Result<Option<()>, i32> {
        if self
            .socket
            .has(sockets::SHUT_WRITE | sockets::WROTE_TO_CLOSED)
        {
            return Err(libc::EPIPE);
        }
        let ends = self.inbound_ends();
        if ends & RST != 0 {
            return Err(self.tell_reset().unwrap_or(libc::EPIPE));
        }
        if ends & CLOSED != 0 {
            self.socket.set(sockets::WROTE_TO_CLOSED, true);
            self.peer.ring_ourselves(self.slot);
            return Ok(Some(()));
        }
        Ok(None)
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

    fn attempt_write(&self, from: &mut Pieces, flags: i32) -> Attempt {
        self.peer.expect_ringing(self.slot);
        self.socket.has_answered.store(1, Ordering::Relaxed);
        let _guard = match self.lock(For::Room) {
            Ok(guard) => guard,
            Err(error) => return Attempt::Failed(error),
        };
        match self.check_writable() {
            Err(error) => return Attempt::Failed(error),
            Ok(Some(())) => return Attempt::Done(from.left()),
            Ok(None) => {}
        }
        let ring = self.outbound();
        // Behind a loan that is not read yet a mark would be in the wrong place.
        let is_urgent = flags & libc::MSG_OOB != 0 && ring.lent_bytes() == 0;
        let mut pushed = if is_urgent {
            self.push_urgent(from)
        } else {
            ring.push(from)
        };
        if from.left() > 0 && pushed.is_ok() {
            // Full: ask for a ring, and look once more in case the reader was faster.
            process::count(Counter::RingFull, 1);
            ring.want_space();
            pushed = pushed.and_then(|first| Ok(first + ring.push(from)?));
        }
        match pushed {
            Err(broken) => {
                self.condemn();
                broken.into()
            }
            Ok(0) => Attempt::Blocked,
            Ok(count) => {
                self.publish(count);
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

    /// Blocks until ready or over; EAGAIN at the timeout, EINTR after a signal.
    pub fn block(&self, what: For, deadline: Deadline) -> Result<(), i32> {
        let settings = process::settings();
        let before = wait::interrupts();
        let is_on = match what {
            For::Bytes => settings.tcp_recv_spin,
            For::Room => settings.tcp_send_spin,
        };
        let ready = || match what {
            For::Bytes => self.is_readable(),
            For::Room => self.is_writable(),
        };
        let spin_ns = if is_on { settings.spin_usec * 1000 } else { 0 };
        if wait::spin(spin_ns, deadline, ready) {
            return Ok(());
        }
        if wait::interrupts() != before {
            return Err(libc::EINTR);
        }
        if deadline.left() == Some(Duration::ZERO) {
            return Err(libc::EAGAIN);
        }
        let peer = self.socket.share_peer().ok_or(libc::EBADF)?;
        let ready = || ready() || self.socket.life() != self.life;
        match wait::sleep_on(&peer, self.slot, what, deadline, ready) {
            // The handler wants the call to go on.
            Err(libc::EINTR) if wait::interrupts() == before => Ok(()),
            other => other,
        }
    }
}

/// Keeps a connection that a blocked call works on: closing the number, or dup2 over it, leaves the
/// call its stream, as a file in use stays open in the kernel.
struct Hold(Stream);

impl Hold {
    fn take(stream: Stream) -> Self {
        stream.socket.descriptors.fetch_add(1, Ordering::AcqRel);
        Self(stream)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        crate::descriptors::let_go(self.0.index);
    }
}

/// The stream of a call: the one it is blocked on, or what `fd` means now.
fn current(fd: i32, held: &Option<Hold>) -> Result<Stream, Outcome> {
    held.as_ref().map_or_else(|| find(fd), |hold| Ok(hold.0))
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

/// write and its relatives.
#[inline]
pub fn write(fd: i32, from: &mut Pieces, flags: i32) -> Outcome {
    let wanted = from.left();
    let mut deadline = None;
    let mut held = None;
    let mut done = 0;
    loop {
        let stream = match current(fd, &held) {
            Ok(stream) => stream,
            Err(Outcome::Error(libc::ENOTCONN)) => return broken_pipe(libc::EPIPE, flags),
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
        let error = match stream.attempt_write(from, flags) {
            Attempt::Done(count) => {
                done += count;
                if done == wanted || is_nonblocking(&stream, flags) {
                    return Outcome::Done(done as isize);
                }
                continue;
            }
            Attempt::Failed(error) => error,
            Attempt::Blocked if is_nonblocking(&stream, flags) => libc::EAGAIN,
            Attempt::Blocked => {
                let timeout_ns = stream.socket.send_timeout_ns.load(Ordering::Relaxed);
                let deadline = *deadline.get_or_insert_with(|| timeout(timeout_ns));
                held.get_or_insert_with(|| Hold::take(stream));
                match stream.block(For::Room, deadline) {
                    Ok(()) => continue,
                    Err(error) => error,
                }
            }
        };
        if done > 0 {
            return Outcome::Done(done as isize);
        }
        return broken_pipe(error, flags);
    }
}

/// EPIPE comes with a signal unless the caller does not want it.
pub fn broken_pipe(error: i32, flags: i32) -> Outcome {
    if error == libc::EPIPE && flags & libc::MSG_NOSIGNAL == 0 {
        let process = kernel::getpid().unwrap_or(0) as i32;
        let _ = kernel::tgkill(process, thread().tid() as i32, libc::SIGPIPE);
    }
    Outcome::Error(error)
}

/// Asked only where a call would block.
pub fn is_nonblocking(stream: &Stream, flags: i32) -> bool {
    if flags & libc::MSG_DONTWAIT != 0 {
        return true;
    }
    if stream.socket.has(sockets::SHARED) {
        return stream.shared_flags().load(Ordering::Relaxed) & libc::O_NONBLOCK as u32 != 0;
    }
    stream.socket.has(sockets::NONBLOCK)
}

impl Stream {
    /// The file's flags, once several processes hold the end.
    pub fn shared_flags(&self) -> &'static AtomicU32 {
        &self.peer.segment.slot(self.slot).locks[self.peer.side].flags
    }
}

/// A socket's timeout; 0 is none.
pub fn timeout(timeout_ns: u64) -> Deadline {
    Deadline::after((timeout_ns > 0).then(|| Duration::from_nanos(timeout_ns)))
}

/// shutdown(2).
pub fn shutdown(fd: i32, how: i32) -> Outcome {
    let stream = match find(fd) {
        Ok(stream) => stream,
        Err(outcome) => return outcome,
    };
    if !(libc::SHUT_RD..=libc::SHUT_RDWR).contains(&how) {
        return Outcome::Error(libc::EINVAL);
    }
    let ends = stream.inbound_ends();
    let is_over = ends & FIN != 0 && stream.socket.has(sockets::SHUT_WRITE);
    if is_over || ends & RST != 0 || stream.socket.has(sockets::WROTE_TO_CLOSED) {
        return Outcome::Error(libc::ENOTCONN);
    }
    if how != libc::SHUT_WR {
        stream.socket.set(sockets::SHUT_READ, true);
    }
    if how != libc::SHUT_RD && !stream.socket.has(sockets::SHUT_WRITE) {
        stream.socket.set(sockets::SHUT_WRITE, true);
        let place = stream.peer.segment.slot(stream.slot);
        // Not before a writer has published what it is writing.
        let guard = stream.lock(For::Room);
        place.producer[stream.peer.side]
            .ends
            .fetch_or(FIN, Ordering::SeqCst);
        drop(guard);
        stream.peer.ring(stream.slot, Bell::Bytes);
    }
    stream.peer.ring_ourselves(stream.slot);
    Outcome::Done(0)
}

/// connect(2) to AF_UNSPEC: resets the connection; its descriptors are unconnected sockets again,
/// whose next call says ECONNRESET.
pub fn dissolve(fd: i32, entry: Entry) -> Outcome {
    let socket = sockets::get(entry.index());
    socket.linger_s.store(0, Ordering::Relaxed);
    let had_linger = socket.has(sockets::LINGER);
    socket.set(sockets::LINGER, true);
    crate::epoll::forget(entry.index());
    end(entry.index());
    socket.set(sockets::LINGER, had_linger);
    let gone = sockets::SHUT_READ | sockets::SHUT_WRITE | sockets::WROTE_TO_CLOSED;
    socket.set(
        gone | sockets::RESET_TOLD | sockets::CONNECTING | sockets::SHARED,
        false,
    );
    socket.set(sockets::DISSOLVED, true);
    let fresh = Entry::new(Kind::Unbound, entry.index(), socket.life());
    if socket.descriptors.load(Ordering::Relaxed) == 1 {
        table::replace(fd, entry, fresh);
    } else {
        for fd in 0..table::NUMBERS_MAX as i32 {
            table::replace(fd, entry, fresh);
        }
    }
    Outcome::Done(0)
}

/// What is said on a socket without connection.
#[cold]
fn unconnected(entry: Entry) -> Outcome {
    let socket = sockets::get(entry.index());
    if entry.kind() == Kind::Unbound && socket.has(sockets::DISSOLVED) {
        socket.set(sockets::DISSOLVED, false);
        return Outcome::Error(libc::ECONNRESET);
    }
    Outcome::Error(libc::ENOTCONN)
}

/// The last descriptor of a connection is closed: ends the stream as TCP does.
pub fn end(index: usize) {
    let Some(stream) = of_socket(index) else {
        return;
    };
    let socket = stream.socket;
    let place = stream.peer.segment.slot(stream.slot);
    // No reader or writer is under way once both were ours; later ones see another generation.
    let reader = stream.lock(For::Bytes);
    let writer = stream.lock(For::Room);
    socket.generation.fetch_add(1, Ordering::AcqRel);
    let unread = stream.inbound().available(usize::MAX).unwrap_or(1) > 0;
    let is_abort = socket.has(sockets::LINGER) && socket.linger_s.load(Ordering::Relaxed) == 0;
    let ends = if unread || is_abort { RST | FIN } else { FIN };
    if ends & RST != 0 {
        process::count(Counter::Resets, 1);
    }
    stream.peer.set_socket(stream.slot, None);
    place.meta.lane[stream.peer.side].store(0, Ordering::SeqCst);
    drop((reader, writer));
    stream.peer.ring_ourselves(stream.slot);
    stream.peer.let_go(stream.slot, ends);
    process::count(Counter::Closes, 1);
    retire(socket.peer.take());
}

/// Keeps a segment mapped for those who may still look.
pub fn retire(peer: Option<Arc<Peer>>) {
    if let Some(peer) = peer {
        crate::peer::retire(peer);
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

/// Bytes that the other side has not read (SIOCOUTQ).
pub fn unsent_bytes(stream: &Stream) -> usize {
    let ring = stream.outbound();
    ring.unread() + ring.lent_bytes()
}
