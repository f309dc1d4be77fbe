//! fork: the child holds every connection too, and says so before it exists.
//!
//! The parent takes a place and the bits for the child, so that no end looks abandoned at any
//! moment; it holds all locks across the fork, so that the child finds none taken. It also announces the
//! child to the other sides, over links that only the child keeps, and opens the rendezvous socket where
//! later processes find the child: if the child is killed before it does anything, or was never created
//! because fork failed, the other sides notice it like the end of any other process.

use core::sync::atomic::Ordering;
use std::any::Any;
use std::sync::{Arc, Weak};

use bypass_shm::holders::{self, Holders};
use bypass_shm::link;
use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;
use bypass_sys::sandbox::is_confined;
use bypass_sys::thread::thread;
use bypass_sys::waker::Name;

use super::{offers, serving, sharing};
use crate::datagrams;
use crate::listener::{self, participants};
use crate::operations::{connect, listen, shadow, signals};
use crate::packets;
use crate::peer::{self, Peer};
use crate::process::table::{self, Entry};
use crate::process::{self, pool, ports, sole, uring, wakers};
use crate::service::{self, Told};
use crate::sockets;
use crate::stream::{self, content};
use crate::wait::epoll;

/// State that the parent has prepared for the child.
pub struct Prepared {
    number: u64,
    /// Before the locks, as the links: in the parent they are closed before another thread can fork.
    rendezvous: Option<Owned>,
    places: Vec<Place>,
    #[allow(dead_code, reason = "held, not read")]
    locks: Vec<Box<dyn Any>>,
}

/// The child's part in a segment.
struct Place {
    peer: Arc<Peer>,
    /// Index among the processes of its side; None when all are taken, or when it needs none.
    index: Option<usize>,
    /// Connections that the child does not get, because as many hold them as can.
    lost: Vec<usize>,
    /// To the other side's processes, which know the child by them.
    links: Vec<Told>,
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
    sharing::share_listeners();
    // The child has them too, and no engine.
    packets::datagrams::leave_all();
    let number = kernel::random() | 1;
    // In the order in which operations nest them: connect starts the service, a set looks at its
    // listeners, and a listener that takes a segment enters it among the peers. The locks that are taken
    // before the places are taken ensure that no connection and no segment comes between the places and
    // the child.
    let mut locks: Vec<Box<dyn Any>> = vec![
        Box::new(connect::hold()),
        Box::new(packets::hold()),
        Box::new(peer::hold_making()),
        Box::new(offers::hold()),
    ];
    (0..table::used()).for_each(sharing::share_flags);
    sockets::each(sharing::share);
    // The engines stay the parent's.
    let mut peers = peer::all();
    peers.retain(|peer| !peer.is_relay);
    let (shared, private): (Vec<_>, Vec<_>) = peers.into_iter().partition(is_childs_too);
    let rendezvous = (!shared.is_empty()).then(|| link::open_rendezvous(&Name::of_process(number)));
    let shared = shared.into_iter().map(|peer| place(peer, number));
    let places = shared.chain(private.into_iter().map(no_place)).collect();
    locks.extend([
        Box::new(signals::hold()) as Box<dyn Any>,
        Box::new(serving::hold()),
        Box::new(participants::hold()),
        Box::new(service::hold()),
        Box::new(epoll::hold()),
        Box::new(datagrams::hold()),
        Box::new(listener::hold()),
        Box::new(peer::hold()),
        Box::new(sockets::hold()),
        Box::new(wakers::hold()),
        Box::new(content::hold()),
        Box::new(pool::hold()),
        Box::new(ports::hold()),
        Box::new(uring::hold()),
    ]);
    Some(Prepared {
        number,
        rendezvous: rendezvous.and_then(Result::ok),
        places,
        locks,
    })
}

/// Whether the child will hold something in a segment. One in which it holds nothing costs it neither a
/// place nor links: a child that accepts asks the other holders for the segments itself.
fn is_childs_too(peer: &Arc<Peer>) -> bool {
    peer.occupied().next().is_some() || peer.has_waiting_for_child()
}

fn no_place(peer: Arc<Peer>) -> Place {
    Place {
        peer,
        index: None,
        lost: Vec::new(),
        links: Vec::new(),
    }
}

fn place(peer: Arc<Peer>, number: u64) -> Place {
    let (index, lost) = enter(&peer, number);
    let links = index.map_or_else(Vec::new, |index| {
        participants::connect_participants(&peer, index)
    });
    Place {
        peer,
        index,
        lost,
        links,
    }
}

