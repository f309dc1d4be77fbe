//! O_ASYNC: signals that report what happens on a connection or a listener.
//!
//! The sockets that ask for them are members of one set, which the service thread watches. The shadow keeps the
//! owner to notify and the signal to send: F_SETOWN and F_SETSIG have put them there.

use core::time::Duration;
use std::sync::{Mutex, MutexGuard};

use bypass_sys::signals;
use bypass_sys::{kernel, numbers};

use super::descriptors;
use crate::listener;
use crate::process::table::{self, Entry, Kind};
use crate::process::{pool, Outcome};
use crate::service::{self, Role};
use crate::sockets;
use crate::stream::urgent;
use crate::wait::epoll::{self, Event};

/// A descriptor of the set; None until a socket asks for signals. Locked by whoever takes events out of it.
static SET: Mutex<Option<i32>> = Mutex::new(None);

const WATCHED: i32 =
    libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;

/// What is ready, and the events of poll(2) that the signal names.
const REASONS: &[(i32, i16)] = &[
    (libc::EPOLLIN, libc::POLLIN | libc::POLLRDNORM),
    (
        libc::EPOLLOUT,
        libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND,
    ),
    (libc::EPOLLERR, libc::POLLERR),
    (libc::EPOLLPRI, libc::POLLPRI | libc::POLLRDBAND),
    (libc::EPOLLHUP, libc::POLLHUP | libc::POLLERR),
];

