//! fork: the child holds every connection too, and says so before it exists.
//!
//! The parent takes a place and the bits for the child, so that no end looks abandoned at any
//! moment; it holds all locks across the fork, so that the child finds none taken.

use std::any::Any;
use std::sync::{Arc, Mutex};

use core::sync::atomic::Ordering;

use bypass_shm::layout::{CLOSING, QUEUED};
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;

use crate::peer::{self, Peer};
use crate::table::{self, Entry};
use crate::{
    connect, content, epoll, listener, packets, passing, pool, process, service, sockets, sole,
    stream, wait,
};

/// What the parent has prepared.
pub struct Prepared {
    number: u64,
    places: Vec<(Arc<Peer>, Option<usize>)>,
    #[allow(dead_code, reason = "held, not read")]
    locks: Vec<Box<dyn Any>>,
}

/// Links of a child to the other sides, until its service watches them.
static LINKS: Mutex<Vec<(Owned, Arc<Peer>)>> = Mutex::new(Vec::new());

/// In the parent, before.
pub fn prepare() -> Option<Prepared> {
    if !process::is_started() {
        return None;
    }
    stream::announce_held_back();
    // Before any lock is held that the owner may want.
    sole::end_unless_ours();
    pool::empty();
    sockets::each(share_flags);
    share_listeners();
    let number = kernel::random() | 1;
    // Before the places are taken: no connection comes between them and the child.
    let making = peer::hold_making();
    let places = peer::all()
        .into_iter()
        // The engines stay the parent's.
        .filter(|peer| !peer.is_relay)
        .map(|peer| (peer.clone(), enter(&peer, number)))
        .collect();
    // In the order in which operations nest them: connect starts the service, a set looks at its
    // listeners, and a listener that takes a segment enters it among the peers.
    let locks: Vec<Box<dyn Any>> = vec![
        Box::new(making),
        Box::new(passing::hold()),
        Box::new(connect::hold()),
        Box::new(packets::hold()),
        Box::new(service::hold()),
        Box::new(epoll::hold()),
        Box::new(listener::hold()),
        Box::new(peer::hold()),
        Box::new(sockets::hold()),
        Box::new(wait::hold()),
        Box::new(content::hold()),
        Box::new(pool::hold()),
        Box::new(LINKS.lock().ok()),
    ];
    Some(Prepared {
        number,
        places,
        locks,
    })
}

/// O_NONBLOCK belongs to the file, which the child will hold too: from now on it is where both look.
pub fn share_flags(index: usize, socket: &sockets::Socket) {
    sole::end_unless_ours();
    if socket.descriptors.load(Ordering::Relaxed) == 0 || socket.has(sockets::SHARED) {
        return;
    }
    let is_nonblocking = socket.has(sockets::NONBLOCK);
    if let Some(stream) = stream::of_socket(index) {
        let shut = socket.flags.load(Ordering::Relaxed) & sockets::SHUT;
        let value = if is_nonblocking {
            libc::O_NONBLOCK as u32 | shut
        } else {
            shut
        };
        stream.shared_flags().store(value, Ordering::SeqCst);
        socket.set(sockets::SHARED, true);
    }
}

/// For listeners it is in the kernel. One that does not block already is left alone: programs do
/// not make it block again.
fn share_listeners() {
    for listener in listener::all() {
        share_listener(table::get(listener.fd.load(Ordering::Relaxed)));
    }
}

/// Another process will hold the listener behind `entry` too.
pub fn share_listener(entry: Entry) {
    let socket = sockets::get(entry.index());
    if entry.kind() == table::Kind::Listener && !socket.has(sockets::NONBLOCK) {
        socket.set(sockets::SHARED, true);
    }
}

/// Takes a place for the child at every end that we hold.
fn enter(peer: &Arc<Peer>, number: u64) -> Option<usize> {
    let slots: Vec<usize> = peer.occupied().collect();
    if slots.is_empty() && peer.side == 0 {
        return None;
    }
    let index = peer.segment.enter(peer.side, number)?;
    for slot in slots {
        let holders = &peer.segment.slot(slot).meta.holders[peer.side];
        let add = |now: u32| {
            (now & (QUEUED | CLOSING) == 0 && now & peer.bit() != 0).then_some(now | 1 << index)
        };
        let _ = holders.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
    }
    Some(index)
}

/// In the child: it is another process now.
pub fn child(prepared: Option<Prepared>) {
    let Some(Prepared {
        number,
        places,
        locks,
    }) = prepared
    else {
        crate::thread().forget();
        return;
    };
    drop(locks);
    process::become_child(number);
    service::forget();
    passing::forget_all();
    wait::forget();
    connect::forget();
    epoll::orphan();
    packets::forget();
    for (peer, index) in places {
        match index {
            Some(index) => {
                // The free slots are the parent's to give away: the child connects by its own.
                if peer.side == 0 {
                    peer.is_stale.store(true, Ordering::SeqCst);
                }
                peer.become_process(index);
                peer.let_go_unknown();
                greet_others(&peer, index);
            }
            None => abandon(&peer),
        }
    }
}

/// Tells the other side that this process takes part.
pub fn greet_others(peer: &Arc<Peer>, index: usize) {
    for link in service::knock_participants(peer, index) {
        table::hide(link.0);
        if let Ok(mut links) = LINKS.lock() {
            links.push((link, peer.clone()));
        }
    }
}

/// There was no place for the child: the connections stay the parent's alone.
fn abandon(peer: &Arc<Peer>) {
    for slot in peer.occupied() {
        let Some(index) = peer.socket(slot) else {
            continue;
        };
        peer.set_socket(slot, None);
        epoll::forget(index);
        stream::retire(sockets::get(index).peer.take());
    }
    peer.is_stale.store(true, Ordering::SeqCst);
    for fd in 0..table::NUMBERS_MAX.min(65_536) as i32 {
        let entry = table::get(fd);
        if entry.kind() == table::Kind::Connected && stream::of_socket(entry.index()).is_none() {
            table::set(fd, Entry::KERNEL);
        }
    }
}

/// Whether a child's links wait for its service.
pub fn has_links() -> bool {
    LINKS.lock().is_ok_and(|links| !links.is_empty())
}

/// Gives the links to the service.
pub fn take_links() -> Vec<(Owned, Arc<Peer>)> {
    LINKS
        .lock()
        .map(|mut links| std::mem::take(&mut *links))
        .unwrap_or_default()
}
