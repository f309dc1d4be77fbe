//! Calls on UDP sockets that may have datagrams over packets. What is not done here the kernel does.

use core::time::Duration;
use std::net::SocketAddr;

use bypass_sys::iovec::Pieces;
use bypass_sys::{address, kernel};

use super::write::MSG_WARM;
use crate::datagrams::{self, Patience, Said, Taken};
use crate::packets;
use crate::process::deadline::{self, Deadline};
use crate::process::{self, table};
use crate::sys;
use crate::wait::{blocking, epoll};

/// Flags of receives that the kernel handles: urgent data, which it refuses, and its error queue.
const KERNELS_FLAGS: i32 = libc::MSG_OOB | libc::MSG_ERRQUEUE;
/// Flags of a send that an engine obeys: it never waits.
const SENDABLE_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CONFIRM;
/// Pieces that are sent without a copy.
const PIECES_MAX: usize = 16;

/// What a receive is to do next.
pub enum Next {
    /// A datagram was taken; so many of its bytes found room.
    Taken(Taken, usize),
    /// Ask the kernel, without waiting.
    AskKernel,
    /// Nothing is here: [`wait`].
    Wait,
    /// The kernel's alone.
    Kernel,
}

/// How a receive has come to look.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// It has just begun.
    First,
    /// It has waited; whether the kernel has something.
    Woken(bool),
}

/// After the program has made a socket: whether it takes part is decided here.
pub fn made(fd: i32, family: i32, kind: i32, protocol: i32) {
    let is_ip = family == libc::AF_INET || family == libc::AF_INET6;
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let is_udp =
        kind & !flags == libc::SOCK_DGRAM && (protocol == 0 || protocol == libc::IPPROTO_UDP);
    let settings = process::settings();
    let is_wanted = settings.udp && !settings.dont_accelerate && packets::is_wanted();
    let is_wanted = is_wanted && !process::choices::is_left_to_kernel();
    let may_be = is_ip && is_udp && is_wanted && !bypass_sys::sandbox::is_confined();
    if may_be && !process::namespace::has_left() {
        process::number();
        datagrams::register(fd, family);
    }
}

/// recvmsg(2) without the part that waits.
pub fn receive(fd: i32, pieces: &mut Pieces, flags: i32, look: Look) -> Next {
    let Some((index, socket)) = datagrams::of(fd) else {
        return Next::Kernel;
    };
    if flags & KERNELS_FLAGS != 0 {
        return Next::Kernel;
    }
    packets::datagrams::attend(index, fd);
    if socket.is_over() {
        return Next::Kernel;
    }
    if !socket.is_readable() {
        packets::drive();
    }
    let asks_kernel = match look {
        Look::First => socket.is_kernels_turn(),
        Look::Woken(has_kernel) => has_kernel,
    };
    if asks_kernel {
        return Next::AskKernel;
    }
    match take(socket, pieces, flags) {
        Some((taken, copied)) => Next::Taken(taken, copied),
        None if waits(fd, flags) => Next::Wait,
        None => Next::AskKernel,
    }
}

/// Whether a receive waits until something comes.
pub fn waits(fd: i32, flags: i32) -> bool {
    flags & libc::MSG_DONTWAIT == 0 && patience(fd) != Patience::None
}

fn patience(fd: i32) -> Patience {
    let ask = || ask_patience(fd);
    datagrams::of(fd).map_or_else(ask, |(_, socket)| socket.patience(ask))
}

fn ask_patience(fd: i32) -> Patience {
    let flags = kernel::fcntl(fd, libc::F_GETFL, 0);
    if flags.is_ok_and(|flags| flags as i32 & libc::O_NONBLOCK != 0) {
        return Patience::None;
    }
    let mut time = [0; 16];
    let _ = kernel::option(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &mut time);
    let word = |at: usize| u64::from_ne_bytes(time[at..at + 8].try_into().unwrap_or_default());
    let wait = Duration::from_secs(word(0)).saturating_add(Duration::from_micros(word(8)));
    Patience::For(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))
}

