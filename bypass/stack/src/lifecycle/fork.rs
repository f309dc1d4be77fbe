//! fork: the child holds every connection too, and says so before it exists.
//!
//! The parent takes a place and the bits for the child, so that no end looks abandoned at any
//! moment; it holds all locks across the fork, so that the child finds none taken.

use core::sync::atomic::Ordering;
use std::any::Any;
use std::sync::Arc;

use bypass_shm::layout::{CLOSING, QUEUED};
use bypass_sys::kernel;
use bypass_sys::thread::thread;

use super::{offers, serving, sharing};
use crate::listener::{self, participants};
use crate::operations::{connect, signals};
use crate::packets;
use crate::peer::{self, Peer};
use crate::process::table::{self, Entry};
use crate::process::{self, pool, sole, wakers};
use crate::service;
use crate::sockets;
use crate::stream::{self, content};
use crate::wait::epoll;

/// What the parent has prepared.
pub struct Prepared {
    number: u64,
    places: Vec<(Arc<Peer>, Option<usize>)>,
    #[allow(dead_code, reason = "held, not read")]
    locks: Vec<Box<dyn Any>>,
}

/// In the parent, before.
pub fn prepare() -> Option<Prepared> {
    if !process::is_started() {
        return None;
    }
    stream::announce_held_back();
    peer::note_fork();
    // Before any lock is held that the owner may want.
    sole::end_unless_ours();
    pool::empty();
    sockets::each(sharing::share_flags);
    sharing::share_listeners();
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
        Box::new(offers::hold()),
        Box::new(connect::hold()),
        Box::new(signals::hold()),
        Box::new(packets::hold()),
        Box::new(serving::hold()),
        Box::new(participants::hold()),
        Box::new(service::hold()),
        Box::new(epoll::hold()),
        Box::new(listener::hold()),
        Box::new(peer::hold()),
        Box::new(sockets::hold()),
        Box::new(wakers::hold()),
        Box::new(content::hold()),
        Box::new(pool::hold()),
    ];
    Some(Prepared {
        number,
        places,
        locks,
    })
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
        thread().forget();
        return;
    };
    drop(locks);
    process::become_child(number);
    serving::forget();
    participants::forget();
    service::forget();
    offers::forget_all();
    wakers::forget();
    connect::forget();
    epoll::orphan();
    signals::forget();
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
                participants::greet_others(&peer, index);
            }
            None => abandon(&peer),
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
