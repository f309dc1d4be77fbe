//! The kernel's socket behind one of ours, made what the program believes it to be.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::sync::atomic::Ordering;
use std::sync::OnceLock;

use bypass_stats::{About, Call, Reason};
use bypass_sys::{address, directory, kernel, numbers, signals};

use super::inherited;
use crate::process::deadline::AT_ONCE_NS;
use crate::process::table::{self, Entry, Kind};
use crate::process::{self, Outcome};
use crate::sockets::{self, Socket};
use crate::stream::{For, Stream};
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
    (libc::SOL_TCP, libc::TCP_QUICKACK, sockets::LATE_ACKS),
];

/// Whether a switch is on: one flag says that it was switched off.
pub fn is_on(socket: &Socket, flag: u32) -> bool {
    socket.has(flag) != (flag == sockets::LATE_ACKS)
}

/// Remembers a switch.
pub fn switch(socket: &Socket, flag: u32, on: bool) {
    socket.set(flag, on != (flag == sockets::LATE_ACKS));
}

/// Sets O_NONBLOCK of a shadow's file, which is where all processes look that hold it.
pub fn set_nonblocking(fd: i32, on: bool) {
    let flag = if on { libc::O_NONBLOCK } else { 0 };
    let _ = kernel::fcntl(fd, libc::F_SETFL, (libc::O_RDWR | flag) as usize);
}

/// Gives the shadow what was only remembered.
pub fn apply(fd: i32, socket: &Socket) {
    apply_to_file(fd, socket);
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

/// The same where the program may have switched off since what an earlier call has given the shadow.
pub fn apply_again(fd: i32, socket: &Socket) {
    for (level, name, flag) in SWITCHES {
        if !socket.has(*flag) {
            let value = i32::from(is_on(socket, *flag));
            let _ = kernel::set_option_int(fd, *level, *name, value);
        }
    }
    set_linger(fd, socket);
    apply_times(fd, socket);
    apply(fd, socket);
}

/// Gives the shadow SO_LINGER.
pub fn set_linger(fd: i32, socket: &Socket) {
    let seconds = socket.linger_s.load(Ordering::Relaxed) as i32;
    let mut value = [0u8; 8];
    value[..4].copy_from_slice(&i32::from(socket.has(sockets::LINGER)).to_ne_bytes());
    value[4..].copy_from_slice(&seconds.to_ne_bytes());
    let _ = kernel::set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &value);
}

/// The same, but for what belongs to the number (close-on-exec).
pub fn apply_to_file(fd: i32, socket: &Socket) {
    socket.set(sockets::DIRTY, true);
    for (level, name, flag) in SWITCHES {
        if socket.has(*flag) {
            let value = i32::from(is_on(socket, *flag));
            let _ = kernel::set_option_int(fd, *level, *name, value);
        }
    }
    if socket.has(sockets::LINGER) {
        set_linger(fd, socket);
    }
    let times = [&socket.receive_timeout_ns, &socket.send_timeout_ns];
    if times.iter().any(|time| time.load(Ordering::Relaxed) != 0) {
        apply_times(fd, socket);
    }
    let flag = |flag, value| if socket.has(flag) { value } else { 0 };
    let flags = flag(sockets::NONBLOCK, libc::O_NONBLOCK) | flag(sockets::ASYNC, libc::O_ASYNC);
    let _ = kernel::fcntl(fd, libc::F_SETFL, (libc::O_RDWR | flags) as usize);
}

/// Gives the shadow SO_RCVTIMEO and SO_SNDTIMEO.
pub fn apply_times(fd: i32, socket: &Socket) {
    for (name, word) in [
        (libc::SO_RCVTIMEO, &socket.receive_timeout_ns),
        (libc::SO_SNDTIMEO, &socket.send_timeout_ns),
    ] {
        let value = match word.load(Ordering::Relaxed) {
            AT_ONCE_NS => negative_timeval(),
            ns => timeval_bytes(ns),
        };
        let _ = kernel::set_option(fd, libc::SOL_SOCKET, name, &value);
    }
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
    epoll::move_to_kernel(index, || ());
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

/// Ends the kernel's connection behind a socket, which is an unconnected one then.
pub fn disconnect(fd: i32) {
    let mut nowhere = [0; 16];
    nowhere[..2].copy_from_slice(&(libc::AF_UNSPEC as u16).to_ne_bytes());
    let _ = kernel::connect(fd, &nowhere);
}

/// Whether listen(2) fails on this host for a socket that was connected once, as on later kernels: seen by one that
/// connects to itself. Without a loopback to connect over it is asked again.
#[cold]
pub fn listens_never_after_connect() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    if let Some(known) = ANSWER.get() {
        return *known;
    }
    let ask = || {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        let socket = numbers::high(|| kernel::socket(libc::AF_INET, kind, 0)).ok()?;
        let mut bytes = [0; 28];
        let at = (Ipv4Addr::LOCALHOST, 0).into();
        let length = address::to_bytes(at, libc::AF_INET, &mut bytes);
        kernel::bind(socket.0, &bytes[..length]).ok()?;
        let own = sockets::kernel_name(socket.0)?;
        let length = address::to_bytes(own, libc::AF_INET, &mut bytes);
        kernel::connect(socket.0, &bytes[..length]).ok()?;
        disconnect(socket.0);
        Some(kernel::listen(socket.0, 1) == Err(libc::EINVAL))
    };
    ask().is_some_and(|answer| *ANSWER.get_or_init(|| answer))
}

