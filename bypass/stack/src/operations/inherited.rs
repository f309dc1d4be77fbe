//! Options that an accepted connection has from its listener and that only a kernel socket keeps.
//!
//! The shadow of an accepted connection is a fresh socket. Most programs never ask for such an
//! option, so the option is copied from the listener's shadow only when a program does.

use core::sync::atomic::Ordering;

use bypass_sys::kernel;

use crate::listener;
use crate::sockets::{self, Socket};

const OPTIONS: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_TCP, libc::TCP_KEEPIDLE),
    (libc::SOL_TCP, libc::TCP_KEEPINTVL),
    (libc::SOL_TCP, libc::TCP_KEEPCNT),
    (libc::SOL_TCP, libc::TCP_USER_TIMEOUT),
    (libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT),
    (libc::SOL_TCP, libc::TCP_CONGESTION),
    (libc::SOL_TCP, libc::TCP_MAXSEG),
    (libc::SOL_TCP, libc::TCP_SYNCNT),
    (libc::SOL_TCP, libc::TCP_LINGER2),
    (libc::SOL_IP, libc::IP_TOS),
    (libc::SOL_IP, libc::IP_TTL),
    (libc::SOL_IPV6, libc::IPV6_TCLASS),
    (libc::SOL_IPV6, libc::IPV6_UNICAST_HOPS),
];

/// Room for the longest of them, the name of a congestion control.
const VALUE_MAX: usize = 16;

fn bit_of(option: (i32, i32)) -> u32 {
    let place = OPTIONS.iter().position(|one| *one == option);
    place.map_or(0, |place| 1 << place)
}

/// Whether the program has set an option itself, or the shadow was given the listener's value.
pub fn is_set_by_program(socket: &Socket, option: (i32, i32)) -> bool {
    socket.own_options.load(Ordering::Relaxed) & bit_of(option) != 0
}

/// The program has set an option itself.
pub fn set_by_program(socket: &Socket, option: (i32, i32)) {
    socket
        .own_options
        .fetch_or(bit_of(option), Ordering::Relaxed);
}

/// Before the shadow `fd` is asked for an option: it gets the listener's value, once.
pub fn settle(fd: i32, socket: &Socket, option: (i32, i32)) {
    let bit = bit_of(option);
    if bit == 0 || !socket.has(sockets::ACCEPTED) {
        return;
    }
    if socket.own_options.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        let _ = copy(fd, socket, option);
    }
}

fn copy(fd: i32, socket: &Socket, option: (i32, i32)) -> Option<()> {
    let from = listener::of(socket)?.any_fd();
    // The listener may be closed, and its number another's.
    let port = sockets::kernel_name(from)?.port();
    if port != socket.local.load().port() {
        return None;
    }
    copy_between([from, fd], option)?;
    socket.set(sockets::DIRTY, true);
    Some(())
}

/// A socket of the kernel's gets these options of another one, as far as it has them.
pub fn copy_all(from: i32, to: i32) {
    for option in OPTIONS {
        let _ = copy_between([from, to], *option);
    }
}

fn copy_between([from, to]: [i32; 2], (level, name): (i32, i32)) -> Option<()> {
    let (mut wanted, mut present) = ([0u8; VALUE_MAX], [0u8; VALUE_MAX]);
    let length = kernel::option(from, level, name, &mut wanted).ok()?;
    kernel::option(to, level, name, &mut present).ok()?;
    if wanted == present {
        return None;
    }
    if name == libc::SO_RCVBUF || name == libc::SO_SNDBUF {
        // The kernel doubles what it is given.
        let asked = i32::from_ne_bytes(wanted[..4].try_into().ok()?) / 2;
        wanted[..4].copy_from_slice(&asked.to_ne_bytes());
    }
    kernel::set_option(to, level, name, &wanted[..length]).ok()?;
    Some(())
}
