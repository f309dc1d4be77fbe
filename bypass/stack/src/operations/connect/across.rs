//! connect(2) to a listener of another network namespace that the shared directory names (EF_SHARE_DIR).
//!
//! The kernel connects first, so routes, packet filters and address translation decide. Its SYN carries a
//! [mark](crate::peer::marks), and the process that accepts the connection with this mark takes the slot. Until then a
//! connect that may not wait is in progress; one that may has returned, and the program's first write waits. The connection is
//! one in memory after that; the kernel's stays open as its shadow. Where the slot is not taken, the client withdraws it, and
//! the kernel handles the connection ([`undecided`]).
//!
//! A fork waits for the kernel's part, so that its child has the whole connection or none of it.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;

use bypass_shm::layout::RST;
use bypass_stats::Reason;
use bypass_sys::descriptor::Owned;
use bypass_sys::{address, kernel, numbers};

use super::undecided::{self, await_taker};
use super::{
    admit, leave_to_kernel, listens, must_not_wait, patience_ms, withdraw, Connected, Holder,
};
use crate::listener::published;
use crate::operations::shadow;
use crate::operations::shutdown::unconnect;
use crate::peer::{self, marks, Mark, Peer};
use crate::process::deadline::{shorter, timeout, Deadline};
use crate::process::table::{self, Entry};
use crate::process::{self, Outcome};
use crate::service;
use crate::sockets::{self, Event, Socket};
use crate::stream::{attach, show_opened};
use crate::wait::epoll;

/// How long the handshake may take before it is tried once more without a mark: the path may drop what carries options.
const HANDSHAKE: Duration = Duration::from_millis(100);

/// The listeners that the directory names for an address of another host or namespace.
pub(super) fn holders(target: SocketAddr) -> Result<Vec<Holder>, Reason> {
    let published = published::at(target);
    if published.is_empty() {
        return Err(Reason::NotLocal);
    }
    let ours = published.into_iter();
    let ours = ours.filter(|(_, uid)| process::may_share_with(*uid));
    let all: Vec<Holder> = ours.map(|(inode, uid)| Holder { inode, uid }).collect();
    if all.is_empty() {
        return Err(Reason::OtherUser);
    }
    // Of several namespaces with this address, the one that connections of this process have reached.
    let reached = all.iter().filter(|one| is_reached(one.inode));
    let reached: Vec<Holder> = reached.copied().collect();
    Ok(if reached.is_empty() { all } else { reached })
}

/// Whether a process of user `uid` listens at the other end of `link`. The directory alone does not show that: whoever may
/// write there can rename another user's files.
pub(super) fn is_of(link: i32, uid: u32) -> bool {
    kernel::peer_credentials(link).is_ok_and(|owner| owner.uid == uid)
}

/// Whether the socket `proof` is user `uid`'s, or was made for it by root.
pub(super) fn is_made_by(proof: i32, uid: u32) -> bool {
    kernel::fstat(proof).is_ok_and(|stat| stat.st_uid == uid || stat.st_uid == 0)
}

fn is_reached(inode: u64) -> bool {
    let mut peers = peer::all().into_iter();
    peers.any(|peer| {
        peer.side == 0 && peer.inode == inode && peer.is_reached.load(Ordering::Relaxed)
    })
}

/// Connects; a reason: the kernel is to do it, with a socket as it was.
pub(super) fn connect(
    fd: i32,
    entry: Entry,
    peer: &Arc<Peer>,
    target: SocketAddr,
) -> Result<Connected, Reason> {
    let socket = sockets::get(entry.index());
    // A second attempt from the same port could meet what the server remembers of the first.
    if socket.has(sockets::BOUND) {
        return Err(Reason::BoundAddress);
    }
    if socket.has(sockets::DIRTY) && marks::has_options(fd, target) {
        return Err(Reason::Option);
    }
    if peer.stays_short_of_places(patience_ms(socket)) {
        return Err(Reason::Limit);
    }
    admit(peer, patience_ms(socket))?;
    let opened = open(fd, entry, peer, target)?;
    let must_say = || !must_not_wait(socket) && process::must_fail(Reason::NotRecognised);
    if matches!(opened, Connected::Done) && must_say() {
        return Ok(once_decided(fd, entry));
    }
    Ok(opened)
}

