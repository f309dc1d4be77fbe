//! The holders of a socket: its descriptors, and calls that are in progress on it. The last one ends it.

use core::sync::atomic::Ordering;

use crate::listener;
use crate::packets;
use crate::peer::{self, trimming};
use crate::process::kept::{self, Keeper};
use crate::process::table::{self, Entry, Kind};
use crate::process::{pool, Outcome};
use crate::sockets::{self, Socket};
use crate::stream::{self, content, find, index_of, named, Stream};
use crate::wait::epoll;

/// Takes one descriptor away from what it meant; the family of a shadow that may be kept, and whether it
/// is as socket(2) made it.
pub fn release(fd: i32, entry: Entry) -> Option<(i32, bool)> {
    let index = entry.index();
    if entry.kind() == Kind::Epoll {
        epoll::close(index, fd);
        return None;
    }
    let socket = sockets::get(index);
    if socket.descriptors.fetch_sub(1, Ordering::AcqRel) != 1 {
        listener::closed_number(fd, entry);
        return None;
    }
    Some(finish(entry.kind(), index)).filter(|_| entry.kind() != Kind::Listener)
}

/// A call that was blocked on a connection has ended.
pub fn let_go(index: usize) {
    if count_down(index) {
        end_uncounted(index);
    }
}

/// The first half of [`let_go`], which waits for nothing: true when nothing means the connection any more, so that the
/// caller is to call [`end_uncounted`].
pub fn count_down(index: usize) -> bool {
    let descriptors = &sockets::get(index).descriptors;
    descriptors.fetch_sub(1, Ordering::AcqRel) == 1
}

/// The second half of [`let_go`].
pub fn end_uncounted(index: usize) {
    finish(Kind::Connected, index);
}

/// Nothing means this socket any more: its family, and whether its shadow is as socket(2) made it.
fn finish(kind: Kind, index: usize) -> (i32, bool) {
    let socket = sockets::get(index);
    let flags = socket.flags.load(Ordering::Relaxed);
    let family = socket.family.load(Ordering::Relaxed);
    epoll::forget(index);
    let mut lingering = None;
    match kind {
        Kind::Listener => {
            listener::close(socket.listener.load(Ordering::Relaxed) as usize);
        }
        Kind::Connected => {
            prove_by(socket);
            lingering = stream::end(index);
        }
        _ => {}
    }
    sockets::free(index);
    if let Some(lingering) = lingering {
        packets::linger(&lingering);
    }
    (family, flags & (sockets::DIRTY | sockets::BOUND) == 0)
}

/// An accepted connection ends in a process that has made no child for it: it makes none for others.
#[inline]
fn prove_by(socket: &Socket) {
    let peer = socket.peer().filter(|peer| peer.side == 1);
    let unknown = peer.filter(|peer| !peer.segment.is_proven());
    if unknown.is_some_and(|peer| peer.shows_no_children(true)) {
        if let Some(listener) = listener::of(socket) {
            listener.prove();
        }
    }
}

/// What a duplicate made by the kernel means: the same as the original.
pub fn share(old: Entry, new: i32) {
    match old.kind() {
        Kind::Unbound | Kind::Connected | Kind::Listener => {
            let socket = sockets::get(old.index());
            socket.descriptors.fetch_add(1, Ordering::AcqRel);
            socket.set(sockets::DIRTY, true);
            table::set(new, old);
        }
        Kind::Epoll => epoll::share(old.index(), new),
        _ => {
            table::set(new, Entry::KERNEL);
        }
    }
}

/// Keeps a connection that a call works on for longer: closing the number, or dup2 over it, leaves the
/// call its stream, as a file in use stays open in the kernel.
pub struct Hold {
    stream: Stream,
    /// Let go of while a handler runs that interrupts the call.
    is_kept: bool,
}

impl Hold {
    /// None when the connection was closed meanwhile.
    pub fn take(stream: Stream) -> Option<Self> {
        hold(&stream).then(|| Self {
            stream,
            is_kept: kept::begin(stream.name()),
        })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.is_kept || kept::end(self.stream.name()) {
            let_go(self.stream.index);
        }
    }
}

/// One more holds the connection; false when it was closed meanwhile.
fn hold(stream: &Stream) -> bool {
    let more = |count: u32| (count > 0).then_some(count + 1);
    let descriptors = &stream.socket.descriptors;
    let taken = descriptors.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
    // Another connection may have this object already: then its count goes back.
    let is_held = taken.is_ok() && stream.is_alive();
    if taken.is_ok() && !is_held {
        let_go(stream.index);
    }
    is_held
}

/// Says how a call that sleeps lets go of its connection. Before the first socket of a process.
pub fn provide() {
    kept::provide(Keeper {
        let_go: |name| let_go(index_of(name)),
        take: |name| named(name).is_some_and(|stream| hold(&stream)),
    });
    pool::provide_spare(|| content::give_descriptors_back() + peer::close_resting());
    trimming::provide(|index, work| {
        if let Some(stream) = stream::of_socket(index) {
            stream.visiting_writer(work);
        }
    });
}

/// Before a call goes into another round: see [`Hold`].
pub fn keep(held: &mut Option<Hold>, stream: &Stream) -> Result<(), i32> {
    if held.is_none() {
        *held = Some(Hold::take(*stream).ok_or(libc::EBADF)?);
    }
    Ok(())
}

/// The stream of a call: the one it is blocked on, or what `fd` means now.
pub fn current(fd: i32, held: &Option<Hold>) -> Result<Stream, Outcome> {
    held.as_ref()
        .map_or_else(|| find(fd), |hold| Ok(hold.stream))
}