/// Whether the kernel has a connection behind a socket: between network namespaces.
pub fn is_connected(fd: i32) -> bool {
    directory::is_set() && kernel::peer_name(fd).is_ok()
}

/// Whether a call has failed because the kernel has got the connection since it began: between network namespaces.
#[cold]
pub fn is_handed_over(fd: i32, error: i32) -> bool {
    error == libc::EBADF && directory::is_set() && table::is_kernel(fd)
}

/// The outcome of a call that finds its connection gone before it has done anything.
#[cold]
pub fn closed_or_kernel(fd: i32) -> Outcome {
    match is_handed_over(fd, libc::EBADF) {
        true => Outcome::Kernel,
        false => Outcome::Error(libc::EBADF),
    }
}

/// The error of a call that has waited on a connection which another thread has dissolved meanwhile: its number means the
/// same socket still. As in the kernel a read leaves the error of the dissolved connection to the next call.
#[cold]
pub fn after_dissolving(fd: i32, stream: &Stream, what: For) -> i32 {
    let entry = table::get(fd);
    let is_same = matches!(entry.kind(), Kind::Unbound | Kind::Connected);
    let socket = stream.socket;
    match what {
        _ if !is_same || entry.index() != stream.index => libc::EBADF,
        For::Room if socket.has(sockets::DISSOLVED) => {
            socket.set(sockets::DISSOLVED, false);
            libc::ECONNRESET
        }
        _ => libc::EPIPE,
    }
}

/// A connection of the kernel's stays with other processes: here its number means a socket without one.
pub fn detach(fd: i32) {
    let cloexec = kernel::fcntl(fd, libc::F_GETFD, 0).is_ok_and(|flags| flags != 0);
    let flags = if cloexec { libc::O_CLOEXEC } else { 0 };
    let family = kernel::option_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN);
    let fresh = family.and_then(|family| {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        numbers::high(|| kernel::socket(family, kind, 0))
    });
    if let Ok(fresh) = fresh {
        let _ = kernel::dup3(fresh.0, fd, flags);
    }
}

/// The socket is of another family from now on, and so is its shadow, unless other processes have that, too.
pub fn replace(fd: i32, socket: &Socket) {
    socket.set(sockets::DIRTY, true);
    if socket.has(sockets::SHARED) {
        return;
    }
    let family = socket.family.load(Ordering::Relaxed);
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    let Ok(fresh) = numbers::high(|| kernel::socket(family, kind, 0)) else {
        return;
    };
    inherited::copy_all(fd, fresh.0);
    // No listener's connections have these, but the same socket.
    let mark = kernel::option_int(fd, libc::SOL_SOCKET, libc::SO_MARK);
    if let Some(mark) = mark.ok().filter(|mark| *mark != 0) {
        let _ = kernel::set_option_int(fresh.0, libc::SOL_SOCKET, libc::SO_MARK, mark);
    }
    signals::copy_owner(fd, fresh.0);
    if socket.has(sockets::BOUND) && bind_beside(fd, fresh.0).is_none() {
        return;
    }
    for one in table::all(table::get(fd)) {
        let flags = kernel::fcntl(one, libc::F_GETFD, 0).unwrap_or(0) as i32;
        let close_on_exec = flags & libc::FD_CLOEXEC != 0;
        let flags = if close_on_exec { libc::O_CLOEXEC } else { 0 };
        let _ = kernel::dup3(fresh.0, one, flags);
    }
    apply_to_file(fd, socket);
}

/// Binds an IPv4 socket as an IPv6 one is bound that it is to replace, while that one has the port still.
fn bind_beside(former: i32, fresh: i32) -> Option<()> {
    let at = sockets::kernel_name(former)?;
    let at = SocketAddr::new(at.ip().to_canonical(), at.port());
    let at = match at.ip() {
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv4Addr::UNSPECIFIED, at.port()).into(),
        _ => at,
    };
    let (level, name) = (libc::SOL_SOCKET, libc::SO_REUSEPORT);
    let shares = kernel::option_int(former, level, name).ok()?;
    let share = |value| {
        for fd in [former, fresh] {
            let _ = kernel::set_option_int(fd, level, name, value);
        }
    };
    share(1);
    let mut bytes = [0; 28];
    let length = address::to_bytes(at, libc::AF_INET, &mut bytes);
    let bound = kernel::bind(fresh, &bytes[..length]);
    share(shares);
    bound.ok().map(drop)
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
