//! Connections that the kernel has made to a server of another network namespace, and that none of its processes has taken yet.
//!
//! A process takes them from memory when it accepts. The service thread looks for connections that none has taken in time: they
//! are withdrawn, and the program goes on with the kernel's connection, in its epoll sets, too. No byte can be lost, as
//! none is written before.

use core::cell::Cell;
use core::sync::atomic::{fence, AtomicBool, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bypass_shm::layout::{CLOSED, RST};
use bypass_stats::{About, Call, Counter, Reason};
use bypass_sys::clock::now_ns;
use bypass_sys::kernel;

use super::{known, Met, Target};
use crate::operations::release::Hold;
use crate::operations::shadow;
use crate::peer::{self, Peer};
use crate::process::deadline::Deadline;
use crate::process::table::{self, Entry, Kind};
use crate::process::{self, later, Outcome};
use crate::sockets::{self, Event};
use crate::stream::{self, is_nonblocking, For, Stream};
use crate::wait::blocking::block_until;
use crate::wait::epoll;

/// How long a process may take to accept a connection.
const TAKEN_NS: u64 = 100_000_000;
/// Between looks of the service thread.
const LOOK: Duration = Duration::from_millis(50);
/// Between looks of a thread that waits for one.
const WAIT: Duration = Duration::from_millis(1);

/// The directions that the program has shut down already, as shutdown(2) names it.
const SHUT: [(u32, i32); 2] = [
    (sockets::SHUT_READ, libc::SHUT_RD),
    (sockets::SHUT_WRITE, libc::SHUT_WR),
];

/// There may be some.
static IS_DUE: AtomicBool = AtomicBool::new(false);

/// One begins.
pub(super) fn begin() {
    fence(Ordering::SeqCst);
    if !IS_DUE.load(Ordering::SeqCst) && !IS_DUE.swap(true, Ordering::SeqCst) {
        later::wake();
    }
}

/// The connections that the service thread has seen.
#[derive(Debug, Default)]
pub struct Undecided {
    /// Since when, by socket and life.
    since_ns: HashMap<(usize, u32), u64>,
    next_ns: u64,
}

impl Undecided {
    /// Looks, gives up connections that no process has taken in time, and counts the ones that a process has taken. When to
    /// look again; None: not before [another](begin).
    pub fn look(&mut self) -> Option<Duration> {
        if !IS_DUE.load(Ordering::SeqCst) {
            return None;
        }
        let now = now_ns();
        if now < self.next_ns {
            return Some(Duration::from_nanos(self.next_ns - now));
        }
        self.next_ns = now + LOOK.as_nanos() as u64;
        let mut all = all();
        if all.is_empty() {
            IS_DUE.store(false, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            // One may have begun since the look, and found that this is due.
            all = self::all();
            IS_DUE.fetch_or(!all.is_empty(), Ordering::SeqCst);
        }
        let before = std::mem::take(&mut self.since_ns);
        for one in all {
            if !sockets::get(one.0).is_undecided() {
                let _ = stream::alone_with(one.0, one.1, Stream::is_opening);
                continue;
            }
            let since = before.get(&one).copied().unwrap_or(now);
            if now - since < TAKEN_NS {
                self.since_ns.insert(one, since);
            } else {
                give_up(one.0, one.1);
            }
        }
        Some(LOOK)
    }
}

fn all() -> Vec<(usize, u32)> {
    let mut all = Vec::new();
    sockets::each(|index, socket| {
        let life = socket.life();
        if socket.is_begun_across() {
            all.push((index, life));
        }
    });
    all
}

/// Whether `fd` is one.
pub fn is_undecided(fd: i32) -> bool {
    let entry = table::get(fd);
    entry.kind() == Kind::Connected && sockets::get(entry.index()).is_undecided()
}

/// Waits until connections are decided that are about to be another process's, or have no service thread any more.
pub fn settle(fds: impl Iterator<Item = i32>) {
    let end_ns = now_ns() + TAKEN_NS;
    for fd in fds {
        let entry = table::get(fd);
        while table::get(fd) == entry && is_undecided(fd) {
            if now_ns() > end_ns {
                give_up(entry.index(), entry.generation());
                break;
            }
            let _ = kernel::poll(&mut [], Some(WAIT), None);
        }
    }
}

/// Whether a call that has found a connection undecided waits until it is decided: one that may block does, and every
/// write after a connect that has returned, as the kernel takes its bytes at once.
pub fn may_wait_for_taker(stream: &Stream, what: For, flags: i32) -> bool {
    let takes_bytes = what == For::Room && !stream.socket.is_in_progress();
    takes_bytes || !is_nonblocking(stream, flags)
}

/// Waits until the connection behind `fd` is decided.
pub fn await_taker(fd: i32) {
    let (entry, end_ns) = (table::get(fd), now_ns() + TAKEN_NS);
    while table::get(fd) == entry && is_undecided(fd) {
        let Ok(stream) = stream::find(fd) else {
            return; // closed
        };
        let left_ns = end_ns.saturating_sub(now_ns());
        if left_ns == 0 {
            return give_up(entry.index(), entry.generation());
        }
        // One for each wait: a signal does not end the call.
        let deadline = Deadline::after(Some(Duration::from_nanos(left_ns)));
        let is_decided = || !stream.socket.is_undecided();
        let _ = block_until(&stream, For::Room, (deadline, false), is_decided);
    }
}

/// The connection behind `fd`, for a call that keeps it: decided, if the call [waits](may_wait_for_taker) for that.
pub fn find_decided(fd: i32, what: For) -> Result<Stream, Outcome> {
    loop {
        let found = stream::find(fd)?;
        if !found.socket.is_undecided() || !may_wait_for_taker(&found, what, 0) {
            return Ok(found);
        }
        await_taker(fd);
    }
}

/// The kernel gets the connection of socket `index`, in its life `life`, unless a process has taken it.
pub fn give_up(index: usize, life: u32) {
    let socket = sockets::get(index);
    let found = stream::of_socket(index).zip(socket.share_peer());
    // Not one that is being closed, which withdraws it.
    let Some((_held, peer)) = found.and_then(|(stream, peer)| Some((Hold::take(stream)?, peer)))
    else {
        return;
    };
    let target = socket.remote.load();
    // A fork waits, so that its child has it in memory or in the kernel.
    let making = peer::making();
    let is_given = stream::alone_with(index, life, |stream| {
        // Another process that has it too may have withdrawn it.
        let number = socket.mark.load(Ordering::Relaxed);
        let is_untaken =
            || peer.take_offer_back(stream.slot) || peer.refuse_taker(stream.slot, number);
        // A call may wait whose last number is closed: it waits on.
        let numbers: Vec<i32> = table::all(socket.entry(index)).collect();
        let is_late = !numbers.is_empty() && socket.is_undecided() && is_untaken();
        if is_late {
            hand_over(stream, &numbers, target);
        }
        is_late
    });
    drop(making);
    if is_given == Some(true) {
        avoid(target, &peer);
    }
}

/// By a thread that is alone with the connection, of which no other process takes the slot any more.
fn hand_over(stream: &Stream, numbers: &[i32], target: SocketAddr) {
    let (index, socket, fd) = (stream.index, stream.socket, numbers[0]);
    let entry = socket.entry(index);
    let reason = Reason::NotRecognised;
    let about = About {
        call: Call::Connect,
        fd,
        address: Some(target),
        has_failed: false,
    };
    if process::must_fail(reason) {
        process::refuse(reason, about);
        shadow::disconnect(fd);
        return fail(stream, libc::EOPNOTSUPP);
    }
    process::count(Counter::ConnectsKernel, 1);
    process::leave_to_kernel(reason, about);
    // The program may close a number meanwhile, and open something else under it.
    let own = || numbers.iter().find(|fd| table::get(**fd) == entry);
    if let Some(fd) = own() {
        shadow::apply_again(*fd, socket);
    }
    for (flag, how) in SHUT {
        if let Some(fd) = own().filter(|_| socket.has(flag)) {
            let _ = kernel::shutdown(*fd, how);
        }
    }
    let left = Cell::new(0);
    epoll::move_to_kernel(index, || {
        let is_left = |fd: &&i32| table::replace(**fd, entry, Entry::KERNEL);
        left.set(left.get() + numbers.iter().filter(is_left).count() as u32);
    });
    socket.descriptors.fetch_sub(left.get(), Ordering::AcqRel);
    stream.leave();
}

/// Connect has failed, for the program.
fn fail(stream: &Stream, error: i32) {
    let ends = &stream.peer.segment.slot(stream.slot).producer[1].ends;
    stream.socket.error.store(error as u32, Ordering::SeqCst);
    stream.socket.change(Event::Refuse);
    ends.fetch_or(RST | CLOSED, Ordering::SeqCst);
    stream.peer.ring_ourselves(stream.slot);
}

/// The address does not lead to this listener, or its process accepts too late: not tried again for a while.
pub(super) fn avoid(target: SocketAddr, peer: &Arc<Peer>) {
    let was_reached = peer.is_reached.swap(false, Ordering::Relaxed);
    let Some(known) = known(target) else {
        return;
    };
    // A thread that meets a listener has it for longer than the service thread may wait.
    let Ok(mut of_target) = known.try_lock() else {
        return;
    };
    if was_reached {
        // It leads here at times, or this one accepts late at times: no other listener is tried instead.
        *of_target = Target::negative(now_ns(), Reason::NotRecognised);
        return;
    }
    of_target.checked_ns = now_ns();
    for met in &mut of_target.peers {
        if matches!(met, Met::Yes(one) if Arc::ptr_eq(one, peer)) {
            *met = Met::No(Reason::NotRecognised);
        }
    }
}
