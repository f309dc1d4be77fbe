//! listen(2), and how it ends.

use core::sync::atomic::Ordering;

use bypass_shm::link;
use bypass_stats::{About, Call, Reason};
use bypass_sys::memory::Mapping;
use bypass_sys::waker::Name;
use bypass_sys::{directory, kernel};

use super::{release, shadow};
use crate::listener::{self, published, HOLDER_TABLE_BYTES};
use crate::packets;
use crate::peer;
use crate::process::table::{self, Entry, Kind};
use crate::process::{self, namespace, pool, uring, Outcome};
use crate::sockets::{self, Event, Socket};
use crate::wait::epoll;

/// listen(2).
pub fn listen(fd: i32, backlog: i32) -> Outcome {
    let entry = table::get(fd);
    let index = entry.index();
    // A negative one is a very large one, as in the kernel.
    let backlog = if backlog < 0 { i32::MAX } else { backlog };
    let backlog = backlog.max(process::settings().acceptq_min_backlog as i32);
    match entry.kind() {
        Kind::Unbound => {}
        Kind::Listener => {
            let result = kernel::listen(fd, backlog);
            if let Some(listener) = listener::of(sockets::get(index)).filter(|_| result.is_ok()) {
                listener.backlog.store(
                    listener::backlog_of(fd).unwrap_or(backlog as u32),
                    Ordering::Relaxed,
                );
                listener.publish_credits();
                listener::changed();
            }
            return result.into();
        }
        Kind::Connected => return Outcome::Error(libc::EINVAL),
        _ => return Outcome::Kernel,
    }
    let socket = sockets::get(index);
    let was_connected = socket.was_connected.load(Ordering::Relaxed) != 0;
    if was_connected && shadow::listens_never_after_connect() {
        return Outcome::Error(libc::EINVAL);
    }
    if let Err(error) = kernel::listen(fd, backlog) {
        return Outcome::Error(error);
    }
    if socket.has(sockets::CHOOSES) {
        listener::choose_by_program(fd);
    }
    shadow::apply(fd, socket);
    match open(
        fd,
        socket,
        listener::backlog_of(fd).unwrap_or(backlog as u32),
    ) {
        Ok(number) => {
            socket.listener.store(number as u32, Ordering::Relaxed);
            socket.change(Event::Listen);
            let listening = socket.entry(index);
            table::set(fd, listening);
            if socket.has(sockets::DUPLICATED) {
                table::replace_all(entry, listening);
            }
            describe(fd, index, socket);
            publish(number, fd, socket);
            epoll::add_to_kernel(index);
            // Now, before privileges are dropped.
            packets::open_interfaces();
            listener::changed();
        }
        Err(reason) => return leave_call_to_kernel(fd, reason),
    }
    Outcome::Done(0)
}

/// The socket listens in the kernel alone, unless the options forbid that.
#[cold]
fn leave_call_to_kernel(fd: i32, reason: Reason) -> Outcome {
    let about = About {
        call: Call::Listen,
        fd,
        address: sockets::kernel_name(fd),
        has_failed: false,
    };
    if process::must_fail(reason) {
        // As before listen(2): what has come meanwhile is reset.
        let _ = kernel::shutdown(fd, libc::SHUT_RD);
        process::refuse(reason, about);
        return Outcome::Error(libc::EOPNOTSUPP);
    }
    shadow::leave(reason, about);
    Outcome::Done(0)
}

/// For clients in other network namespaces.
fn publish(number: usize, fd: i32, socket: &Socket) {
    let at = directory::is_set().then(|| sockets::kernel_name(fd));
    if let (Some(listener), Some(at)) = (listener::get(number), at.flatten()) {
        if socket.has(sockets::KEEPS_SYNS) {
            listener.leave_syns();
        }
        published::publish(&listener, at);
    }
}

