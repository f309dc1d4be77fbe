//! Names and options of sockets: the common ones are kept here, the rest is the shadow's.

use core::sync::atomic::Ordering;
use std::net::SocketAddr;

use bypass_shm::layout::{FIN, INFO_WORDS, RST};
use bypass_sys::{address, kernel};

use super::shadow::{self, timeval_bytes, SWITCHES};
use super::{inherited, listen, signals, transport};
use crate::listener::{self, published};
use crate::process::deadline::AT_ONCE_NS;
use crate::process::table::{self, Kind};
use crate::process::Outcome;
use crate::sockets::{self, Socket};
use crate::stream::{self, share_buffers, urgent};

/// Options that shared memory cannot honour: the kernel handles connections that have one.
const DEMAND_KERNEL: &[(i32, i32)] = &[
    (libc::SOL_SOCKET, libc::SO_BINDTODEVICE),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER),
    (libc::SOL_SOCKET, libc::SO_ATTACH_BPF),
    (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF),
    (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_EBPF),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
    (libc::SOL_SOCKET, libc::SO_PEEK_OFF),
    (libc::SOL_TCP, libc::TCP_INQ),
    (libc::SOL_IP, libc::IP_TRANSPARENT),
    (libc::SOL_IPV6, libc::IPV6_TRANSPARENT),
    (libc::SOL_TCP, libc::TCP_FASTOPEN_CONNECT),
    (libc::SOL_TCP, libc::TCP_REPAIR),
    (libc::SOL_TCP, libc::TCP_ULP),
];

/// Programs that choose among the listeners of an address.
const CHOOSERS: [i32; 2] = [
    libc::SO_ATTACH_REUSEPORT_CBPF,
    libc::SO_ATTACH_REUSEPORT_EBPF,
];

/// Options that guard a connection against what others send: whoever cannot obey them must not have it. Of
/// linux/tcp.h and linux/in6.h where the libc crate has no name.
const GUARDS: &[(i32, i32)] = &[
    (libc::SOL_TCP, libc::TCP_MD5SIG),
    (libc::SOL_TCP, TCP_MD5SIG_EXT),
    (libc::SOL_TCP, TCP_AO_ADD_KEY),
    (libc::SOL_TCP, TCP_AO_INFO),
    (libc::SOL_IP, libc::IP_MINTTL),
    (libc::SOL_IPV6, IPV6_MINHOPCOUNT),
];
/// Options that give a socket an IPsec policy of its own.
const POLICIES: &[(i32, i32)] = &[
    (libc::SOL_IP, libc::IP_IPSEC_POLICY),
    (libc::SOL_IP, libc::IP_XFRM_POLICY),
    (libc::SOL_IPV6, IPV6_IPSEC_POLICY),
    (libc::SOL_IPV6, libc::IPV6_XFRM_POLICY),
];
const TCP_MD5SIG_EXT: i32 = 32;
const TCP_AO_ADD_KEY: i32 = 38;
const TCP_AO_INFO: i32 = 40;
const IPV6_MINHOPCOUNT: i32 = 73;
const IPV6_IPSEC_POLICY: i32 = 34;

/// Not in the libc crate, as the next ones; of sockios.h and fcntl.h.
pub const SIOCATMARK: u64 = 0x8905;
/// F_SETOWN as an ioctl.
pub const FIOSETOWN: u64 = 0x8901;
/// The same.
pub const SIOCSPGRP: u64 = 0x8902;
const F_SETOWN_EX: i32 = 15;
const F_SETSIG: i32 = 10;

fn int(value: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(value.get(..4)?.try_into().ok()?))
}

fn object(fd: i32) -> Result<(&'static Socket, Kind), Outcome> {
    let entry = table::get(fd);
    match entry.kind() {
        Kind::Unbound | Kind::Connected | Kind::Listener => {
            Ok((sockets::get(entry.index()), entry.kind()))
        }
        Kind::Pooled | Kind::Internal => Err(Outcome::Error(libc::EBADF)),
        Kind::Epoll | Kind::Kernel | Kind::Datagram => Err(Outcome::Kernel),
    }
}