/// Takes a place for the child at every end that we hold; says at which there was none.
fn enter(peer: &Arc<Peer>, number: u64) -> (Option<usize>, Vec<usize>) {
    let mut slots: Vec<usize> = peer.occupied().collect();
    if peer.side == 1 && !slots.is_empty() {
        peer.note_forking();
    }
    let Some(index) = peer.segment.enter(peer.side, number) else {
        return (None, Vec::new());
    };
    peer.note_child(index, number);
    let own = peer.process_index();
    let is_ours = |now: Holders| !now.is_in_between() && now.has(own);
    slots.retain(|slot| {
        let word = &peer.segment.slot(*slot).meta.holders[peer.side];
        !holders::enter(word, index, is_ours) && is_ours(Holders(word.load(Ordering::SeqCst)))
    });
    (Some(index), slots)
}

/// Places that were taken for a child.
pub struct Taken {
    number: u64,
    places: Vec<(Weak<Peer>, usize)>,
}

/// In the parent, after: nothing is locked any more. Whether there is a child is not known yet.
pub fn parent(prepared: Prepared) -> Taken {
    let places = prepared.places.iter();
    let taken = places.filter_map(|place| Some((Arc::downgrade(&place.peer), place.index?)));
    Taken {
        number: prepared.number,
        places: taken.collect(),
    }
}

/// fork has failed: its place is free at once, and not when the other side has noticed.
pub fn undo(taken: Taken) {
    for (peer, index) in taken.places {
        let is_there = |peer: &Arc<Peer>| peer.segment.process(peer.side, index) == taken.number;
        if let Some(peer) = peer.upgrade().filter(is_there) {
            peer.take_back(index);
        }
    }
}

/// In the child: it is another process now.
pub fn child(prepared: Option<Prepared>) {
    let Some(Prepared {
        number,
        rendezvous,
        places,
        locks,
    }) = prepared
    else {
        thread().forget();
        return;
    };
    drop(locks);
    // Of sockets that another thread of the parent has made or closed meanwhile.
    pool::empty();
    pool::close_left_over();
    sockets::forget_calls();
    listener::follow_numbers();
    sockets::each(|_, socket| socket.set(sockets::DIRTY, true));
    process::become_child(number);
    serving::forget();
    participants::forget();
    listener::untold::forget();
    service::forget();
    if let Some(rendezvous) = rendezvous {
        service::take_rendezvous(rendezvous);
    }
    wakers::forget();
    connect::forget();
    ports::forget();
    listener::forget_attendance();
    epoll::orphan();
    signals::forget();
    datagrams::forget();
    packets::forget();
    for Place {
        peer,
        index,
        lost,
        links,
    } in places
    {
        match index {
            Some(index) => {
                // The free slots are the parent's to give away: the child connects by its own.
                if peer.side == 0 {
                    peer.is_stale.store(true, Ordering::SeqCst);
                }
                peer.become_process(index);
                forget_ending(&peer);
                peer.let_go_unknown();
                lose(&peer, lost);
                participants::keep_links(&peer, links);
            }
            None => abandon(&peer),
        }
    }
    offers::forget_all();
    free_left_over();
    listener::close_left_over();
    describe_listeners();
}

/// The page of statistics is the child's own. Connections come into it as they are used.
fn describe_listeners() {
    if is_confined() {
        return; // its filter need not allow to ask for their names
    }
    for fd in (0..table::used()).rev() {
        let entry = table::get(fd);
        if entry.kind() == table::Kind::Listener {
            listen::describe(fd, entry.index(), sockets::get(entry.index()));
        }
    }
}

/// No descriptor of the child means these connections: a thread of the parent was ending them, or works on them in a call
/// that goes on after their close, or they are on their way to another process. Their slots are free here, and their ends
/// are let go of with others that no socket means: by the child's own place, as the parent holds them still.
fn forget_ending(peer: &Peer) {
    for slot in peer.occupied() {
        let socket = peer.socket(slot).map(sockets::get);
        if socket.is_some_and(|socket| socket.descriptors.load(Ordering::Acquire) == 0) {
            vacate(peer, slot);
        }
    }
}

/// The numbers of sockets that no descriptor means are free for others.
fn free_left_over() {
    for index in sockets::left_over() {
        epoll::forget(index);
        stream::retire(sockets::get(index).peer.take());
        sockets::free(index);
    }
}

/// No socket of this process lives in `slot` any more.
fn vacate(peer: &Peer, slot: usize) {
    if let Some(index) = peer.socket(slot) {
        peer.set_socket(slot, None);
        stream::retire(sockets::get(index).peer.take());
    }
}

