//! How a listener ends, and where the connections go that wait at it.

use core::sync::atomic::Ordering;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bypass_netlink::diag;
use bypass_shm::layout::RST;

use super::{changed, numbered, of, Listener, LISTENERS};
use crate::process::table::{self, Entry, Kind};
use crate::service;
use crate::sockets;

/// The last descriptor of a listener of this process is closed. A program may do this in the middle
/// of its work (nginx before it closes its idle connections, each of which may get a request
/// meanwhile), so whatever takes longer is left to the service.
pub fn close(number: usize) {
    let taken = LISTENERS
        .lock()
        .ok()
        .and_then(|mut all| all.get_mut(number)?.take());
    let Some(listener) = taken else { return };
    listener.unregister();
    changed();
    let peers = listener.peers();
    peers.iter().for_each(|peer| peer.publish_credits(0));
    if listener.others().is_empty() {
        // Clients must not wait for the service to notify them: a connect after this close is refused.
        peers.iter().for_each(|peer| peer.segment.close_queue());
    }
    service::close_rendezvous(listener.rendezvous, listener.inode, Some(listener.clone()));
    if !listener.has_waiting() {
        return;
    }
    let address = sockets::kernel_name(listener.fd.load(Ordering::Relaxed));
    if let (Some(address), Ok(mut closed)) = (address, CLOSED.lock()) {
        closed.push((address, listener));
    }
}

/// One of several numbers of a listener is closed: another stands for it.
pub fn closed_number(fd: i32, entry: Entry) {
    if entry.kind() != Kind::Listener {
        return;
    }
    let Some(listener) = of(sockets::get(entry.index())) else {
        return;
    };
    let mut closed = fd;
    // Once more where another thread has closed that one meanwhile, and found this one to be left.
    while let Some(other) = table::all(entry).next() {
        let swap = Ordering::SeqCst;
        let is_ours = listener.fd.compare_exchange(closed, other, swap, swap);
        if is_ours.is_err() || table::get(other) == entry {
            return;
        }
        closed = other;
    }
}

/// In a forked child: a thread of the parent was closing a number of each of these listeners, and others are left.
pub fn follow_numbers() {
    for (number, listener) in numbered() {
        if let Some(fd) = number_of(number) {
            listener.fd.store(fd, Ordering::SeqCst);
        }
    }
}

/// In a forked child: a thread of the parent was closing their last number, or making them. No number means them here.
pub fn close_left_over() {
    let numbers = numbered().into_iter().map(|(number, _)| number);
    numbers
        .filter(|number| number_of(*number).is_none())
        .for_each(close);
}

/// A descriptor that means this listener.
fn number_of(number: usize) -> Option<i32> {
    (0..table::used()).find(|fd| {
        let entry = table::get(*fd);
        let of = &sockets::get(entry.index()).listener;
        entry.kind() == Kind::Listener && of.load(Ordering::Relaxed) as usize == number
    })
}

/// Listeners that this process has closed while connections waited, with their addresses.
static CLOSED: Mutex<Vec<(SocketAddr, Arc<Listener>)>> = Mutex::new(Vec::new());

/// Locks it across a fork.
pub(super) fn hold() -> impl Sized {
    CLOSED.lock().ok()
}

/// After the kernel's close: what waited is settled soon.
pub fn settle_waiting() {
    let has_closed = CLOSED.lock().is_ok_and(|closed| !closed.is_empty());
    if has_closed && !service::wake() {
        settle();
    }
}

/// Connections that waited at closed listeners go to the other processes that hold the listener; if no
/// process listens any more, they are reset.
pub fn settle() {
    let closed = CLOSED
        .lock()
        .map(|mut closed| std::mem::take(&mut *closed))
        .unwrap_or_default();
    for (address, listener) in closed {
        for peer in listener.peers() {
            if peer.segment.queue().waiting() > 0 {
                listener.pass_on(&peer);
            }
        }
        let is_listening = diag::listening(address.port()).map_or(true, |found| {
            found.iter().any(|one| one.inode == listener.inode)
        });
        if is_listening {
            continue;
        }
        while let Some((peer, slot)) = listener.take_any() {
            peer.let_go(slot, RST);
        }
    }
}