/// setsockopt(2).
pub fn set(fd: i32, level: i32, name: i32, value: &[u8]) -> Outcome {
    let (socket, kind) = match object(fd) {
        Ok(found) => found,
        Err(outcome) => return outcome,
    };
    if level == libc::SOL_SOCKET && CHOOSERS.contains(&name) {
        choose(fd, socket, kind);
    }
    note_buffer(fd, socket, (level, name), value);
    note_low_water(socket, (level, name), value);
    if (level, name) == (libc::SOL_SOCKET, libc::SO_ZEROCOPY) && int(value) != Some(0) {
        return set_zero_copy(socket, kind);
    }
    if let (Kind::Connected, Some(error)) = (kind, too_late(socket, (level, name), value)) {
        return Outcome::Error(error);
    }
    let is_ipv6 = || socket.family.load(Ordering::Relaxed) == libc::AF_INET6;
    if (level, name) == (libc::SOL_IPV6, libc::IPV6_ADDRFORM)
        && kind == Kind::Connected
        && is_ipv6()
    {
        return become_ipv4(fd, socket, value);
    }
    if guards((level, name), value) {
        return guard(fd, socket, kind, (level, name), value);
    }
    inherited::set_by_program(socket, (level, name));
    let is_kept = remember(socket, level, name, value);
    note_late_accepts(socket, kind, (level, name), value);
    note_kept_syns(socket, kind, (level, name), value);
    let told = match kind {
        Kind::Listener => transport::set_listener(fd, (level, name), value),
        Kind::Connected => transport::set(fd, socket, (level, name), value),
        _ => None,
    };
    if let Some(outcome) = told {
        return outcome;
    }
    if kind == Kind::Listener {
        return Outcome::Kernel;
    }
    if is_kept {
        if name == libc::SO_LINGER {
            if let Ok(stream) = stream::find(fd) {
                stream::share_linger(socket, stream.peer, stream.slot);
            }
            if socket.is_undecided() {
                // Closed before a process takes it, the connection ends in the kernel.
                shadow::set_linger(fd, socket);
            }
        }
        return Outcome::Done(0);
    }
    if DEMAND_KERNEL.contains(&(level, name)) {
        socket.set(sockets::KERNEL_ONLY, true);
    }
    socket.set(sockets::DIRTY, true);
    Outcome::Kernel
}

/// A listener whose connections the kernel gives with their first data alone is not for clients that wait for its accept.
fn note_late_accepts(socket: &Socket, kind: Kind, option: (i32, i32), value: &[u8]) {
    let is_it = kind == Kind::Listener && option == (libc::SOL_TCP, libc::TCP_DEFER_ACCEPT);
    if !is_it || int(value) == Some(0) {
        return;
    }
    if let Some(listener) = listener::of(socket) {
        published::withdraw(listener.inode);
    }
}

/// A program that has the kernel keep SYNs reads them itself.
fn note_kept_syns(socket: &Socket, kind: Kind, option: (i32, i32), value: &[u8]) {
    // The kernel refuses other values.
    let value = int(value).filter(|value| (0..=2).contains(value));
    let Some(value) = value.filter(|_| option == (libc::SOL_TCP, libc::TCP_SAVE_SYN)) else {
        return;
    };
    socket.set(sockets::KEEPS_SYNS, value != 0);
    if kind == Kind::Listener {
        listener::of(socket).inspect(|listener| listener.leave_syns());
    }
}

/// Whether the kernel keeps a listener's SYNs although the program has not asked for them.
fn keeps_syns(socket: &Socket, kind: Kind) -> bool {
    kind == Kind::Listener && listener::of(socket).is_some_and(|listener| listener.keeps_syns())
}

/// A program chooses among the listeners of an address. That of a socket which does not listen yet does so once it
/// listens.
fn choose(fd: i32, socket: &Socket, kind: Kind) {
    match kind {
        Kind::Listener => listener::choose_by_program(fd),
        _ => socket.set(sockets::CHOOSES, true),
    }
}

