//! Connections sent to another process with SCM_RIGHTS: the receiver gets the shadow, and asks at
//! the rendezvous socket of its inode for the connection behind it. Until then the sender keeps the end open.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use bypass_shm::holders::{self, Holders};
use bypass_shm::link::{self, Message, VERSION};
use bypass_shm::segment::Segment;
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;
use bypass_sys::sandbox::is_confined;
use bypass_sys::waker::Name;

use super::{handover, offers};
use crate::listener::participants;
use crate::operations::options;
use crate::peer::{self, Peer};
use crate::process;
use crate::process::table::{self, Kind};
use crate::service;
use crate::sockets;
use crate::stream::revive;

pub use offers::{offer, wait_for_receivers, Receipt};

/// How long a sender may take to answer. A receiver that gives up has a socket without its connection, so
/// this is far more than a loaded machine needs; the end of the sender is noticed at once.
const ANSWER_MS: u64 = 5000;

/// Whether a descriptor has to be offered before it is sent.
pub fn is_ours(fd: i32) -> bool {
    matches!(
        table::get(fd).kind(),
        Kind::Connected | Kind::Unbound | Kind::Listener
    )
}

/// `fd` was not sent after all.
pub fn take_back(fd: i32) {
    if table::get(fd).kind() == Kind::Connected {
        if let Ok(stat) = kernel::fstat(fd) {
            offers::withdraw(stat.st_ino);
        }
    }
}

/// A socket has arrived from another process: if it has a connection, this process shares it from now on;
/// if it is a listener, this process becomes another holder.
pub fn received(fd: i32, receipt: Receipt) {
    // A filter may forbid even to ask what it is.
    if process::settings().dont_accelerate || is_confined() || !table::is_kernel(fd) {
        return;
    }
    if handover::is_listener(fd) {
        return handover::received(fd);
    }
    let is = |name, wanted| kernel::option_int(fd, libc::SOL_SOCKET, name) == Ok(wanted);
    if is(libc::SO_PROTOCOL, libc::IPPROTO_TCP) && is(libc::SO_ACCEPTCONN, 0) {
        let _ = take(fd, receipt);
    }
}

/// Asks whoever has sent the connection behind `fd` for it.
fn take(fd: i32, receipt: Receipt) -> Option<()> {
    let stat = kernel::fstat(fd).ok()?;
    let (sender, answer, memory) =
        offers::names(stat.st_ino).find_map(|name| ask(fd, &stat, &name, receipt))?;
    hold(fd, answer, memory)?;
    // Until the sender has released it, this process could not pass it on to exactly one receiver.
    let _ = link::ask(sender.0, Message::Taken, &[], ANSWER_MS);
    Some(())
}

/// The sender at `name`, its answer, and the memory that came with it.
fn ask(
    fd: i32,
    stat: &libc::stat,
    name: &Name,
    receipt: Receipt,
) -> Option<(Owned, Message, Owned)> {
    let caller = link::connect(name).ok()?;
    let sender = kernel::peer_credentials(caller.0).ok()?.uid;
    if sender != stat.st_uid && sender != 0 && !process::is_own(sender) {
        return None;
    }
    let (inode, version) = (stat.st_ino, VERSION);
    let ask = match receipt {
        Receipt::Taken => Message::Take { inode, version },
        Receipt::LookedAt => Message::Look { inode, version },
    };
    let (answer, mut fds) = link::ask(caller.0, ask, &[fd], ANSWER_MS).ok()?;
    Some((caller, answer, fds.pop()?))
}

/// Makes `fd` the connection that was given.
fn hold(fd: i32, given: Message, memory: Owned) -> Option<()> {
    let Message::Give {
        slot,
        side,
        family,
        flags,
        linger_s,
    } = given
    else {
        return None;
    };
    // fork waits until the connection is whole.
    let _making = peer::making();
    let peer = enter(Segment::adopt(memory.into_raw()).ok()?, side as usize & 1)?;
    let slot = peer.segment.clamp(slot as usize);
    let word = &peer.segment.slot(slot).meta.holders[peer.side];
    let may = |now: Holders| !now.is_in_between() && now != Holders(0);
    holders::enter(word, peer.process_index(), may).then_some(())?;
    if peer.socket(slot).is_some() {
        // It has come back to a process that holds it still: another descriptor of the same.
        return share(fd, &peer, slot);
    }
    let index = sockets::allocate(
        family as i32,
        flags as u32 & sockets::HANDED_ON | sockets::SHARED | sockets::DIRTY,
    )?;
    let socket = sockets::get(index);
    socket.set(sockets::DUPLICATED, true);
    socket.linger_s.store(linger_s as u32, Ordering::Relaxed);
    options::adopt(fd, socket);
    revive(fd, index, &peer, slot);
    Some(())
}

fn share(fd: i32, peer: &Peer, slot: usize) -> Option<()> {
    let index = peer.socket(slot)?;
    let socket = sockets::get(index);
    socket.descriptors.fetch_add(1, Ordering::AcqRel);
    socket.set(sockets::DUPLICATED, true);
    table::set(fd, socket.entry(index));
    Some(())
}

/// The segment as this process takes part in it; entered and announced when it does not yet.
fn enter(segment: Segment, side: usize) -> Option<Arc<Peer>> {
    if let Some(known) = peer::find(segment.id(), side) {
        return Some(known);
    }
    let has_service = service::start().is_ok();
    let index = segment.enter(side, process::number())?;
    let peer = Peer::at_place(segment, side, index)?;
    match has_service {
        true => participants::say_adopted(&peer, index),
        // It may not be able to start a thread (RLIMIT_NPROC): others notice its end, as with a forked child.
        false => participants::greet_others(&peer, index),
    }
    Some(peer)
}