/// Says in the page of statistics what the listener is; in a child, which has a page of its own, too.
pub fn describe(fd: i32, index: usize, socket: &Socket) {
    if let Some(local) = sockets::kernel_name(fd) {
        socket.local.store(local);
    }
    if let Some(row) = process::stats().and_then(|stats| stats.row(index)) {
        row.local.store(socket.local.load());
        for (word, value) in [(&row.role, 3), (&row.path, 1), (&row.state, 1)] {
            word.store(value, Ordering::Relaxed);
        }
        row.fd.store(fd as u32 + 1, Ordering::Release);
    }
}

fn open(fd: i32, socket: &Socket, backlog: u32) -> Result<usize, Reason> {
    if !process::settings().tcp_server_loopback {
        return Err(Reason::SwitchedOff);
    }
    if socket.has(sockets::KERNEL_ONLY) {
        return Err(Reason::Option);
    }
    if namespace::has_left() {
        return Err(Reason::Namespace);
    }
    if uring::may_hide_sockets() {
        return Err(Reason::IoUring);
    }
    if peer::has_confined_holder() {
        return Err(Reason::Sandbox);
    }
    let stat = kernel::fstat(fd).map_err(|_| Reason::Sandbox)?;
    let port = sockets::kernel_name(fd).map_or(0, |name| name.port());
    if listener::joins_chosen_by_program(port, stat.st_ino) {
        return Err(Reason::Option);
    }
    // The listener is one for as long as it lives: what the pool keeps for later is not to leave it to the kernel.
    let name = Name::of_listener(stat.st_ino);
    let rendezvous = match pool::or_give_back(|| link::open_rendezvous(&name)) {
        Ok(rendezvous) => rendezvous,
        // Another process that has inherited the socket listens on it already.
        Err(libc::EADDRINUSE) => return listener::join(fd).ok_or(Reason::NameSquatted),
        Err(libc::EMFILE | libc::ENFILE) => return Err(Reason::Limit),
        Err(_) => return Err(Reason::Sandbox),
    };
    let make = || Mapping::create(c"wirespeed-holders", HOLDER_TABLE_BYTES);
    let holder_table = pool::or_give_back(make).map_err(|_| Reason::Limit)?;
    listener::enter(
        fd,
        stat.st_ino,
        stat.st_uid,
        backlog,
        rendezvous,
        holder_table,
    )
}

/// shutdown(2) of a listener ends it; the kernel handles the descriptor afterwards.
pub fn shutdown(fd: i32, how: i32) -> Outcome {
    let entry = table::get(fd);
    if let Err(error) = kernel::shutdown(fd, how) {
        return Outcome::Error(error);
    }
    if how != libc::SHUT_WR {
        // It is one file under all its numbers.
        for number in table::all(entry) {
            give_up(number, entry);
        }
        listener::settle_waiting();
    }
    Outcome::Done(0)
}

/// connect(2) of a listener to AF_UNSPEC ends it, too.
pub fn dissolve(fd: i32, entry: Entry) -> Outcome {
    shadow::disconnect(fd);
    for number in table::all(entry) {
        give_up(number, entry);
    }
    listener::settle_waiting();
    Outcome::Done(0)
}

/// One number of a listener means the kernel's from now on.
fn give_up(fd: i32, entry: Entry) {
    if table::replace(fd, entry, Entry::KERNEL) {
        epoll::leave_to_kernel(entry.index());
        release::release(fd, entry);
    }
}

/// Leaves a listener to the kernel, under all its numbers.
pub fn leave_to_kernel(fd: i32) {
    let about = About {
        call: Call::Listen,
        fd,
        address: sockets::kernel_name(fd),
        has_failed: false,
    };
    process::leave_to_kernel(Reason::Option, about);
    let entry = table::get(fd);
    for number in table::all(entry) {
        give_up(number, entry);
    }
    listener::settle_waiting();
    // The program may wait in the kernel from now on: engines end their listeners here.
    packets::ensure();
}