/// After the kernel had nothing: what waits here.
pub fn receive_late(fd: i32, pieces: &mut Pieces, flags: i32) -> Option<(Taken, usize)> {
    let (_, socket) = datagrams::of(fd)?;
    socket.has_none_older();
    take(socket, pieces, flags)
}

fn take(socket: &datagrams::Socket, pieces: &mut Pieces, flags: i32) -> Option<(Taken, usize)> {
    if !socket.is_readable() {
        return None;
    }
    let room = pieces.left();
    let taken = socket.receive(flags & libc::MSG_PEEK != 0, |parts| {
        parts.iter().for_each(|part| sys::fill(pieces, part));
    })?;
    Some((taken, taken.received.length.min(room)))
}

/// When a receive that begins now ends at the latest.
pub fn deadline(fd: i32) -> Deadline {
    match patience(fd) {
        Patience::For(ns) => deadline::timeout(ns),
        Patience::None => deadline::timeout(deadline::AT_ONCE_NS),
    }
}

/// Waits until a datagram may be there, and whether the kernel has one: EAGAIN at the deadline, EINTR after a signal,
/// EBADF when the descriptor was closed meanwhile.
pub fn wait(fd: i32, deadline: Deadline) -> Result<bool, i32> {
    let entry = table::get(fd);
    let (_, socket) = datagrams::of(fd).ok_or(libc::EBADF)?;
    let has_kernel = blocking::block_on_datagrams(socket, fd, deadline)?;
    (table::get(fd) == entry)
        .then_some(has_kernel)
        .ok_or(libc::EBADF)
}

/// AF_INET or AF_INET6.
pub fn family(fd: i32) -> Option<i32> {
    datagrams::of(fd).map(|(_, socket)| socket.lock().family)
}

/// sendmsg(2) with what is said in its control data; the length that was sent. None: the kernel is to do it.
pub fn send(fd: i32, to: Option<&[u8]>, pieces: &Pieces, flags: i32, said: &Said) -> Option<usize> {
    let (index, socket) = datagrams::of(fd)?;
    // onload_fd_stat calls the socket accelerated, also where the kernel sends for it.
    if flags & MSG_WARM != 0 {
        return Some(0);
    }
    if flags & !SENDABLE_FLAGS != 0 || socket.is_left() {
        return None;
    }
    packets::datagrams::attend(index, fd);
    let to: Option<SocketAddr> = match to {
        Some(bytes) => Some(name(bytes, socket.lock().family)?),
        None => None,
    };
    let mut parts: [&[u8]; PIECES_MAX] = [&[]; PIECES_MAX];
    let mut count = 0;
    for part in sys::slices(pieces.clone(), pieces.left()) {
        *parts.get_mut(count)? = part;
        count += 1;
    }
    let sent = packets::datagrams::send((socket, fd), to, &parts[..count], said);
    if sent.is_none() {
        // The kernel may bind it, and it may be asked why it refuses.
        note_unbound(socket);
    }
    sent
}

/// A name as a socket of that family is given it; of others the kernel says what they are.
fn name(bytes: &[u8], family: i32) -> Option<SocketAddr> {
    let is_of_family = bytes.starts_with(&(family as u16).to_ne_bytes());
    let name = address::from_bytes(bytes).filter(|name| name.port() != 0);
    name.filter(|_| is_of_family)
}

fn note_unbound(socket: &datagrams::Socket) {
    if !socket.lock().is_bound {
        socket.set_stale();
    }
}

/// Of asm-generic/socket.h.
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;

