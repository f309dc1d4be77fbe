//! How processes watch each other's life: the end of a link tells of a death.

use core::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use bypass_shm::link::{self, Message, VERSION};
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;
use bypass_sys::waker::Name;

use super::{all, Listener};
use crate::peer::{self, Peer};
use crate::process;
use crate::service::{self, add_link, Role};

/// Holders are greeted so often in a row before others get a turn.
const GREETINGS: u32 = 16;

/// Segments whose other side could not be reached, and did not refuse either.
static UNSURE: Mutex<Vec<Arc<Peer>>> = Mutex::new(Vec::new());

/// Locks them across a fork.
pub fn hold() -> impl Sized {
    UNSURE.lock().ok()
}

/// In a forked child: they are the parent's care.
pub fn forget() {
    if let Ok(mut unsure) = UNSURE.lock() {
        unsure.clear();
    }
}

/// A link to `name`, a listener's rendezvous socket or that of a process of the other side. Names are free again when
/// their owner ends, and any user can take them: a user with whom we would share no memory counts as
/// nobody, unless `is_known`.
fn connect(
    peer: &Peer,
    name: &Name,
    is_known: impl Fn(&Listener, u32) -> bool,
) -> Result<Owned, i32> {
    let link = link::connect(name)?;
    let user = kernel::peer_credentials(link.0)?.uid;
    let knows = |listener: &Arc<Listener>| listener.uid == user || is_known(listener, user);
    if process::may_share_with(user) || of_peer(peer).iter().any(knows) {
        Ok(link)
    } else {
        Err(libc::ECONNREFUSED)
    }
}

/// A link to a process of the other side: a client, or a holder of the listener through which connections
/// of other hosts come. That one may have become a user whom we would not trust by itself.
fn connect_process(peer: &Peer, number: u64) -> Result<Owned, i32> {
    let is_carrier = |listener: &Listener, user| listener.is_carrier(number, user);
    connect(peer, &Name::of_process(number), is_carrier)
}

fn of_peer(peer: &Peer) -> Vec<Arc<Listener>> {
    let of = all().into_iter();
    of.filter(|listener| listener.inode == peer.inode).collect()
}

/// Tells the other side's processes who takes part at place `index` of our side; the link is kept,
/// because its end is how they learn of our death.
pub fn say_adopted(peer: &Arc<Peer>, index: usize) {
    let links = connect_participants(peer, index);
    // It ended before we could watch it.
    if links.is_empty() && peer.side == 1 {
        client_ended(peer);
    }
    for link in links {
        add_link(link, Role::Adopted(peer.clone()));
    }
}

/// Links to all processes of the other side.
pub fn connect_participants(peer: &Peer, index: usize) -> Vec<Owned> {
    let segment = &peer.segment;
    let message = Message::Adopted {
        segment: segment.id(),
        side: peer.side as u64,
        index: index as u64,
        process: segment.process(peer.side, index),
    };
    let mut links = Vec::new();
    for other in 0..bypass_shm::layout::PROCESSES {
        let number = segment.process(1 - peer.side, other);
        if number == 0 {
            continue;
        }
        // A server's worker may have become a user whom the client would not trust by itself.
        let link = match peer.side {
            0 => link::connect(&Name::of_process(number)),
            _ => connect_process(peer, number),
        };
        let Ok(link) = link else { continue };
        if link::send(link.0, message, &[]).is_ok() {
            links.push(link);
        }
    }
    links
}

/// Tries again whoever could not be reached; true when some still cannot.
pub fn retry_unsure() -> bool {
    let take = |unsure: &mut Vec<_>| std::mem::take(unsure);
    let unsure = UNSURE
        .lock()
        .map_or_else(|_| Vec::new(), |mut list| take(&mut list));
    for peer in &unsure {
        match peer.side {
            0 => holder_ended(peer),
            _ => client_ended(peer),
        }
    }
    UNSURE.lock().is_ok_and(|list| !list.is_empty())
}

/// The holder that we greeted is gone. Another one gets the segment, with what waits in it, as the
/// kernel's queue belongs to all who hold the socket; if nobody has the rendezvous socket, nobody will accept.
pub fn holder_ended(peer: &Arc<Peer>) {
    let hello = Message::Greet {
        version: VERSION,
        client: process::number(),
    };
    for _ in 0..GREETINGS {
        let link = match connect(peer, &Name::of_listener(peer.inode), |_, _| false) {
            Ok(link) => link,
            Err(libc::ECONNREFUSED) => return abandoned(peer),
            // The rendezvous socket is crowded, or we lack descriptors.
            Err(_) => break,
        };
        // It fails when who opened the rendezvous socket is just ending, too: another one will.
        if link::send(link.0, hello, &[peer.segment.fd()]).is_ok() {
            return add_link(link, Role::Greeting(peer.clone()));
        }
    }
    if let Ok(mut unsure) = UNSURE.lock() {
        unsure.push(peer.clone());
    }
}

/// Nobody will accept what waits in a segment.
pub fn abandoned(peer: &Arc<Peer>) {
    peer.is_stale.store(true, Ordering::SeqCst);
    peer.reset_unaccepted();
    if peer.occupied().next().is_none() {
        peer::forget(peer);
    }
}

/// A process of the other side has ended that we know by a link to its client.
pub fn client_ended(peer: &Arc<Peer>) {
    peer.is_stale.store(true, Ordering::SeqCst);
    for index in 0..bypass_shm::layout::PROCESSES {
        let number = peer.segment.process(0, index);
        if number == 0 {
            continue;
        }
        // Forked children of the client may live on; they are found at their own rendezvous sockets. A process
        // that is ending closes its link before its rendezvous socket: whoever answers is watched again.
        match connect_process(peer, number) {
            Ok(link) => add_link(link, Role::Adopted(peer.clone())),
            Err(libc::ECONNREFUSED) => {
                peer.reap(index, number);
                let listeners = of_peer(peer);
                listeners.iter().for_each(|one| one.strike_carrier(number));
            }
            // Its rendezvous socket is crowded or we lack descriptors: it may live.
            Err(_) => {
                if let Ok(mut unsure) = UNSURE.lock() {
                    unsure.push(peer.clone());
                }
                return;
            }
        }
    }
    let is_alone = (0..bypass_shm::layout::PROCESSES).all(|i| peer.segment.process(0, i) == 0);
    if !is_alone {
        return;
    }
    peer.reap_rest();
    for listener in of_peer(peer) {
        // What it left in the queue can still be accepted and read, as in the kernel.
        if peer.segment.queue().waiting() == 0 {
            listener.forget(peer);
        }
    }
    peer::forget(peer);
}

/// Tells the other side that this process takes part; the links are kept until a service watches them.
pub fn greet_others(peer: &Arc<Peer>, index: usize) {
    for link in connect_participants(peer, index) {
        service::keep_link(link, peer.clone());
    }
}