/// The child could not get a place, or needs none: only the parent holds the connections.
fn abandon(peer: &Arc<Peer>) {
    let lost: Vec<usize> = peer.occupied().collect();
    let has_lost = !lost.is_empty();
    lose(peer, lost);
    peer.is_stale.store(true, Ordering::SeqCst);
    // Connections accepted from it would be marked as the parent's. An attending process requests it again.
    for listener in listener::all() {
        listener.forget(peer);
    }
    peer.become_nobody();
    match has_lost {
        true => peer::forget(peer),
        // Nobody here looks at it without a reference, so it need not rest, which would take a service.
        false => peer::drop_reference(peer),
    }
}

/// The child does not hold these connections of its parent's: their numbers mean the kernel's sockets behind them.
fn lose(peer: &Arc<Peer>, lost: Vec<usize>) {
    if lost.is_empty() {
        return;
    }
    lost.into_iter().for_each(|slot| vacate(peer, slot));
    for fd in 0..table::used() {
        let entry = table::get(fd);
        if entry.kind() == table::Kind::Connected && stream::of_socket(entry.index()).is_none() {
            table::set(fd, Entry::KERNEL);
            let descriptors = &sockets::get(entry.index()).descriptors;
            descriptors.fetch_sub(1, Ordering::Relaxed);
            if shadow::is_connected(fd) {
                shadow::detach(fd);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bypass_shm::segment::Segment;

    use super::*;

    #[test]
    fn a_child_has_the_descriptors_of_its_parent_and_none_of_its_calls() {
        let _one_at_a_time = sockets::hold_in_test();
        let [open, closed, ending] = [(); 3].map(|()| {
            let index = sockets::allocate(libc::AF_INET, 0).expect("a socket");
            sockets::get(index).set(sockets::DIRTY, true);
            index
        });
        let fds = [1 << 18, 1 << 18 | 1];
        fds.iter().for_each(|fd| {
            table::set(*fd, sockets::get(open).entry(open));
        });
        let count = |index| sockets::get(index).descriptors.load(Ordering::Relaxed);
        // A call holds each; of one the number is closed, and a thread was ending the third.
        for (index, descriptors) in [(open, 3), (closed, 1), (ending, 0)] {
            let place = &sockets::get(index).descriptors;
            place.store(descriptors, Ordering::Relaxed);
        }
        let lives = [closed, ending].map(|index| sockets::get(index).life());
        sockets::forget_calls();
        assert_eq!([open, closed, ending].map(count), [2, 0, 0]);
        free_left_over();
        assert!(sockets::left_over().is_empty());
        let lives_now = [closed, ending].map(|index| sockets::get(index).life());
        assert!(lives
            .iter()
            .zip(lives_now)
            .all(|(before, now)| *before != now));
        let mut reused = [(); 2].map(|()| sockets::allocate(libc::AF_INET, 0));
        reused.sort_unstable();
        assert_eq!(reused, [Some(closed), Some(ending)]);
        fds.iter().for_each(|fd| table::show(*fd));
        [open, closed, ending].into_iter().for_each(sockets::free);
    }

    #[test]
    fn a_child_closes_numbers_that_a_thread_of_its_parent_was_closing() {
        let _one_at_a_time = sockets::hold_in_test();
        let socket = kernel::socket(libc::AF_INET, libc::SOCK_STREAM, 0).expect("a socket") as i32;
        // A number that no other test gets once it is closed.
        let fd = kernel::fcntl(socket, libc::F_DUPFD, 900).expect("a number") as i32;
        kernel::close(socket).expect("an open socket");
        table::set(fd, Entry::new(table::Kind::Pooled, 0, 0));
        pool::close_left_over();
        assert_eq!(table::get(fd), Entry::KERNEL);
        assert_eq!(
            kernel::fcntl(fd, libc::F_GETFD, 0).map(|_| ()),
            Err(libc::EBADF)
        );
    }

    #[test]
    fn a_child_holds_no_connection_that_a_thread_of_its_parent_was_ending() {
        let _one_at_a_time = sockets::hold_in_test();
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let peer = Peer::join(segment, 0, 1).expect("a place");
        let [(open, first), (ending, second)] = [1, 0].map(|descriptors| {
            let slot = peer.take_slot().expect("a slot");
            let index = sockets::allocate(libc::AF_INET, 0).expect("a socket");
            let socket = sockets::get(index);
            socket.descriptors.store(descriptors, Ordering::Release);
            let holders = &peer.segment.slot(slot).meta.holders[0];
            holders.store(peer.alone(), Ordering::SeqCst);
            peer.set_socket(slot, Some(index));
            (slot, index)
        });
        forget_ending(&peer);
        peer.let_go_unknown();
        assert!(peer.holds(open));
        assert!(!peer.holds(ending));
        peer::forget(&peer);
        sockets::free(first);
        sockets::free(second);
    }
}