/// Options that do not affect what is done here, or that only the kernel handles.
const HARMLESS: &[(i32, &[i32])] = &[
    (
        libc::SOL_SOCKET,
        &[
            libc::SO_BROADCAST,
            libc::SO_BUSY_POLL,
            SO_BUSY_POLL_BUDGET,
            libc::SO_DONTROUTE,
            libc::SO_LINGER,
            SO_PREFER_BUSY_POLL,
            libc::SO_RCVLOWAT,
            libc::SO_RCVTIMEO,
            libc::SO_SNDBUF,
            libc::SO_SNDBUFFORCE,
            libc::SO_SNDTIMEO,
        ],
    ),
    (
        libc::SOL_IP,
        &[
            libc::IP_ADD_MEMBERSHIP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            libc::IP_DROP_MEMBERSHIP,
            libc::IP_MTU_DISCOVER,
            libc::IP_MULTICAST_IF,
            libc::IP_MULTICAST_LOOP,
            libc::IP_MULTICAST_TTL,
            libc::IP_RECVERR,
        ],
    ),
    (
        libc::SOL_IPV6,
        &[
            libc::IPV6_ADD_MEMBERSHIP,
            libc::IPV6_DONTFRAG,
            libc::IPV6_DROP_MEMBERSHIP,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_MULTICAST_HOPS,
            libc::IPV6_MULTICAST_IF,
            libc::IPV6_MULTICAST_LOOP,
            libc::IPV6_RECVERR,
        ],
    ),
];

/// Options that are looked at again.
const OBEYED: &[(i32, &[i32])] = &[
    (
        libc::SOL_SOCKET,
        &[
            libc::SO_BINDTODEVICE,
            libc::SO_RCVBUF,
            libc::SO_RCVBUFFORCE,
            libc::SO_REUSEADDR,
            libc::SO_REUSEPORT,
        ],
    ),
    (
        libc::SOL_IP,
        &[
            libc::IP_PKTINFO,
            libc::IP_RECVTOS,
            libc::IP_RECVTTL,
            libc::IP_TOS,
            libc::IP_TTL,
        ],
    ),
    (
        libc::SOL_IPV6,
        &[
            libc::IPV6_RECVHOPLIMIT,
            libc::IPV6_RECVPKTINFO,
            libc::IPV6_RECVTCLASS,
            libc::IPV6_TCLASS,
            libc::IPV6_UNICAST_HOPS,
            libc::IPV6_V6ONLY,
        ],
    ),
];

/// The kernel has set an option.
pub fn option_set(fd: i32, level: i32, name: i32) {
    let Some((index, socket)) = datagrams::of(fd) else {
        return;
    };
    let is_in = |rows: &[(i32, &[i32])]| {
        let mut rows = rows.iter();
        rows.any(|(of, names)| *of == level && names.contains(&name))
    };
    socket.forget_patience();
    if is_in(OBEYED) {
        socket.set_stale();
    } else if !is_in(HARMLESS) {
        packets::datagrams::leave(index);
    }
}

/// Flags of the file may have changed.
pub fn flags_set(fd: i32) {
    if let Some((_, socket)) = datagrams::of(fd) {
        socket.forget_patience();
    }
}

/// The kernel has bound or connected it.
pub fn named(fd: i32) {
    if let Some((index, _)) = datagrams::of(fd) {
        packets::datagrams::named(index, fd);
    }
}

/// FIONREAD: bytes of the datagram that is received next, where that waits here.
pub fn next_length(fd: i32) -> Option<usize> {
    datagrams::of(fd)?.1.next_length()
}

/// The caller is about to use the socket in a way that is not seen here: the kernel handles it from now on.
pub fn leave(fd: i32) {
    if let Some((index, _)) = datagrams::of(fd) {
        packets::datagrams::leave(index);
    }
}

/// Before the kernel closes a descriptor, makes it mean something else, or is given it by ways that are not seen here,
/// which may close it too.
pub fn close(fd: i32) {
    if let Some(index) = datagrams::close(fd) {
        packets::datagrams::close(index);
        epoll::forget_datagrams(index);
        datagrams::end(index);
    }
}