fn lock() -> MutexGuard<'static, Option<i32>> {
    match SET.lock() {
        Ok(set) => set,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// Locks the set's number across a fork.
pub fn hold() -> impl Sized {
    SET.lock().ok()
}

/// In a forked child: the parent goes on sending signals, as the owner of the descriptor is the same.
pub fn forget() {
    let set = lock().take();
    if let Some(set) = set {
        let _ = descriptors::close(set);
    }
}

/// Signals for socket `fd` from now on. Events that are pending already are not reported.
pub fn begin(fd: i32) -> Result<(), i32> {
    service::start()?;
    let mut place = lock();
    let set = match *place {
        Some(set) if table::get(set).kind() == Kind::Epoll => set,
        _ => *place.insert(make()?),
    };
    let mark = mark(fd, table::get(fd));
    let event = Event {
        events: WATCHED as u32,
        data: mark,
    };
    match epoll::control(set, libc::EPOLL_CTL_ADD, fd, Some(event)) {
        Outcome::Done(_) | Outcome::Error(libc::EEXIST) => {}
        Outcome::Error(error) => return Err(error),
        Outcome::Kernel => return Err(libc::EOPNOTSUPP),
    }
    tell(set, Some(mark));
    Ok(())
}

/// No more signals for socket `fd`.
pub fn end(fd: i32) {
    if let Some(set) = *lock() {
        let _ = epoll::control(set, libc::EPOLL_CTL_DEL, fd, None);
    }
}

/// Reports what has happened. Called by the service thread when the set shows something.
pub fn look() {
    if let Some(set) = *lock() {
        tell(set, None);
    }
}

/// A set that the service thread watches through a duplicate, which it hides.
fn make() -> Result<i32, i32> {
    let set = pool::or_give_back(|| numbers::high(|| kernel::epoll_create1(libc::EPOLL_CLOEXEC)))?;
    let set = set.into_raw();
    epoll::register(set);
    if table::get(set).kind() != Kind::Epoll {
        let _ = kernel::close(set);
        return Err(libc::EOPNOTSUPP);
    }
    epoll::watch(table::get(set).index());
    let seen = pool::or_give_back(|| numbers::duplicate(set))?;
    service::add(seen.into_raw(), Role::Signals);
    Ok(set)
}

/// Descriptor, socket and life of a member in one word.
fn mark(fd: i32, entry: Entry) -> u64 {
    (fd as u64) << 40 | (entry.generation() as u64) << 16 | entry.index() as u64
}

/// A descriptor of the member: the one that asked, or another if that is closed.
fn descriptor(mark: u64) -> Option<(i32, Entry)> {
    let is_it = |entry: Entry| {
        let is_socket = matches!(entry.kind(), Kind::Connected | Kind::Listener);
        is_socket && mark & ((1 << 40) - 1) == self::mark(0, entry)
    };
    let fd = (mark >> 40) as i32;
    let entry = table::get(fd);
    if is_it(entry) {
        return Some((fd, entry));
    }
    let socket = sockets::get((mark & 0xffff) as usize);
    let entry = socket.entry((mark & 0xffff) as usize);
    let other = table::all(entry).next();
    other.filter(|_| is_it(entry)).map(|fd| (fd, entry))
}

/// Takes all events out of the set and sends their signals, but for those of member `but`.
fn tell(set: i32, but: Option<u64>) {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
    loop {
        let found = epoll::wait(set, &mut events, Some(Duration::ZERO), None);
        let Outcome::Done(count) = found else {
            return;
        };
        for event in &events[..count as usize] {
            let mark = event.u64;
            if Some(mark) != but {
                signal(mark, event.events as i32);
            }
        }
        if (count as usize) < events.len() {
            return;
        }
    }
}

fn signal(mark: u64, ready: i32) {
    let Some((fd, entry)) = descriptor(mark) else {
        return;
    };
    let socket = sockets::get(entry.index());
    if entry.kind() == Kind::Listener {
        // The kernel has already reported its own clients.
        let listener = listener::of(socket);
        if !listener.is_some_and(|listener| listener.has_acceptable()) {
            return;
        }
    }
    let Some(owner) = signals::owner_of(fd) else {
        return;
    };
    let chosen = signals::signal_of(fd);
    for (event, band) in REASONS {
        let is_told = match *event {
            libc::EPOLLOUT => socket.has(sockets::AWAITS_ROOM),
            _ => true,
        };
        if ready & event == 0 || !is_told {
            continue;
        }
        if *event == libc::EPOLLOUT {
            socket.set(sockets::AWAITS_ROOM, false);
        }
        let about = chosen.map(|_| (i64::from(*band), fd));
        signals::send(owner, chosen.unwrap_or(libc::SIGIO), about);
    }
}

/// F_SETOWN, F_SETOWN_EX and their ioctl: the shadow keeps the owner. [`urgent::share_owner`] reports it to the
/// connection's peer, which sends SIGURG.
pub fn set_owner(fd: i32, command: i32, argument: usize) -> Outcome {
    if let Err(error) = kernel::fcntl(fd, command, argument) {
        return Outcome::Error(error);
    }
    let entry = table::get(fd);
    let socket = sockets::get(entry.index());
    socket.set(sockets::DIRTY | sockets::OWNED, true);
    if entry.kind() == Kind::Connected {
        urgent::share_owner(fd, socket);
    }
    Outcome::Done(0)
}

/// Switches O_ASYNC on or off; Kernel where the shadow is to be switched as well.
pub fn switch(fd: i32, is_on: bool) -> Outcome {
    let entry = table::get(fd);
    let socket = sockets::get(entry.index());
    let was_on = socket.has(sockets::ASYNC);
    let done = match (entry.kind(), was_on, is_on) {
        // The kernel does it best, and before there is a connection it can be had.
        (Kind::Unbound, false, true) => {
            socket.set(sockets::DIRTY | sockets::KERNEL_ONLY, true);
            Ok(())
        }
        (Kind::Connected | Kind::Listener, false, true) => begin(fd),
        (Kind::Connected | Kind::Listener, true, false) => {
            end(fd);
            Ok(())
        }
        _ => Ok(()),
    };
    if let Err(error) = done {
        return Outcome::Error(error);
    }
    socket.set(sockets::ASYNC, is_on);
    match entry.kind() {
        Kind::Connected => Outcome::Done(0),
        Kind::Unbound if !was_on && !is_on => Outcome::Done(0),
        _ => Outcome::Kernel,
    }
}

/// How long the service thread may sleep while a member cannot wake it, as its wake-ups go to another set.
pub fn tick() -> Option<Duration> {
    let place = SET.try_lock().ok()?;
    let set = (*place)?;
    let why = epoll::must_be_looked_at(table::get(set).index());
    why.map(|_| Duration::from_millis(1))
}
