//! Descriptors come and go: socket, bind, close, dup, close_range, epoll_create.

use bypass_stats::Reason;
use bypass_sys::sandbox::is_confined;
use bypass_sys::{kernel, numbers};

use super::datagrams;
use super::release::{release, share};
use crate::listener;
use crate::process::table::{self, Entry, Kind};
use crate::process::{self, choices, namespace, pool, Outcome};
use crate::sockets::{self, Event};
use crate::wait::epoll;

/// socket(2): TCP over IP is accelerated from the start; every other socket is left to the kernel.
pub fn socket(family: i32, kind: i32, protocol: i32) -> Outcome {
    let is_ip = family == libc::AF_INET || family == libc::AF_INET6;
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let is_tcp =
        kind & !flags == libc::SOCK_STREAM && (protocol == 0 || protocol == libc::IPPROTO_TCP);
    let is_refused = process::settings().dont_accelerate || choices::is_left_to_kernel();
    if !is_ip || !is_tcp || is_refused || is_confined() {
        return Outcome::Kernel;
    }
    if namespace::has_left() {
        process::fall_back(Reason::Namespace);
        return Outcome::Kernel;
    }
    process::number();
    let fd = match pool::take(family) {
        Ok(fd) => fd,
        Err(error) => return Outcome::Error(error),
    };
    let mut own = if kind & libc::SOCK_NONBLOCK != 0 {
        sockets::NONBLOCK
    } else {
        0
    };
    own |= if kind & libc::SOCK_CLOEXEC != 0 {
        sockets::CLOEXEC
    } else {
        0
    };
    let room = (fd as usize) < table::NUMBERS_MAX;
    match room.then(|| sockets::allocate(family, own)).flatten() {
        Some(index) => {
            table::set(fd, sockets::get(index).entry(index));
        }
        None => {
            table::set(fd, Entry::KERNEL);
            process::fall_back(Reason::Limit);
            let nonblock = if kind & libc::SOCK_NONBLOCK != 0 {
                libc::O_NONBLOCK
            } else {
                0
            };
            let _ = kernel::fcntl(fd, libc::F_SETFL, (libc::O_RDWR | nonblock) as usize);
            let cloexec = if kind & libc::SOCK_CLOEXEC != 0 {
                libc::FD_CLOEXEC
            } else {
                0
            };
            let _ = kernel::fcntl(fd, libc::F_SETFD, cloexec as usize);
        }
    }
    Outcome::Done(fd as isize)
}

/// bind(2): the kernel reserves the port; [`bound`] takes note of what it has done.
pub fn bind(fd: i32) -> Outcome {
    match table::get(fd).kind() {
        Kind::Connected => Outcome::Error(libc::EINVAL),
        Kind::Pooled | Kind::Internal => Outcome::Error(libc::EBADF),
        _ => Outcome::Kernel,
    }
}

/// The kernel has bound the shadow of `fd`.
pub fn bound(fd: i32) {
    let entry = table::get(fd);
    if entry.kind() == Kind::Unbound {
        sockets::get(entry.index()).change(Event::Bind);
    }
}

/// epoll_create1(2).
pub fn epoll_create(flags: i32) -> Outcome {
    let make = || {
        let _holding = numbers::hold();
        kernel::epoll_create1(flags)
    };
    match pool::for_program(make) {
        Ok(fd) => {
            epoll::register(fd as i32);
            Outcome::Done(fd as isize)
        }
        Err(error) => Outcome::Error(error),
    }
}

/// close(2).
pub fn close(fd: i32) -> Outcome {
    let entry = table::get(fd);
    match entry.kind() {
        Kind::Kernel => return Outcome::Kernel,
        Kind::Datagram => {
            datagrams::close(fd);
            return Outcome::Kernel;
        }
        Kind::Pooled | Kind::Internal => return Outcome::Error(libc::EBADF),
        _ => {}
    }
    if !table::replace(fd, entry, Entry::new(Kind::Pooled, 0, 0)) {
        return Outcome::Error(libc::EBADF);
    }
    let own = process::number();
    let released = release(fd, entry);
    if process::number() != own {
        // The child of a handler that ran while the close lingered has closed the number.
        return Outcome::Done(0);
    }
    match released {
        Some((family, is_clean)) => pool::give(fd, family, is_clean),
        None => {
            table::set(fd, Entry::KERNEL);
            let _ = kernel::close(fd);
            pool::closed(fd);
            if entry.kind() == Kind::Listener {
                listener::settle_waiting();
            }
        }
    }
    Outcome::Done(0)
}

/// dup(2) and fcntl(F_DUPFD): `made` is what the kernel made of `fd`.
pub fn duplicated(fd: i32, made: i32) {
    let entry = table::get(fd);
    if entry.kind() == Kind::Datagram {
        return crate::datagrams::share(fd, made);
    }
    if matches!(entry.kind(), Kind::Unbound | Kind::Connected) {
        let socket = sockets::get(entry.index());
        if !socket.has(sockets::DUPLICATED) {
            let cloexec = if socket.has(sockets::CLOEXEC) {
                libc::FD_CLOEXEC
            } else {
                0
            };
            let _ = kernel::fcntl(fd, libc::F_SETFD, cloexec as usize);
            socket.set(sockets::DUPLICATED, true);
        }
    }
    share(entry, made);
}

/// Whether the program may duplicate `fd` at all.
pub fn is_hidden(fd: i32) -> bool {
    matches!(table::get(fd).kind(), Kind::Pooled | Kind::Internal)
}

/// The number as the kernel is to see it: one that the program has closed is none, for which the kernel has the error.
pub fn visible(fd: i32) -> i32 {
    match is_hidden(fd) {
        true => -1,
        false => fd,
    }
}

/// Before dup2(2): what `new` meant is over, its number is about to be the kernel's. False when
/// the number is the library's and not available.
pub fn clear(new: i32) -> bool {
    let entry = table::get(new);
    match entry.kind() {
        Kind::Kernel => true,
        Kind::Datagram => {
            datagrams::close(new);
            true
        }
        Kind::Internal => false,
        Kind::Pooled => {
            pool::remove(new);
            true
        }
        _ => {
            if table::replace(new, entry, Entry::KERNEL) {
                release(new, entry);
            }
            true
        }
    }
}

/// close_range(2) with CLOSE_RANGE_CLOEXEC: what F_GETFD will say.
pub fn mark_cloexec(first: u32, last: u32) {
    for fd in first..(table::used() as u32).min(last.saturating_add(1)) {
        let entry = table::get(fd as i32);
        if matches!(
            entry.kind(),
            Kind::Unbound | Kind::Connected | Kind::Listener
        ) {
            sockets::get(entry.index()).set(sockets::CLOEXEC, true);
        }
    }
}

/// close_range(2) without flags: closes accelerated descriptors one by one and reports the ranges left to the kernel.
pub fn close_range(first: u32, last: u32, mut close_kernel: impl FnMut(u32, u32)) {
    let end = (table::used() as u32).min(last.saturating_add(1));
    let mut start = first;
    for fd in first..end {
        match table::get(fd as i32).kind() {
            Kind::Kernel => continue,
            Kind::Datagram => {
                datagrams::close(fd as i32);
                continue;
            }
            Kind::Internal | Kind::Pooled => {}
            _ => {
                close(fd as i32);
            }
        }
        if fd > start {
            close_kernel(start, fd - 1);
        }
        start = fd + 1;
    }
    if start <= last {
        close_kernel(start, last);
    }
    pool::closed(i32::try_from(first).unwrap_or(i32::MAX));
}