/// Where the kernel may not get the connection, connect fails, and not a later call.
fn once_decided(fd: i32, entry: Entry) -> Connected {
    await_taker(fd);
    let (now, socket) = (table::get(fd), sockets::get(entry.index()));
    if now != socket.entry(entry.index()) || !socket.has(sockets::REFUSED) {
        return Connected::Done;
    }
    let error = socket.take_error().unwrap_or(libc::ECONNREFUSED);
    unconnect(fd, now);
    Connected::Failed(error)
}

/// Lets the kernel connect, and offers the connection to the process that accepts it.
fn open(fd: i32, entry: Entry, peer: &Arc<Peer>, target: SocketAddr) -> Result<Connected, Reason> {
    let socket = sockets::get(entry.index());
    let making = peer::making();
    // Before it is looked at: a thread that closes it after that does not keep the socket for another use.
    socket.set(sockets::DIRTY, true);
    let held = Held::take(fd, entry)?;
    if !held.is_open() {
        return Ok(Connected::Failed(libc::EBADF));
    }
    let entering = peer.begin_entering();
    if !listens(peer) {
        return Err(Reason::NoHolder);
    }
    let slot = peer.take_slot().ok_or(Reason::Limit)?;
    let mark = peer.offer_marked(slot, target);
    let reached = reach(held.file.0, socket, &mark, target);
    let is_open = held.is_open();
    if reached.is_ok() && is_open {
        return Ok(enter(&held, peer, &mark, target));
    }
    abandon(peer, slot);
    // Before what is known of the address is locked: a fork locks that, and then waits until no connection is being made.
    drop((entering, held, making));
    match reached {
        _ if !is_open => Ok(Connected::Failed(libc::EBADF)),
        // Another thread was faster.
        Err(error) if is_in_use(error) => Ok(Connected::Failed(error)),
        Err(error) if is_under_way(error) => Ok(go_on_in_kernel(fd, socket, target, error)),
        Err(libc::ETIMEDOUT) => {
            undecided::avoid(target, peer);
            Err(Reason::NotRecognised)
        }
        // A refusal says nothing about the path.
        _ => Err(Reason::NotRecognised),
    }
}

/// The call has ended before the handshake, which goes on in the kernel, without a mark from now on.
fn go_on_in_kernel(fd: i32, socket: &Socket, target: SocketAddr, error: i32) -> Connected {
    let (bytes, length) = bytes_of(socket, target);
    match leave_to_kernel(fd, &bytes[..length], Reason::NotRecognised) {
        Outcome::Error(refused) => {
            shadow::disconnect(fd);
            Connected::Failed(refused)
        }
        _ => Connected::Failed(error),
    }
}

/// Whether the kernel says so because another thread connects the same socket.
fn is_in_use(error: i32) -> bool {
    matches!(error, libc::EALREADY | libc::EISCONN)
}

/// Whether a signal, or SO_SNDTIMEO, has ended a connect that the kernel goes on with.
fn is_under_way(error: i32) -> bool {
    matches!(error, libc::EINTR | libc::EINPROGRESS)
}

/// The kernel's socket of a connect that waits. Another thread may close the number meanwhile, and open something else
/// under it.
struct Held {
    file: Owned,
    fd: i32,
    entry: Entry,
}

impl Held {
    fn take(fd: i32, entry: Entry) -> Result<Self, Reason> {
        let file = numbers::duplicate(fd).map_err(|_| Reason::Limit)?;
        table::hide(file.0);
        Ok(Self { file, fd, entry })
    }

    /// Whether the number is the socket's still.
    fn is_open(&self) -> bool {
        table::get(self.fd) == self.entry
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        table::show(self.file.0);
    }
}