/// An IPv6 socket whose connection is one of IPv4 becomes an IPv4 socket (ipv6(7)).
#[cold]
fn become_ipv4(fd: i32, socket: &Socket, value: &[u8]) -> Outcome {
    let is_behind_connected = shadow::is_connected(fd);
    if !is_behind_connected {
        // Not every kernel has the option: one that does says that the socket behind is not connected.
        let told = kernel::set_option(fd, libc::SOL_IPV6, libc::IPV6_ADDRFORM, value);
        if let Some(error) = told.err().filter(|error| *error != libc::ENOTCONN) {
            return Outcome::Error(error);
        }
    }
    if int(value) != Some(libc::AF_INET) {
        return Outcome::Error(libc::EINVAL);
    }
    let stream = match stream::find(fd) {
        Ok(stream) => stream,
        Err(outcome) => return outcome,
    };
    let is_established = !socket.is_in_progress()
        && stream.inbound_ends() & (FIN | RST) == 0
        && !stream.is_shut(sockets::SHUT_WRITE);
    if !is_established {
        return Outcome::Error(libc::ENOTCONN);
    }
    if !socket.remote.load().ip().to_canonical().is_ipv4() {
        return Outcome::Error(libc::EADDRNOTAVAIL);
    }
    socket.family.store(libc::AF_INET, Ordering::Relaxed);
    if is_behind_connected {
        return Outcome::Kernel;
    }
    shadow::replace(fd, socket);
    Outcome::Done(0)
}

/// Whether an option with this value guards a connection: a least number of hops of zero does not.
fn guards(option: (i32, i32), value: &[u8]) -> bool {
    let hops = [
        (libc::SOL_IP, libc::IP_MINTTL),
        (libc::SOL_IPV6, IPV6_MINHOPCOUNT),
    ];
    let counts_hops = hops.contains(&option);
    let is_guard = GUARDS.contains(&option) || POLICIES.contains(&option);
    is_guard && !(counts_hops && int(value) == Some(0))
}

/// The kernel obeys it for connections that are its own; of one that is not it says that it does not know it. A policy
/// that the kernel does not take gets the kernel's answer.
fn guard(fd: i32, socket: &Socket, kind: Kind, option: (i32, i32), value: &[u8]) -> Outcome {
    match kind {
        Kind::Connected => {
            let refused = POLICIES
                .contains(&option)
                .then(|| kernel::set_option(fd, option.0, option.1, value).err());
            return Outcome::Error(refused.flatten().unwrap_or(libc::ENOPROTOOPT));
        }
        Kind::Listener => listen::leave_to_kernel(fd),
        _ => socket.set(sockets::KERNEL_ONLY | sockets::DIRTY, true),
    }
    Outcome::Kernel
}

/// What is said of an option that a connection cannot have any more: of one that would change what reads give as by a
/// kernel that does not know it, of others as by the kernel, which lets a socket have them that is not connected, as
/// the shadow is.
fn too_late(socket: &Socket, option: (i32, i32), value: &[u8]) -> Option<i32> {
    /// Of linux/tcp.h.
    const TCP_FASTOPEN_NO_COOKIE: i32 = 34;
    let is_ipv6 = || socket.family.load(Ordering::Relaxed) == libc::AF_INET6;
    match option {
        (libc::SOL_SOCKET, libc::SO_PEEK_OFF) => Some(libc::EOPNOTSUPP),
        (libc::SOL_TCP, libc::TCP_INQ) => Some(libc::ENOPROTOOPT),
        (
            libc::SOL_TCP,
            libc::TCP_FASTOPEN | libc::TCP_FASTOPEN_CONNECT | TCP_FASTOPEN_NO_COOKIE,
        ) => Some(libc::EINVAL),
        (libc::SOL_TCP, libc::TCP_WINDOW_CLAMP) if int(value) == Some(0) => Some(libc::EINVAL),
        (libc::SOL_IPV6, libc::IPV6_V6ONLY) if is_ipv6() => Some(libc::EINVAL),
        _ => None,
    }
}

/// Smallest buffers of the kernel, before it doubles what is asked for.
const SEND_BUFFER_MIN: i32 = 2304;
const RECEIVE_BUFFER_MIN: i32 = 1152;

