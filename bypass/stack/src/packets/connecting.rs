//! connect(2) to another host: begun at once, told when it stands or has failed.

use core::sync::atomic::Ordering;
use std::net::SocketAddr;

use bypass_shard::tcp::Error;
use bypass_stats::{Counter, Reason};

use super::{interface, lock, relays, Connected};
use crate::sockets::{self, Socket};
use crate::table::{self, Entry};
use crate::wait::{Deadline, For};
use crate::{epoll, listener, process, stream};

/// Whether connect was called and its result is not known.
pub fn is_opening(socket: &Socket) -> bool {
    socket.has(sockets::OPENING)
}

/// What a connection has failed with, once.
pub fn connection_error(socket: &Socket) -> Option<i32> {
    let error = socket.error.swap(0, Ordering::AcqRel) as i32;
    (error != 0).then_some(error)
}

pub(super) fn connect(
    fd: i32,
    entry: Entry,
    socket: &Socket,
    target: SocketAddr,
) -> Result<Connected, Reason> {
    if !interface::leads_over_named(target.ip()) {
        return Err(Reason::NotLocal);
    }
    if socket.has(sockets::BOUND) {
        // The port is the kernel's, and only it may answer there.
        return Err(Reason::BoundAddress);
    }
    let mut reason = Reason::Interface;
    for relay in relays() {
        let opened = lock(relay).open((entry.index(), socket), target);
        let (peer, slot, local) = match opened {
            Ok(opened) => opened,
            Err(Error::NetworkUnreachable) => continue,
            Err(_) => {
                reason = Reason::Limit;
                continue;
            }
        };
        socket.local.store(local);
        socket.remote.store(target);
        listener::attach(fd, entry.index(), &peer, slot);
        let connected = table::get(fd);
        if socket.has(sockets::DUPLICATED) {
            table::replace_all(entry, connected);
        }
        process::count(Counter::ConnectsPackets, 1);
        epoll::connected(entry.index());
        return Ok(wait_for(fd, connected, socket));
    }
    Err(reason)
}

/// A socket that blocks does so until the connection stands, or has failed and is none.
fn wait_for(fd: i32, now: Entry, socket: &Socket) -> Connected {
    if socket.has(sockets::NONBLOCK) {
        return Connected::Done;
    }
    let timeout_ns = socket.send_timeout_ns.load(Ordering::Relaxed);
    let deadline: Deadline = stream::timeout(timeout_ns);
    while is_opening(socket) {
        let Ok(stream) = stream::find(fd) else {
            return Connected::Failed(libc::EBADF);
        };
        match stream.block(For::Room, deadline) {
            Ok(()) => {}
            Err(error) => {
                // It goes on without the call.
                socket.set(sockets::CONNECTING, true);
                let is_over = error == libc::EAGAIN;
                return Connected::Failed(if is_over { libc::EINPROGRESS } else { error });
            }
        }
    }
    if !socket.has(sockets::REFUSED) {
        return Connected::Done;
    }
    let error = connection_error(socket).unwrap_or(libc::ECONNREFUSED);
    stream::unconnect(fd, now);
    Connected::Failed(error)
}