/// The socket becomes a connection that is being opened, until a server's process takes its other end.
fn enter(held: &Held, peer: &Arc<Peer>, mark: &Mark, target: SocketAddr) -> Connected {
    let slot = mark.slot();
    let (fd, entry) = (held.fd, held.entry);
    let index = entry.index();
    let socket = sockets::get(index);
    if !socket.change(Event::Open) {
        // Another thread was faster.
        abandon(peer, slot);
        return Connected::Failed(libc::EISCONN);
    }
    // Before others see the connection: it is in progress, or stands.
    socket.set(sockets::CONNECTING, must_not_wait(socket));
    socket.mark.store(mark.number(), Ordering::Relaxed);
    if let Some(local) = sockets::kernel_name(held.file.0) {
        peer.segment.slot(slot).names.of[0].store(local);
        socket.local.store(local);
    }
    socket.remote.store(target);
    attach(fd, index, peer, slot);
    let connected = table::get(fd);
    if socket.has(sockets::DUPLICATED) {
        table::replace_all(entry, connected);
    }
    service::watch_shadow(fd, index, socket.life());
    show_opened(index);
    epoll::connected(index);
    undecided::begin();
    Connected::Done
}

/// Nobody is to take the slot; whoever has done so finds a reset.
fn abandon(peer: &Arc<Peer>, slot: usize) {
    match peer.take_offer_back(slot) {
        true => withdraw(peer, slot),
        false => peer.let_go(slot, RST),
    }
}

/// The kernel's handshake, with the mark in its SYN. If it fails, the socket is unconnected again: its next attempt comes
/// from another port.
fn reach(fd: i32, socket: &Socket, mark: &Mark, target: SocketAddr) -> Result<(), i32> {
    shadow::apply_to_file(fd, socket);
    // A process that may not is as a path that drops it.
    mark.put(fd, target).map_err(|_| libc::ETIMEDOUT)?;
    let blocks = !socket.has(sockets::NONBLOCK);
    if blocks {
        shadow::set_nonblocking(fd, true);
    }
    let (bytes, length) = bytes_of(socket, target);
    let reached = match kernel::connect(fd, &bytes[..length]) {
        Err(libc::EINPROGRESS) => until_connected(fd, socket),
        other => other.map(drop),
    };
    if blocks {
        shadow::set_nonblocking(fd, false);
    }
    marks::clear(fd, target);
    if reached.is_err_and(|error| !is_in_use(error) && !is_under_way(error)) {
        shadow::disconnect(fd);
    }
    reached
}

/// An address as the kernel takes it for a socket, and its length.
fn bytes_of(socket: &Socket, target: SocketAddr) -> ([u8; 28], usize) {
    let mut bytes = [0; 28];
    let family = socket.family.load(Ordering::Relaxed);
    let length = address::to_bytes(target, family, &mut bytes);
    (bytes, length)
}

fn until_connected(fd: i32, socket: &Socket) -> Result<(), i32> {
    let end = Deadline::after(Some(HANDSHAKE));
    // The program's call ends as in the kernel.
    let send_timeout_ns = socket.send_timeout_ns.load(Ordering::Relaxed);
    let own = (!must_not_wait(socket)).then(|| timeout(send_timeout_ns));
    let is_late = || own.and_then(Deadline::left) == Some(Duration::ZERO);
    let mut one = [libc::pollfd {
        fd,
        events: libc::POLLOUT,
        revents: 0,
    }];
    loop {
        let left = shorter(end.left(), own.and_then(Deadline::left));
        match kernel::poll(&mut one, left, None) {
            Ok(0) | Err(libc::EINTR) if own.is_some_and(Deadline::is_interrupted) => {
                return Err(libc::EINTR);
            }
            Ok(0) if is_late() => return Err(libc::EINPROGRESS),
            Ok(0) => return Err(libc::ETIMEDOUT),
            Err(libc::EINTR) => {}
            Ok(_) if one[0].revents & (libc::POLLERR | libc::POLLHUP) == 0 => return Ok(()),
            _ => break,
        }
    }
    match kernel::option_int(fd, libc::SOL_SOCKET, libc::SO_ERROR)? {
        0 => Ok(()),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_the_owner_of_a_published_name_may_answer_under_it() {
        let (ours, _theirs) = UnixStream::pair().expect("two sockets");
        let link = ours.as_raw_fd();
        let own = kernel::fstat(link).expect("a socket").st_uid;
        assert!(is_of(link, own) && is_made_by(link, own));
        assert!(!is_of(link, own + 1));
        assert_eq!(is_made_by(link, own + 1), own == 0);
    }
}