/// Sizes of buffers: the shadow keeps them, and the connection holds no more.
fn note_buffer(fd: i32, socket: &Socket, option: (i32, i32), value: &[u8]) {
    let (word, smallest) = match option {
        (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE) => {
            (&socket.send_buffer, SEND_BUFFER_MIN)
        }
        (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE) => {
            (&socket.receive_buffer, RECEIVE_BUFFER_MIN)
        }
        _ => return,
    };
    if let Some(bytes) = int(value) {
        let is_bounded = matches!(option.1, libc::SO_SNDBUF | libc::SO_RCVBUF);
        // It needs a capability.
        if !is_bounded && kernel::set_option(fd, option.0, option.1, value).is_err() {
            return;
        }
        // The kernel takes a negative size for one beyond its bound, but where no bound holds for nothing.
        let bytes = if bytes < 0 && is_bounded {
            i32::MAX
        } else {
            bytes
        };
        word.store(bytes.max(smallest) as u32, Ordering::Relaxed);
    }
    if let Ok(stream) = stream::find(fd) {
        share_buffers(socket, stream.peer, stream.slot);
        if stream.outbound().is_any_space_wanted() {
            stream.peer.ring_our_writers(stream.slot);
        }
    }
}

/// A direction of which nothing larger is promised can be full with so many bytes.
const LOW_WATER_MAX: i32 = 16_384;

/// From how many bytes on a connection is readable.
fn note_low_water(socket: &Socket, option: (i32, i32), value: &[u8]) {
    if option != (libc::SOL_SOCKET, libc::SO_RCVLOWAT) {
        return;
    }
    let Some(bytes) = int(value) else {
        return;
    };
    let bytes = if bytes < 0 { i32::MAX } else { bytes }.min(LOW_WATER_MAX);
    socket.low_water.store(bytes as u32, Ordering::Relaxed);
    socket.set(sockets::LOW_WATER, bytes > 1);
}

/// Completions are not reported here. Before there is a connection it goes to the kernel; programs know
/// that a socket may refuse, and send with copies then.
fn set_zero_copy(socket: &Socket, kind: Kind) -> Outcome {
    if kind != Kind::Unbound {
        return Outcome::Error(libc::EOPNOTSUPP);
    }
    socket.set(sockets::KERNEL_ONLY | sockets::DIRTY, true);
    Outcome::Kernel
}

/// Keeps an option that needs no kernel; false when it is another, or malformed.
fn remember(socket: &Socket, level: i32, name: i32, value: &[u8]) -> bool {
    if let Some((_, _, flag)) = SWITCHES.iter().find(|(l, n, _)| (*l, *n) == (level, name)) {
        return int(value)
            .map(|on| shadow::switch(socket, *flag, on != 0))
            .is_some();
    }
    if level != libc::SOL_SOCKET {
        return false;
    }
    match name {
        libc::SO_LINGER => {
            let (Some(on), Some(seconds)) = (int(value), value.get(4..).and_then(int)) else {
                return false;
            };
            // Switched off, it keeps the time that it had.
            if on != 0 {
                // A negative time is one without an end.
                let seconds = if seconds < 0 { i32::MAX } else { seconds };
                socket.linger_s.store(seconds as u32, Ordering::Relaxed);
            }
            socket.set(sockets::LINGER, on != 0);
            true
        }
        libc::SO_RCVTIMEO | libc::SO_SNDTIMEO => {
            let Some(ns) = timeval_ns(value) else {
                return false;
            };
            let is_receive = name == libc::SO_RCVTIMEO;
            let word = if is_receive {
                &socket.receive_timeout_ns
            } else {
                &socket.send_timeout_ns
            };
            word.store(ns, Ordering::Relaxed);
            true
        }
        _ => false,
    }
}

/// A connection has come from another process, whose times and low-water mark its shadow has.
pub fn adopt(fd: i32, socket: &Socket) {
    let option = (libc::SOL_SOCKET, libc::SO_RCVLOWAT);
    if let Ok(bytes) = kernel::option_int(fd, option.0, option.1) {
        note_low_water(socket, option, &bytes.to_ne_bytes());
    }
    for (name, word) in [
        (libc::SO_RCVTIMEO, &socket.receive_timeout_ns),
        (libc::SO_SNDTIMEO, &socket.send_timeout_ns),
    ] {
        let mut value = [0; 16];
        let is_known = kernel::option(fd, libc::SOL_SOCKET, name, &mut value).is_ok();
        if let Some(ns) = timeval_ns(&value).filter(|_| is_known) {
            word.store(ns, Ordering::Relaxed);
        }
    }
}

