//! The kernel's socket behind one of ours, made what the program believes it to be.

use core::sync::atomic::Ordering;

use bypass_stats::{About, Call, Reason};
use bypass_sys::kernel;

use crate::process;
use crate::process::deadline::AT_ONCE_NS;
use crate::process::table::{self, Entry};
use crate::sockets::{self, Socket};
use crate::wait::epoll;

/// Switches that are only remembered.
pub const SWITCHES: &[(i32, i32, u32)] = &[
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, sockets::KEEPALIVE),
    (
        libc::SOL_SOCKET,
        libc::SO_OOBINLINE,
        sockets::URGENT_IN_LINE,
    ),
    (libc::SOL_TCP, libc::TCP_NODELAY, sockets::NODELAY),
    (libc::SOL_TCP, libc::TCP_CORK, sockets::CORK),
    (libc::SOL_TCP, libc::TCP_QUICKACK, sockets::QUICKACK),
];

/// Gives the shadow what was only remembered.
pub fn apply(fd: i32, socket: &Socket) {
    socket.set(sockets::DIRTY, true);
    for (level, name, flag) in SWITCHES {
        if socket.has(*flag) {
            let _ = kernel::set_option_int(fd, *level, *name, 1);
        }
    }
    if socket.has(sockets::LINGER) {
        let seconds = socket.linger_s.load(Ordering::Relaxed) as i32;
        let mut value = [0u8; 8];
        value[..4].copy_from_slice(&1i32.to_ne_bytes());
        value[4..].copy_from_slice(&seconds.to_ne_bytes());
        let _ = kernel::set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &value);
    }
    for (name, word) in [
        (libc::SO_RCVTIMEO, &socket.receive_timeout_ns),
        (libc::SO_SNDTIMEO, &socket.send_timeout_ns),
    ] {
        let value = match word.load(Ordering::Relaxed) {
            0 => continue,
            AT_ONCE_NS => negative_timeval(),
            ns => timeval_bytes(ns),
        };
        let _ = kernel::set_option(fd, libc::SOL_SOCKET, name, &value);
    }
    let flag = |flag, value| if socket.has(flag) { value } else { 0 };
    let flags = flag(sockets::NONBLOCK, libc::O_NONBLOCK) | flag(sockets::ASYNC, libc::O_ASYNC);
    let _ = kernel::fcntl(fd, libc::F_SETFL, (libc::O_RDWR | flags) as usize);
    if socket.has(sockets::DUPLICATED) {
        // Each duplicate has its own bit, which is right in the kernel already.
        return;
    }
    let cloexec = if socket.has(sockets::CLOEXEC) {
        libc::FD_CLOEXEC
    } else {
        0
    };
    let _ = kernel::fcntl(fd, libc::F_SETFD, cloexec as usize);
}

/// Makes a socket the kernel's, before it is connected.
pub fn leave_to_kernel(fd: i32, reason: Reason) {
    let about = About {
        call: Call::Other,
        fd,
        address: None,
        has_failed: false,
    };
    leave(reason, about);
}

/// The same in a call that may be about an address.
pub fn leave(reason: Reason, about: About) {
    process::leave_to_kernel(reason, about);
    let fd = about.fd;
    let entry = table::get(fd);
    let index = entry.index();
    let socket = sockets::get(index);
    apply(fd, socket);
    epoll::move_to_kernel(index);
    give_up(fd, entry);
    if socket.has(sockets::DUPLICATED) {
        for other in table::all(entry) {
            give_up(other, entry);
        }
    }
}

/// One descriptor of a socket that the kernel handles from now on.
fn give_up(fd: i32, entry: Entry) {
    let socket = sockets::get(entry.index());
    if table::replace(fd, entry, Entry::KERNEL)
        && socket.descriptors.fetch_sub(1, Ordering::AcqRel) == 1
    {
        sockets::free(entry.index());
    }
}

fn negative_timeval() -> [u8; 16] {
    let mut bytes = [0u8; 16];
    bytes[..8].copy_from_slice(&(-1i64).to_ne_bytes());
    bytes
}

/// A time as SO_RCVTIMEO and SO_SNDTIMEO have it.
pub fn timeval_bytes(ns: u64) -> [u8; 16] {
    let mut bytes = [0u8; 16];
    bytes[..8].copy_from_slice(&(ns / 1_000_000_000).to_ne_bytes());
    bytes[8..].copy_from_slice(&(ns % 1_000_000_000 / 1000).to_ne_bytes());
    bytes
}
