//! connect(2) to another host: begun at once, reported when the connection is established or has failed.

use core::sync::atomic::Ordering;
use std::net::SocketAddr;

use bypass_stats::{Counter, Reason};
use bypass_sys::kernel;

use crate::operations::shutdown::unconnect;
use crate::operations::transport;
use crate::packets;
use crate::process;
use crate::process::deadline::{timeout, Deadline};
use crate::process::table::{self, Entry};
use crate::sockets::{self, Socket};
use crate::stream::{self, attach, For};
use crate::wait::blocking::block;
use crate::wait::epoll;

/// Turns that a thread in the middle of a shutdown gets to end it.
const TRIES_MAX: u32 = 10_000;

/// The result of a connect.
pub enum Connected {
    /// The connection stands, or is being opened.
    Done,
    /// It was refused, or not answered: errno.
    Failed(i32),
}

/// connect(2) to another host. A reason: the kernel is to do it.
pub fn connect(
    fd: i32,
    entry: Entry,
    socket: &Socket,
    target: SocketAddr,
) -> Result<Connected, Reason> {
    let wishes = || transport::wishes(fd, socket);
    let (peer, slot, local) = packets::open((entry.index(), socket), target, wishes)?;
    socket.local.store(local);
    socket.remote.store(target);
    attach(fd, entry.index(), &peer, slot);
    let connected = table::get(fd);
    if socket.has(sockets::DUPLICATED) {
        table::replace_all(entry, connected);
    }
    process::count(Counter::ConnectsPackets, 1);
    epoll::connected(entry.index());
    Ok(wait_for(fd, connected, socket))
}

/// A socket that blocks does so until the connection stands, or has failed and is none.
fn wait_for(fd: i32, now: Entry, socket: &Socket) -> Connected {
    if socket.has(sockets::NONBLOCK) {
        return Connected::Done;
    }
    let timeout_ns = socket.send_timeout_ns.load(Ordering::Relaxed);
    let mut deadline: Deadline = timeout(timeout_ns);
    let mut tries = 0;
    while socket.is_opening() {
        let found = stream::find(fd).map_err(|_| libc::EBADF);
        match found.and_then(|stream| block(&stream, For::Room, &mut deadline, false)) {
            Ok(()) => {}
            // Another thread is shutting it down: its stream ends before it is unconnected again.
            Err(libc::EBADF) if tries < TRIES_MAX => {
                kernel::let_others_run(tries);
                tries += 1;
            }
            Err(libc::EBADF) => return Connected::Failed(libc::EBADF),
            Err(error) => {
                // It goes on without the call.
                socket.set(sockets::CONNECTING, true);
                let is_over = error == libc::EAGAIN;
                return Connected::Failed(if is_over { libc::EINPROGRESS } else { error });
            }
        }
    }
    if !socket.has(sockets::CONNECTED) && !socket.has(sockets::REFUSED) {
        // Another thread has shut it down, which this call reports.
        socket.set(sockets::DISSOLVED, false);
        return Connected::Failed(libc::ECONNRESET);
    }
    if !socket.has(sockets::REFUSED) {
        // Our half of the handshake waits a round for data that may carry it. The server is to see this
        // connection before it sees what the program, or its child, begins next.
        packets::drive_in_turn();
        return Connected::Done;
    }
    let error = socket.take_error().unwrap_or(libc::ECONNREFUSED);
    unconnect(fd, now);
    Connected::Failed(error)
}
