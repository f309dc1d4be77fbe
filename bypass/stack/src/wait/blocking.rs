//! Calls that block: on a connection, a listener, or a UDP socket.

use core::time::Duration;

use super::poll::KernelLook;
use super::{epoll, sleep_on, spin};
use crate::datagrams::Socket;
use crate::listener::{self, Blocked, Listener, ReadyLists, Rung};
use crate::packets;
use crate::process::choices::{spin_ns, Spin};
use crate::process::deadline::{shorter, Deadline};
use crate::process::deferral::asleep;
use crate::process::wakers::{self, Borrowed};
use crate::process::{self, Polling};
use crate::stream::{announce_held_back, For, Stream};

/// How long a process that is rung in turn sleeps at most: the one whose turn it was may be stopped, or have left accept
/// by siglongjmp.
const TURN: Duration = Duration::from_secs(1);

/// Blocks until ready or over; EAGAIN at the timeout, EINTR after a signal, which is any if the call `has_moved` a part.
pub fn block(
    stream: &Stream,
    what: For,
    deadline: &mut Deadline,
    has_moved: bool,
) -> Result<(), i32> {
    let ready = || match what {
        For::Bytes => stream.is_readable(),
        For::Room => stream.is_writable(),
    };
    if !has_moved {
        deadline.begin_again();
    }
    block_until(stream, what, (*deadline, has_moved), ready)
}

/// The same until `ready`, which the other side announces as it does `what`.
pub fn block_until(
    stream: &Stream,
    what: For,
    (deadline, has_moved): (Deadline, bool),
    ready: impl Fn() -> bool,
) -> Result<(), i32> {
    announce_held_back();
    // In a forked child: the other side's death is to end the call.
    listener::ensure_service();
    let spin_ns = spin_ns(match what {
        For::Bytes => Spin::TcpReceive,
        For::Room => Spin::TcpSend,
    });
    // The kernel may get the connection meanwhile.
    let ready = || ready() || !stream.is_alive();
    if spin(spin_ns, deadline, ready) {
        epoll::note_found(stream.index);
        return Ok(());
    }
    let is_interrupted = || deadline.is_interrupted_after(has_moved);
    if is_interrupted() {
        return Err(libc::EINTR);
    }
    if deadline.left() == Some(Duration::ZERO) {
        return Err(libc::EAGAIN);
    }
    let peer = stream.socket.share_peer().ok_or(libc::EBADF)?;
    match sleep_on(&peer, stream.slot, what, deadline, ready) {
        // The handler wants the call to go on.
        Err(libc::EINTR) if !is_interrupted() => Ok(()),
        other => other,
    }
}

/// What a call of accept remembers of its sleeps.
#[derive(Debug, Default)]
pub struct Slept {
    /// In one of them it was rung in turn, so others may not have been rung for what it does not take.
    pub in_turn: bool,
    /// The last one ended without a ring.
    is_idle: bool,
}

/// Until a connection may wait, EAGAIN at the timeout, EINTR after a signal.
pub fn block_on_listener(
    listener: &Listener,
    fd: i32,
    deadline: Deadline,
    slept: &mut Slept,
) -> Result<(), i32> {
    listener::ensure_service();
    packets::ensure();
    packets::drive();
    // An idle call does not spin once in each turn.
    let has_spun = core::mem::take(&mut slept.is_idle);
    let ready = || listener.has_acceptable();
    if !has_spun && spin(spin_ns(Spin::Accept), deadline, ready) {
        return Ok(());
    }
    if deadline.is_interrupted() {
        return Err(libc::EINTR);
    }
    if deadline.left() == Some(Duration::ZERO) {
        return Err(libc::EAGAIN);
    }
    // Without a descriptor for a waker we look again soon: accept has one of its own to ask for.
    let waker = Borrowed::take().unwrap_or_else(|_| Borrowed::none());
    let _blocked = Blocked::register(listener, waker.number());
    let rung = listener.rung();
    slept.in_turn |= rung == Rung::InTurn;
    let (_ready_lists, is_complete) = if waker.is_none() {
        (ReadyLists::none(), false)
    } else {
        ReadyLists::take(listener, waker.number(), rung)
    };
    if listener.has_acceptable() {
        return Ok(());
    }
    let why = match (waker.is_none(), is_complete) {
        (true, _) => Some(Polling::NoWaker),
        (false, false) => Some(Polling::Listener),
        (false, true) => None,
    };
    let bound = match (why, rung) {
        (Some(_), _) => Some(Duration::from_millis(1)),
        (None, Rung::InTurn) => Some(TURN),
        (None, Rung::Always) => None,
    };
    process::count_sleep(why);
    let mut fds = [polled(fd), polled(waker.fd())];
    match asleep(|| packets::poll(&mut fds, shorter(deadline.left(), bound), None)) {
        // The handler wants the call to go on.
        Err(libc::EINTR) if !deadline.is_interrupted() => Ok(()),
        other => {
            slept.is_idle = other == Ok(0) && bound == Some(TURN);
            other.map(|_| ())
        }
    }
}

/// Until a datagram may be there: EAGAIN at the timeout, EINTR after a signal. Whether the kernel has something.
pub fn block_on_datagrams(socket: &Socket, fd: i32, deadline: Deadline) -> Result<bool, i32> {
    let spin_ns = spin_ns(Spin::UdpReceive);
    let mut has_kernel = false;
    if spin_ns > 0 {
        let mut kernels = KernelLook::at(fd, libc::POLLIN);
        let ready = || {
            has_kernel = kernels.finds_something();
            has_kernel || socket.is_readable()
        };
        if spin(spin_ns, deadline, ready) {
            return Ok(has_kernel);
        }
    }
    if deadline.is_interrupted() {
        return Err(libc::EINTR);
    }
    if deadline.left() == Some(Duration::ZERO) {
        return Err(libc::EAGAIN);
    }
    // Without a descriptor for a waker we look again soon.
    let waker = Borrowed::take().unwrap_or_else(|_| Borrowed::none());
    let bound = waker.is_none().then_some(Duration::from_millis(1));
    if let Some(number) = waker.ringing() {
        socket.expect(number);
    }
    let mut fds = [polled(fd), polled(waker.fd())];
    let result = match socket.is_readable() {
        true => Ok(0),
        false => {
            process::count_sleep(bound.map(|_| Polling::NoWaker));
            let sleep = || packets::poll(&mut fds, shorter(deadline.left(), bound), None);
            wakers::sleeping_on(waker.ringing(), || asleep(sleep))
        }
    };
    socket.unexpect(waker.number());
    match result {
        // The handler wants the call to go on.
        Err(libc::EINTR) if !deadline.is_interrupted() => Ok(false),
        other => other.map(|_| fds[0].revents != 0),
    }
}

fn polled(fd: i32) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}