/// A listener has come from another process. Connections that it accepts have its options, which its shadow has.
pub fn adopt_listener(fd: i32, socket: &Socket) {
    /// Of linux/socket.h: which sizes of buffers were set, as bits in this order.
    const SO_BUF_LOCK: i32 = 72;
    let int = |level, name| kernel::option_int(fd, level, name).unwrap_or(0);
    adopt(fd, socket);
    for (level, name, flag) in SWITCHES {
        shadow::switch(socket, *flag, int(*level, *name) != 0);
    }
    let mut linger = [0; 8];
    if kernel::option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &mut linger).is_ok() {
        remember(socket, libc::SOL_SOCKET, libc::SO_LINGER, &linger);
    }
    let is_set = int(libc::SOL_SOCKET, SO_BUF_LOCK);
    for (bit, name, word) in [
        (1, libc::SO_SNDBUF, &socket.send_buffer),
        (2, libc::SO_RCVBUF, &socket.receive_buffer),
    ] {
        if is_set & bit != 0 {
            // The kernel doubles what it is given.
            word.store(int(libc::SOL_SOCKET, name) as u32 / 2, Ordering::Relaxed);
        }
    }
}

fn timeval_ns(value: &[u8]) -> Option<u64> {
    let seconds = i64::from_ne_bytes(value.get(..8)?.try_into().ok()?);
    let micros = i64::from_ne_bytes(value.get(8..16)?.try_into().ok()?);
    if !(0..1_000_000).contains(&micros) {
        return None;
    }
    // The kernel takes a negative time for one that is over at once.
    let Ok(seconds) = u64::try_from(seconds) else {
        return Some(AT_ONCE_NS);
    };
    let whole_ns = seconds.saturating_mul(1_000_000_000);
    Some(whole_ns.saturating_add(micros as u64 * 1000))
}

/// getsockopt(2): the value's bytes, or the kernel's answer.
pub fn get(fd: i32, level: i32, name: i32) -> Result<Vec<u8>, Outcome> {
    let (socket, kind) = object(fd)?;
    if let Some(told) = (kind == Kind::Connected)
        .then(|| transport::get(fd, (level, name)))
        .flatten()
    {
        return Ok(told);
    }
    if let Some((_, _, flag)) = SWITCHES.iter().find(|(l, n, _)| (*l, *n) == (level, name)) {
        return Ok(i32::from(shadow::is_on(socket, *flag))
            .to_ne_bytes()
            .to_vec());
    }
    match (level, name) {
        (libc::SOL_TCP, libc::TCP_SAVE_SYN) if keeps_syns(socket, kind) => {
            Ok(0i32.to_ne_bytes().to_vec())
        }
        (libc::SOL_SOCKET, libc::SO_ERROR) if kind == Kind::Connected => {
            Ok(pending_error(fd).to_ne_bytes().to_vec())
        }
        (libc::SOL_SOCKET, libc::SO_ERROR) if socket.take_dissolved() => {
            Ok(libc::ECONNRESET.to_ne_bytes().to_vec())
        }
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            let mut bytes = i32::from(socket.has(sockets::LINGER))
                .to_ne_bytes()
                .to_vec();
            bytes.extend(socket.linger_s.load(Ordering::Relaxed).to_ne_bytes());
            Ok(bytes)
        }
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
            Ok(timeval_bytes(socket.receive_timeout_ns.load(Ordering::Relaxed)).to_vec())
        }
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => {
            Ok(timeval_bytes(socket.send_timeout_ns.load(Ordering::Relaxed)).to_vec())
        }
        (libc::SOL_TCP, libc::TCP_INFO) if kind == Kind::Connected => Ok(tcp_info(fd, socket)),
        (libc::SOL_TCP, libc::TCP_INFO) if kind == Kind::Listener => listener_info(fd, socket),
        (libc::SOL_SOCKET, libc::SO_PEERNAME) if kind == Kind::Connected => {
            self::name(fd, true).map(|(bytes, length)| bytes[..length].to_vec())
        }
        (libc::SOL_IP, libc::IP_MTU) if kind == Kind::Connected && is_on_this_host(fd) => {
            Ok(LOOPBACK_MTU.to_ne_bytes().to_vec())
        }
        _ => {
            inherited::settle(fd, socket, (level, name));
            (kind == Kind::Connected)
                .then(|| of_loopback(fd, socket, (level, name)))
                .flatten()
                .map(|value| value.to_ne_bytes().to_vec())
                .ok_or(Outcome::Kernel)
        }
    }
}

