//! How a connection ends: shutdown, close, and connect to nowhere.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use bypass_shm::layout::{FIN, RST};
use bypass_stats::Counter;

use super::{find, of_socket};
use crate::peer::{Bell, Peer};
use crate::table::{self, Entry, Kind};
use crate::wait::For;
use crate::{process, sockets, Outcome};

/// shutdown(2).
pub fn shutdown(fd: i32, how: i32) -> Outcome {
    let stream = match find(fd) {
        Ok(stream) => stream,
        Err(outcome) => return outcome,
    };
    if !(libc::SHUT_RD..=libc::SHUT_RDWR).contains(&how) {
        return Outcome::Error(libc::EINVAL);
    }
    let ends = stream.inbound_ends();
    let is_over = ends & FIN != 0 && stream.is_shut(sockets::SHUT_WRITE);
    if is_over || ends & RST != 0 || stream.is_shut(sockets::WROTE_TO_CLOSED) {
        return Outcome::Error(libc::ENOTCONN);
    }
    if how != libc::SHUT_WR {
        stream.set_shut(sockets::SHUT_READ);
    }
    if how != libc::SHUT_RD && !stream.is_shut(sockets::SHUT_WRITE) {
        stream.set_shut(sockets::SHUT_WRITE);
        let place = stream.peer.segment.slot(stream.slot);
        // Not before a writer has published what it is writing.
        let guard = stream.lock(For::Room);
        place.producer[stream.peer.side]
            .ends
            .fetch_or(FIN, Ordering::SeqCst);
        drop(guard);
        stream.peer.ring(stream.slot, Bell::Bytes);
    }
    stream.peer.ring_ourselves(stream.slot);
    Outcome::Done(0)
}

/// connect(2) to AF_UNSPEC: resets the connection; its descriptors are unconnected sockets again,
/// whose next call says ECONNRESET.
pub fn dissolve(fd: i32, entry: Entry) -> Outcome {
    unconnect(fd, entry);
    sockets::get(entry.index()).set(sockets::DISSOLVED, true);
    Outcome::Done(0)
}

/// Resets a connection, whose descriptors are unconnected sockets again.
pub fn unconnect(fd: i32, entry: Entry) {
    let socket = sockets::get(entry.index());
    socket.linger_s.store(0, Ordering::Relaxed);
    let had_linger = socket.has(sockets::LINGER);
    socket.set(sockets::LINGER, true);
    crate::epoll::forget(entry.index());
    end(entry.index());
    socket.set(sockets::LINGER, had_linger);
    let gone = sockets::SHUT_READ | sockets::SHUT_WRITE | sockets::WROTE_TO_CLOSED;
    socket.set(
        gone | sockets::RESET_TOLD | sockets::CONNECTING | sockets::SHARED | sockets::OPENING,
        false,
    );
    let fresh = Entry::new(Kind::Unbound, entry.index(), socket.life());
    if socket.descriptors.load(Ordering::Relaxed) == 1 {
        table::replace(fd, entry, fresh);
    } else {
        table::replace_all(entry, fresh);
    }
}

/// The last descriptor of a connection is closed: ends the stream as TCP does.
pub fn end(index: usize) {
    let Some(stream) = of_socket(index) else {
        return;
    };
    let socket = stream.socket;
    // No reader or writer is under way once both were ours; later ones see another generation.
    let reader = stream.lock(For::Bytes);
    let writer = stream.lock(For::Room);
    socket.generation.fetch_add(1, Ordering::AcqRel);
    let unread = stream.inbound().available(usize::MAX).unwrap_or(1) > 0;
    let is_abort = socket.has(sockets::LINGER) && socket.linger_s.load(Ordering::Relaxed) == 0;
    let ends = if unread || is_abort { RST | FIN } else { FIN };
    if ends & RST != 0 {
        process::count(Counter::Resets, 1);
    }
    stream.peer.set_socket(stream.slot, None);
    drop((reader, writer));
    stream.peer.ring_ourselves(stream.slot);
    stream.peer.let_go(stream.slot, ends);
    process::count(Counter::Closes, 1);
    retire(socket.peer.take());
}

/// Keeps a segment mapped for those who may still look.
pub fn retire(peer: Option<Arc<Peer>>) {
    if let Some(peer) = peer {
        crate::peer::retire(peer);
    }
}
