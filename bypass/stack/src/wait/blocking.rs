//! Calls that block: on a connection, a listener, or a UDP socket.

use core::time::Duration;

use super::poll::KernelLook;
use super::{sleep_on, spin};
use crate::datagrams::Socket;
use crate::listener::{self, Blocked, Listener, ReadyLists};
use crate::packets;
use crate::process::deadline::{shorter, Deadline};
use crate::process::deferral::asleep;
use crate::process::wakers::{self, Borrowed};
use crate::process::{self, Polling};
use crate::stream::{announce_held_back, For, Stream};

/// Blocks until ready or over; EAGAIN at the timeout, EINTR after a signal.
pub fn block(stream: &Stream, what: For, deadline: Deadline) -> Result<(), i32> {
    announce_held_back();
    // In a forked child: the other side's death is to end the call.
    listener::ensure_service();
    let settings = process::settings();
    let is_on = match what {
        For::Bytes => settings.tcp_recv_spin,
        For::Room => settings.tcp_send_spin,
    };
    let ready = || match what {
        For::Bytes => stream.is_readable(),
        For::Room => stream.is_writable(),
    };
    let spin_ns = if is_on { settings.spin_usec * 1000 } else { 0 };
    if spin(spin_ns, deadline, ready) {
        return Ok(());
    }
    if deadline.is_interrupted() {
        return Err(libc::EINTR);
    }
    if deadline.left() == Some(Duration::ZERO) {
        return Err(libc::EAGAIN);
    }
    let peer = stream.socket.share_peer().ok_or(libc::EBADF)?;
    let ready = || ready() || !stream.is_alive();
    match sleep_on(&peer, stream.slot, what, deadline, ready) {
        // The handler wants the call to go on.
        Err(libc::EINTR) if !deadline.is_interrupted() => Ok(()),
        other => other,
    }
}

/// Until a connection may wait, EAGAIN at the timeout, EINTR after a signal.
pub fn block_on_listener(listener: &Listener, fd: i32, deadline: Deadline) -> Result<(), i32> {
    listener::ensure_service();
    packets::ensure();
    packets::drive();
    let settings = process::settings();
    let spin_ns = if settings.tcp_accept_spin {
        settings.spin_usec * 1000
    } else {
        0
    };
    if spin(spin_ns, deadline, || listener.has_acceptable()) {
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
    let (_ready_lists, is_complete) = if waker.is_none() {
        (ReadyLists::none(), false)
    } else {
        ReadyLists::take(listener, waker.number())
    };
    if listener.has_acceptable() {
        return Ok(());
    }
    let why = match (waker.is_none(), is_complete) {
        (true, _) => Some(Polling::NoWaker),
        (false, false) => Some(Polling::Listener),
        (false, true) => None,
    };
    let bound = why.map(|_| Duration::from_millis(1));
    process::count_sleep(why);
    let mut fds = [polled(fd), polled(waker.fd())];
    match asleep(|| packets::poll(&mut fds, shorter(deadline.left(), bound), None)) {
        // The handler wants the call to go on.
        Err(libc::EINTR) if !deadline.is_interrupted() => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Until a datagram may be there: EAGAIN at the timeout, EINTR after a signal. Whether the kernel has something.
pub fn block_on_datagrams(socket: &Socket, fd: i32, deadline: Deadline) -> Result<bool, i32> {
    let settings = process::settings();
    let spin_ns = match settings.udp_recv_spin {
        true => settings.spin_usec * 1000,
        false => 0,
    };
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