/// Values that the kernel chooses as a connection within the host is opened, where the program has not: the shadow has
/// none.
fn of_loopback(fd: i32, socket: &Socket, option: (i32, i32)) -> Option<i32> {
    /// Of linux/socket.h: which sizes of buffers the program has set, since Linux 5.14.
    const SO_BUF_LOCK: i32 = 72;
    const SEND_LOCKED: i32 = 1;
    /// What a shadow says that was given no size.
    const SEGMENT_DEFAULT: i32 = 536;
    let is_ipv6 = socket.family.load(Ordering::Relaxed) == libc::AF_INET6;
    match option {
        (libc::SOL_IPV6, libc::IPV6_ADDRFORM) => is_ipv6.then_some(libc::AF_INET6),
        (libc::SOL_IPV6, libc::IPV6_MTU) => {
            (is_ipv6 && is_on_this_host(fd)).then_some(LOOPBACK_MTU)
        }
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
            let locked = kernel::option_int(fd, libc::SOL_SOCKET, SO_BUF_LOCK).ok()?;
            let is_chosen = locked & SEND_LOCKED != 0;
            (!is_chosen && is_on_this_host(fd)).then_some(LOOPBACK_SEND_BUFFER)
        }
        (libc::SOL_SOCKET, libc::SO_INCOMING_CPU) => {
            let known = kernel::option_int(fd, libc::SOL_SOCKET, libc::SO_INCOMING_CPU).ok()?;
            // As over the loopback, where the sender's processor handles a packet, it is any: the reader's is as good.
            (known < 0).then(|| kernel::processor().map_or(0, |processor| processor as i32))
        }
        (libc::SOL_TCP, libc::TCP_MAXSEG) => {
            let segment = kernel::option_int(fd, libc::SOL_TCP, libc::TCP_MAXSEG).ok()?;
            let is_chosen = segment != SEGMENT_DEFAULT;
            (!is_chosen && is_on_this_host(fd)).then(|| loopback_sizes(socket).0 as i32)
        }
        _ => None,
    }
}

/// Room for ten segments.
const LOOPBACK_SEND_BUFFER: i32 = 2_626_560;

/// What a path within the host carries in one piece.
const LOOPBACK_MTU: i32 = 65_536;

fn is_on_this_host(fd: i32) -> bool {
    stream::find(fd).is_ok_and(|stream| !stream.is_over_packets())
}

/// The error that is to be reported before anything is received, as recvmmsg(2) does.
pub fn take_error(fd: i32) -> Option<i32> {
    let (socket, kind) = object(fd).ok()?;
    let error = match kind {
        Kind::Connected => pending_error(fd),
        _ if socket.take_dissolved() => libc::ECONNRESET,
        _ => 0,
    };
    (error != 0).then_some(error)
}

/// The error is to be reported by the next call: of several messages the first has come, and recvmmsg(2) says so.
pub fn keep_error(fd: i32, error: i32) {
    if let Ok(stream) = stream::find(fd) {
        stream.keep_reset(error);
    }
}

fn pending_error(fd: i32) -> i32 {
    let found = stream::find(fd).ok();
    found.and_then(|stream| stream.take_reset()).unwrap_or(0)
}

/// The size of a segment over the loopback, and of its packet as TCP counts it.
fn loopback_sizes(socket: &Socket) -> (u32, u32) {
    match socket.remote.load() {
        SocketAddr::V6(remote) if remote.ip().to_ipv4_mapped().is_none() => (65_464, 65_536),
        _ => (65_483, 65_535),
    }
}

/// Fields of `struct tcp_info` that have the size of a segment: tcpi_snd_mss, tcpi_rcv_mss, tcpi_rcv_ssthresh,
/// tcpi_advmss, tcpi_rcv_space.
const SEGMENT_INFO: [usize; 5] = [16, 20, 64, 84, 96];
/// tcpi_pmtu.
const PACKET_INFO: usize = 60;

