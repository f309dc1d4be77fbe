//! Listeners that survive exec, or that another process passed: this process becomes one more holder.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use bypass_sys::{kernel, numbers};

use super::{former, serving, sharing};
use crate::listener::{self, Listener};
use crate::operations::{listen, options, release};
use crate::process;
use crate::process::table;
use crate::service;
use crate::sockets::{self, Event};

/// Sockets that this program was started with, and their inodes.
pub fn inherited_sockets() -> Vec<(i32, u64)> {
    let Ok(all) = numbers::all() else {
        return looked_for();
    };
    let socket = |fd: i32| {
        let target = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        let inode = target
            .to_str()?
            .strip_prefix("socket:[")?
            .strip_suffix(']')?;
        Some((fd, inode.parse().ok()?))
    };
    all.into_iter().filter_map(socket).collect()
}

/// The same where there is no /proc, as in a chroot.
fn looked_for() -> Vec<(i32, u64)> {
    const NUMBERS_MAX: usize = 8192;
    let socket = |fd: i32| {
        let stat = kernel::fstat(fd).ok()?;
        (stat.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some((fd, stat.st_ino))
    };
    let numbers = kernel::descriptor_limit().min(NUMBERS_MAX) as i32;
    (0..numbers).filter_map(socket).collect()
}

/// At the start of a program: takes part in the listeners that it has inherited.
pub fn adopt_inherited() {
    for (fd, _) in inherited_sockets()
        .into_iter()
        .filter(|(fd, _)| is_listener(*fd))
    {
        let adopted = adopt(fd);
        // Another thread may have accepted as one called exec.
        adopted.inspect(|listener| former::free_lock(listener.accepting()));
    }
}

/// Another process has passed us a listening socket.
pub fn received(fd: i32) {
    let Ok(inode) = kernel::fstat(fd).map(|stat| stat.st_ino) else {
        return;
    };
    let known = listener::all().into_iter().find(|one| one.inode == inode);
    if let Some(known) = known {
        let own = known.fd.load(Ordering::Relaxed);
        return release::share(table::get(own), fd);
    }
    let was_running = service::is_running();
    if adopt(fd).is_none() {
        return;
    }
    if was_running {
        // Ask the other holders which clients they know; a service that is starting asks without this call.
        serving::ask_others(inode);
    }
}

/// Whether `fd` is a TCP socket that listens.
pub fn is_listener(fd: i32) -> bool {
    let is = |name, wanted: &[i32]| {
        kernel::option_int(fd, libc::SOL_SOCKET, name).is_ok_and(|value| wanted.contains(&value))
    };
    is(libc::SO_DOMAIN, &[libc::AF_INET, libc::AF_INET6])
        && is(libc::SO_PROTOCOL, &[libc::IPPROTO_TCP])
        && is(libc::SO_ACCEPTCONN, &[1])
}

fn adopt(fd: i32) -> Option<Arc<Listener>> {
    let settings = process::settings();
    if settings.dont_accelerate || !settings.tcp_server_loopback {
        return None;
    }
    let number = listener::join(fd)?;
    let family = kernel::option_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN).ok()?;
    let index = sockets::allocate(family, sockets::DIRTY)?;
    let socket = sockets::get(index);
    let flags = kernel::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0) as i32;
    // Listeners of ours are non-blocking underneath; programs that inherit them set what they want.
    socket.set(sockets::NONBLOCK, flags & libc::O_NONBLOCK != 0);
    socket.listener.store(number as u32, Ordering::Relaxed);
    socket.change(Event::Listen);
    options::adopt_listener(fd, socket);
    table::set(fd, socket.entry(index));
    listen::describe(fd, index, socket);
    sharing::share_listener(table::get(fd));
    listener::get(number)
}
