//! shutdown(2) of a connection, and connect to nowhere.

use core::sync::atomic::Ordering;

use super::shadow;
use crate::process::table::{self, Entry};
use crate::process::Outcome;
use crate::sockets::{self, Event};
use crate::stream::{self, find};
use crate::wait::epoll;

/// shutdown(2).
pub fn shutdown(fd: i32, how: i32) -> Outcome {
    let stream = match find(fd) {
        Ok(stream) => stream,
        Err(outcome) => return outcome,
    };
    if !(libc::SHUT_RD..=libc::SHUT_RDWR).contains(&how) {
        return Outcome::Error(libc::EINVAL);
    }
    if stream.socket.is_opening() && stream.is_over_packets() {
        // As the kernel does in SYN-SENT: the attempt is over, and a connect that waits for it.
        return dissolve(fd, table::get(fd));
    }
    if stream.is_over() {
        return Outcome::Error(libc::ENOTCONN);
    }
    stream.shut(how);
    Outcome::Done(0)
}

/// connect(2) to AF_UNSPEC: resets the connection, if it is not over; its descriptors are unconnected sockets again,
/// whose next call says ECONNRESET then. As in the kernel, it also does where the peer's reset was not reported yet.
pub fn dissolve(fd: i32, entry: Entry) -> Outcome {
    let owes_reset = stream::of_socket(entry.index())
        .is_some_and(|stream| !stream.is_over() || stream.take_reset() == Some(libc::ECONNRESET));
    // Before: a call that waits on it looks as soon as it has ended.
    sockets::get(entry.index()).set(sockets::DISSOLVED, owes_reset);
    unconnect(fd, entry);
    Outcome::Done(0)
}

/// Resets a connection, whose descriptors are unconnected sockets again.
pub fn unconnect(fd: i32, entry: Entry) {
    let socket = sockets::get(entry.index());
    let linger_s = socket.linger_s.swap(0, Ordering::Relaxed);
    let had_linger = socket.has(sockets::LINGER);
    socket.set(sockets::LINGER, true);
    let members = epoll::take(entry.index());
    // It has no time to linger now.
    drop(stream::end(entry.index()));
    socket.set(sockets::LINGER, had_linger);
    socket.linger_s.store(linger_s, Ordering::Relaxed);
    // Of the next connection none was fetched.
    socket.urgent_taken.store(0, Ordering::Relaxed);
    socket.was_connected.store(1, Ordering::Relaxed);
    socket.set(
        sockets::WROTE_TO_CLOSED | sockets::RESET_TOLD | sockets::CONNECTING | sockets::SHARED,
        false,
    );
    socket.change(Event::Dissolve);
    sockets::leave_row(entry.index());
    if shadow::is_connected(fd) {
        shadow::disconnect(fd);
    }
    let fresh = socket.entry(entry.index());
    if socket.descriptors.load(Ordering::Relaxed) == 1 {
        table::replace(fd, entry, fresh);
    } else {
        table::replace_all(entry, fresh);
    }
    epoll::put_back(members, fresh);
}