/// Fields of `struct tcp_info`, by their place in bytes, as a new connection over the loopback has them.
const LOOPBACK_INFO: [(usize, u32); 7] = [
    (8, 200_000),          // tcpi_rto
    (68, 1),               // tcpi_rtt
    (72, 1),               // tcpi_rttvar
    (76, i32::MAX as u32), // tcpi_snd_ssthresh: none yet
    (80, 10),              // tcpi_snd_cwnd
    (88, 3),               // tcpi_reordering
    (148, 1),              // tcpi_min_rtt
];

/// The state is the connection's own, the rest what is usual on this host: nothing is measured.
fn tcp_info(fd: i32, socket: &Socket) -> Vec<u8> {
    /// Timestamps, SACK and window scaling; both windows in units of 128 bytes.
    const OPTIONS: [u8; 4] = [0, 7, 0x77, 0];
    let state = stream::find(fd).map_or(CLOSE, |stream| state_number(&stream));
    let mut words = [0; INFO_WORDS];
    words[0] = u32::from_ne_bytes([state, 0, 0, 0]);
    words[1] = u32::from_ne_bytes(OPTIONS);
    for (at, value) in LOOPBACK_INFO {
        words[at / 4] = value;
    }
    let (segment, packet) = loopback_sizes(socket);
    words[PACKET_INFO / 4] = packet;
    for at in SEGMENT_INFO {
        words[at / 4] = segment;
    }
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// TCP_INFO of a listener as the kernel has it, and the connections that wait in segments.
fn listener_info(fd: i32, socket: &Socket) -> Result<Vec<u8>, Outcome> {
    /// Of `struct tcp_info`: tcpi_unacked, which is how many connections wait.
    const WAITING: core::ops::Range<usize> = 24..28;
    /// Larger than the structure of any kernel.
    const INFO_MAX: usize = 1024;
    let mut info = vec![0; INFO_MAX];
    let length = kernel::option(fd, libc::SOL_TCP, libc::TCP_INFO, &mut info);
    info.truncate(length.map_err(Outcome::Error)?);
    if let Some(word) = info.get_mut(WAITING) {
        let of_kernel = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        let ours = listener::of(socket).map_or(0, |listener| listener.waiting());
        word.copy_from_slice(&of_kernel.saturating_add(ours as u32).to_ne_bytes());
    }
    Ok(info)
}

/// Numbers of include/net/tcp_states.h.
const CLOSE: u8 = 7;

/// The state that a connection in shared memory has, as the kernel numbers it.
fn state_number(stream: &stream::Stream) -> u8 {
    const ESTABLISHED: u8 = 1;
    const FIN_WAIT2: u8 = 5;
    const CLOSE_WAIT: u8 = 8;
    let ends = stream.inbound_ends();
    let is_reset = ends & bypass_shm::layout::RST != 0 || stream.is_shut(sockets::WROTE_TO_CLOSED);
    match (ends != 0, stream.is_shut(sockets::SHUT_WRITE)) {
        (true, true) => CLOSE,
        _ if is_reset => CLOSE,
        (false, false) => ESTABLISHED,
        (false, true) => FIN_WAIT2,
        (true, false) => CLOSE_WAIT,
    }
}

/// getsockname(2) and getpeername(2): address bytes and their number.
pub fn name(fd: i32, is_peer: bool) -> Result<([u8; 28], usize), Outcome> {
    let (socket, kind) = object(fd)?;
    let mut bytes = [0u8; 28];
    match kind {
        Kind::Connected => {
            let has_no_peer = |stream: stream::Stream| socket.is_in_progress() || is_over(&stream);
            if is_peer && stream::find(fd).is_ok_and(has_no_peer) {
                return Err(Outcome::Error(libc::ENOTCONN));
            }
            let address = if is_peer {
                &socket.remote
            } else {
                &socket.local
            };
            let family = socket.family.load(Ordering::Relaxed);
            let length = address::to_bytes(address.load(), family, &mut bytes);
            Ok((bytes, length))
        }
        _ if is_peer => Err(Outcome::Error(libc::ENOTCONN)),
        _ => Err(Outcome::Kernel),
    }
}

/// Reset, or ended in both directions.
fn is_over(stream: &stream::Stream) -> bool {
    let ends = stream.inbound_ends();
    ends & bypass_shm::layout::RST != 0
        || stream.is_shut(sockets::WROTE_TO_CLOSED)
        || (ends != 0 && stream.is_shut(sockets::SHUT_WRITE))
}

/// fcntl(2) of the commands that concern a socket's flags.
pub fn fcntl(fd: i32, command: i32, argument: usize) -> Outcome {
    let (socket, kind) = match object(fd) {
        Ok(found) => found,
        Err(outcome) => return outcome,
    };
    let flag = |flag, value| if socket.has(flag) { value } else { 0 };
    match command {
        libc::F_GETFL if kind == Kind::Listener && socket.has(sockets::SHARED) => Outcome::Kernel,
        libc::F_GETFL => {
            let is_nonblocking = match is_shared(socket, kind) {
                true if stream::is_file_nonblocking(table::get(fd).index(), fd) => libc::O_NONBLOCK,
                true => 0,
                false => flag(sockets::NONBLOCK, libc::O_NONBLOCK),
            };
            let is_async = flag(sockets::ASYNC, libc::O_ASYNC);
            Outcome::Done((libc::O_RDWR | is_nonblocking | is_async) as isize)
        }
        libc::F_SETFL => {
            let wanted = argument as i32;
            set_nonblocking(fd, socket, kind, wanted & libc::O_NONBLOCK != 0);
            signals::switch(fd, wanted & libc::O_ASYNC != 0)
        }
        libc::F_GETFD | libc::F_SETFD
            if kind == Kind::Listener || socket.has(sockets::DUPLICATED) =>
        {
            Outcome::Kernel
        }
        libc::F_GETFD => Outcome::Done(flag(sockets::CLOEXEC, libc::FD_CLOEXEC) as isize),
        libc::F_SETFD => {
            socket.set(sockets::CLOEXEC, argument as i32 & libc::FD_CLOEXEC != 0);
            Outcome::Done(0)
        }
        libc::F_SETOWN | F_SETOWN_EX => signals::set_owner(fd, command, argument),
        F_SETSIG => {
            socket.set(sockets::DIRTY, true);
            Outcome::Kernel
        }
        _ => Outcome::Kernel,
    }
}

/// Whether it is a connection that other processes hold too.
fn is_shared(socket: &Socket, kind: Kind) -> bool {
    kind == Kind::Connected && socket.has(sockets::SHARED)
}

fn set_nonblocking(fd: i32, socket: &Socket, kind: Kind, on: bool) {
    socket.set(sockets::NONBLOCK, on);
    if is_shared(socket, kind) {
        shadow::set_nonblocking(fd, on);
    }
}

/// What ioctl(2) of one int does, for the requests that concern streams.
pub fn ioctl(fd: i32, request: u64, value: i32) -> Result<i32, Outcome> {
    let (socket, kind) = object(fd)?;
    match request {
        SIOCATMARK if kind == Kind::Connected => {
            Ok(i32::from(urgent::is_at_mark(&stream::find(fd)?)))
        }
        libc::FIONBIO => {
            set_nonblocking(fd, socket, kind, value != 0);
            if kind == Kind::Listener {
                Err(Outcome::Kernel)
            } else {
                Ok(0)
            }
        }
        libc::FIOASYNC => match signals::switch(fd, value != 0) {
            Outcome::Done(_) => Ok(0),
            other => Err(other),
        },
        FIOSETOWN | SIOCSPGRP => match signals::set_owner(fd, libc::F_SETOWN, value as usize) {
            Outcome::Done(_) => Ok(0),
            other => Err(other),
        },
        libc::FIOCLEX | libc::FIONCLEX => {
            socket.set(sockets::CLOEXEC, request == libc::FIOCLEX);
            if kind == Kind::Listener || socket.has(sockets::DUPLICATED) {
                Err(Outcome::Kernel)
            } else {
                Ok(0)
            }
        }
        libc::FIONREAD | libc::TIOCOUTQ if kind == Kind::Connected => {
            let stream = stream::find(fd)?;
            let count = if request == libc::FIONREAD {
                stream::bytes_to_mark(&stream)
            } else {
                stream::unsent_bytes(&stream)
            };
            Ok(count as i32)
        }
        _ => Err(Outcome::Kernel),
    }
}
