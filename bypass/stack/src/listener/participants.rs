//! How processes monitor each other: when a link ends, the rendezvous socket shows whether its process has.

use core::sync::atomic::Ordering;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use bypass_shm::link::{self, Message, VERSION};
use bypass_stats::Reason;
use bypass_sys::descriptor::Owned;
use bypass_sys::waker::Name;
use bypass_sys::{directory, kernel};

use super::meetings::{self, Next};
use super::{all, Listener};
use crate::peer::{self, Peer};
use crate::process;
use crate::process::wakers::LEFT_TO_PROGRAM;
use crate::service::{self, add_link, add_told, Role, Told};
use crate::sockets;

/// Holders are greeted so often in a row before others get a turn.
const GREETINGS: u32 = 16;

/// A process that could not be reached, and did not refuse either.
enum Unsure {
    /// The other side of a segment.
    OtherSide(Arc<Peer>),
    /// One process of it: its place and number.
    Process(Arc<Peer>, usize, u64),
}

static UNSURE: Mutex<Vec<Unsure>> = Mutex::new(Vec::new());

/// Locks them across a fork.
pub fn hold() -> impl Sized {
    (UNSURE.lock().ok(), meetings::hold())
}

/// In a forked child: they are the parent's care.
pub fn forget() {
    if let Ok(mut unsure) = UNSURE.lock() {
        unsure.clear();
    }
    meetings::forget();
}

/// A link to `name`, a listener's rendezvous socket or that of a process of the other side. Names are free again when
/// their owner ends, and any user can take them: an owner with whom we would not share memory is treated as
/// absent, unless `is_known`.
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
/// of other hosts come. The holder may have changed to a user whom we would not trust otherwise, and so may a
/// server's worker.
fn connect_process(peer: &Peer, number: u64) -> Result<Owned, i32> {
    if peer.side == 0 {
        return link::connect(&Name::of_process(number));
    }
    let is_carrier = |listener: &Listener, user| listener.is_carrier(number, user);
    connect(peer, &Name::of_process(number), is_carrier)
}

fn of_peer(peer: &Peer) -> Vec<Arc<Listener>> {
    let of = all().into_iter();
    of.filter(|listener| listener.inode == peer.inode).collect()
}

/// Informs the other side's processes which process takes part at place `index` of our side; the link is
/// kept, because its end is how they learn of our death.
pub fn say_adopted(peer: &Arc<Peer>, index: usize) {
    watch(peer, connect_participants(peer, index));
}

/// Keeps the links to the other side's processes, for what their ends mean.
pub fn watch(peer: &Arc<Peer>, links: Vec<Told>) {
    // It ended before we could watch it.
    if links.is_empty() && peer.side == 1 {
        other_side_ended(peer);
    }
    for told in links {
        add_told(told, peer.clone());
    }
}

/// Links to all processes of the other side, which are informed of our process at place `index`. A hostile one may have
/// written itself into every place: it gets one link, and the last descriptors are left to the program.
pub fn connect_participants(peer: &Peer, index: usize) -> Vec<Told> {
    let mut links: Vec<Told> = Vec::new();
    let mut seen = HashSet::new();
    for (other, number) in peer.segment.processes(1 - peer.side) {
        if !seen.insert(number) {
            continue;
        }
        if !links.is_empty() && !kernel::has_descriptors_left(LEFT_TO_PROGRAM) {
            break;
        }
        let Ok(link) = connect_process(peer, number) else {
            continue;
        };
        if introduce(&link, peer, index).is_ok() {
            links.push(Told {
                link,
                index: other,
                process: number,
            });
        }
    }
    links
}

fn introduce(link: &Owned, peer: &Peer, index: usize) -> Result<(), i32> {
    let message = Message::Adopted {
        segment: peer.segment.id(),
        side: peer.side as u64,
        index: index as u64,
        process: peer.segment.process(peer.side, index),
    };
    link::send(link.0, message, &[])
}

/// Tries again whoever could not be reached; true when some still cannot.
pub fn retry_unsure() -> bool {
    let take = |unsure: &mut Vec<_>| std::mem::take(unsure);
    let unsure = UNSURE
        .lock()
        .map_or_else(|_| Vec::new(), |mut list| take(&mut list));
    for one in &unsure {
        match one {
            Unsure::OtherSide(peer) if peer.side == 0 && !peer.is_stale.load(Ordering::SeqCst) => {
                holder_ended(peer);
            }
            Unsure::OtherSide(peer) => other_side_ended(peer),
            Unsure::Process(peer, index, number) => link_ended(peer, *index, *number),
        }
    }
    UNSURE.lock().is_ok_and(|list| !list.is_empty())
}

/// The holder to which we introduced ourselves is gone. Another one gets the segment and the connections that wait
/// in it, just as the kernel's queue belongs to all holders of the socket; if no process has the rendezvous socket,
/// none will accept.
pub fn holder_ended(peer: &Arc<Peer>) {
    match greet_holder(peer) {
        Ok(()) => {}
        Err(libc::ECONNREFUSED) => abandoned(peer),
        // The rendezvous socket is crowded, or we lack descriptors.
        Err(_) => try_again(Unsure::OtherSide(peer.clone())),
    }
}

/// Gives a segment to a process that holds its listener now. ECONNREFUSED: there is none that may have it.
pub fn greet_holder(peer: &Arc<Peer>) -> Result<(), i32> {
    let link = greet(peer, process::number())?;
    add_link(link, Role::Greeting(peer.clone()));
    Ok(())
}

fn greet(peer: &Peer, client: u64) -> Result<Owned, i32> {
    let version = VERSION;
    let hello = Message::Greet { version, client };
    for _ in 0..GREETINGS {
        let link = connect(peer, &Name::of_listener(peer.inode), |_, _| false)?;
        // It fails when who opened the rendezvous socket is just ending, too: another one will.
        if link::send(link.0, hello, &[peer.segment.fd()]).is_ok() {
            return Ok(link);
        }
    }
    Err(libc::EAGAIN)
}

/// For a child of this process that has not begun to accept, and so is not a holder yet: it shares the rendezvous socket, which
/// this process serves no more.
pub fn leave_at_rendezvous(peer: &Peer) {
    let _ = greet(peer, peer.segment.client());
}

/// To be tried again soon, once for all that failed.
fn try_again(one: Unsure) {
    let key = |one: &Unsure| match one {
        Unsure::OtherSide(peer) => (Arc::as_ptr(peer), None),
        Unsure::Process(peer, index, number) => (Arc::as_ptr(peer), Some((*index, *number))),
    };
    if let Ok(mut unsure) = UNSURE.lock() {
        if !unsure.iter().any(|known| key(known) == key(&one)) {
            unsure.push(one);
        }
    }
}

/// The next holder does not take the segment. Where it only lacks a place, what waits there is offered again until a
/// process of the segment has ended.
pub fn refused(peer: &Arc<Peer>, reason: u64) {
    match reason == Reason::Limit as u64 {
        true => try_again(Unsure::OtherSide(peer.clone())),
        false => abandoned(peer),
    }
}

/// Nobody will accept what waits in a segment.
pub fn abandoned(peer: &Arc<Peer>) {
    peer.is_stale.store(true, Ordering::SeqCst);
    peer.reset_unaccepted(|index| sockets::get(index).has(sockets::OPENING));
    if peer.is_idle() {
        peer::forget(peer);
    }
}

/// A process of the other side has ended that we know by a link of ours.
pub fn other_side_ended(peer: &Arc<Peer>) {
    for (index, number) in peer.segment.processes(1 - peer.side) {
        // An existing link will already show its end: another link for each death would add up.
        if service::has_told(peer, number) {
            continue;
        }
        // Its forked children may live on; they are found at their own rendezvous sockets.
        match meet_again(peer, number) {
            Ok(link) => {
                let process = number;
                let told = Told {
                    link,
                    index,
                    process,
                };
                add_told(told, peer.clone());
            }
            // Its own link says that it lives, where it is not found yet.
            Err(libc::ECONNREFUSED) if service::is_linked(peer, index, number) => {}
            Err(libc::ECONNREFUSED) => {
                peer.reap(index, number);
                directory::remove_of(number);
                let listeners = of_peer(peer);
                listeners.iter().for_each(|one| one.strike_carrier(number));
            }
            Err(libc::ESRCH) => peer.reap(index, number),
            // Its rendezvous socket is crowded or we lack descriptors: it may live.
            Err(_) => return try_again(Unsure::OtherSide(peer.clone())),
        }
    }
    if peer.side == 1 {
        return process_ended(peer);
    }
    peer.wake_unheard();
    peer.is_stale.store(true, Ordering::SeqCst);
    if peer.is_alone() {
        holders_ended(peer);
    }
}

/// Whether the process that makes the connections of a segment takes part in it still. Children of it that have some of
/// them, too, come and go meanwhile.
fn has_maker(peer: &Peer) -> bool {
    peer.segment.index_of(0, peer.segment.client()).is_some()
}

/// The process that has ended may have offered a connection without waking the threads that wait for one.
fn look_again(peer: &Peer) {
    if peer.segment.queue().waiting() > 0 {
        of_peer(peer).iter().for_each(|one| one.wake_waiters());
    }
}

/// Another link to process `number` of the other side, of which one has ended. A process that is ending closes its links
/// before its rendezvous socket: the new one then ends soon, too. ESRCH: the number is that of a process which takes no part
/// there; who has ended may have written any into its place.
fn meet_again(peer: &Arc<Peer>, number: u64) -> Result<Owned, i32> {
    if number == process::number() && !peer::has_place(peer.segment.id(), 1 - peer.side) {
        // A thread of ours may have taken the place just now.
        return match meetings::next(peer, number) {
            Next::Meet | Next::Wait => Err(libc::EAGAIN),
            Next::Ended => Err(libc::ESRCH),
        };
    }
    let link = connect_process(peer, number)?;
    match meetings::next(peer, number) {
        Next::Meet => {}
        Next::Wait => return Err(libc::EAGAIN),
        Next::Ended => return Err(libc::ESRCH),
    }
    let _ = introduce(&link, peer, peer.process_index());
    Ok(link)
}

/// A link from process `number` at place `index` of the other side has ended. The process may live: after exec the new
/// image closes the links that were made for it, and its own ones may wait to be answered still. Only its rendezvous
/// socket is open as long as it lives.
pub fn link_ended(peer: &Arc<Peer>, index: usize, number: u64) {
    if service::is_linked(peer, index, number) {
        return;
    }
    if peer.segment.process(1 - peer.side, index) != number {
        // It has left, and its place may be another's.
        return process_ended(peer);
    }
    match meet_again(peer, number) {
        Ok(link) => add_link(link, Role::Participant(peer.clone(), index, number)),
        Err(libc::ECONNREFUSED) => {
            peer.reap(index, number);
            directory::remove_of(number);
            process_ended(peer);
        }
        Err(libc::ESRCH) => {
            peer.reap(index, number);
            process_ended(peer);
        }
        // Its rendezvous socket is crowded or we lack descriptors: it may live.
        Err(_) => try_again(Unsure::Process(peer.clone(), index, number)),
    }
}

/// A process of the other side has ended: it may have been the last one.
fn process_ended(peer: &Arc<Peer>) {
    peer.wake_unheard();
    if peer.side == 0 {
        return;
    }
    if !has_maker(peer) {
        peer.is_stale.store(true, Ordering::SeqCst);
    }
    if peer.is_alone() {
        return client_ended(peer);
    }
    // Only a link shows that a process lives: who has ended may have written the number in its place.
    if !service::is_watched(peer) {
        try_again(Unsure::OtherSide(peer.clone()));
    }
    look_again(peer);
}

/// No process of the client's side is left.
fn client_ended(peer: &Arc<Peer>) {
    peer.is_stale.store(true, Ordering::SeqCst);
    peer.reap_rest(sockets::waiting);
    for listener in of_peer(peer) {
        // What it left in the queue can still be accepted and read, as in the kernel.
        if peer.segment.queue().waiting() == 0 {
            listener.forget(peer);
        }
    }
    peer::forget(peer);
    look_again(peer);
}

/// No process is left that has accepted from a segment which another process had before. Connections that wait
/// in it can still be accepted if that process has ended too.
fn holders_ended(peer: &Arc<Peer>) {
    match peer.inode {
        0 => abandoned(peer),
        _ => holder_ended(peer),
    }
}

/// Informs the other side that this process takes part; the links are kept until a service watches them.
pub fn greet_others(peer: &Arc<Peer>, index: usize) {
    keep_links(peer, connect_participants(peer, index));
}

/// As [`greet_others`], with links that were made before.
pub fn keep_links(peer: &Arc<Peer>, links: Vec<Told>) {
    for told in links {
        service::keep_link(told, peer.clone());
    }
}

#[cfg(test)]
mod tests {
    use bypass_shm::segment::Segment;
    use bypass_sys::waker::Waker;

    use super::*;

    const PATIENCE: core::time::Duration = core::time::Duration::from_secs(60);

    /// Our link to the process at `index` ends.
    fn remove_link_to(peer: &Arc<Peer>, index: usize) {
        let is_link = |role: &Role| match role {
            Role::Adopted(of, at, _) => Arc::ptr_eq(of, peer) && *at == index,
            _ => false,
        };
        let link = service::roles().and_then(|roles| {
            let mut all = roles.iter();
            all.find(|(_, role)| is_link(role)).map(|(fd, _)| *fd)
        });
        link.map(service::remove);
    }

    /// The process at `index` has no rendezvous socket any more, and our link to it ends.
    fn ends(peer: &Arc<Peer>, index: usize) {
        let since = std::time::Instant::now();
        // A program that another test starts has the socket, too, until it calls exec.
        while peer.segment.process(0, index) != 0 && since.elapsed() < PATIENCE {
            remove_link_to(peer, index);
            other_side_ended(peer);
            std::thread::sleep(core::time::Duration::from_millis(1));
        }
        assert_eq!(peer.segment.process(0, index), 0);
    }

    #[test]
    fn a_client_goes_on_to_connect_after_the_end_of_its_child() {
        let (client, child) = (kernel::random() | 1, kernel::random() | 1);
        let segment = Segment::create(client, 64, 4096).expect("memory");
        let [at, childs] = [client, child].map(|one| segment.enter(0, one).expect("a place"));
        let rendezvous =
            [client, child].map(|one| link::open_rendezvous(&Name::of_process(one)).expect("free"));
        let peer = Peer::join(segment, 1, 1).expect("a place");
        let is_stale = || peer.is_stale.load(Ordering::SeqCst);
        say_adopted(&peer, peer.process_index());
        let [of_client, of_child] = rendezvous;
        drop(of_child);
        ends(&peer, childs);
        assert!(!is_stale());
        drop(of_client);
        ends(&peer, at);
        assert!(is_stale());
    }

    #[test]
    fn a_client_that_stands_in_every_place_gets_one_link() {
        let client = kernel::random() | 1;
        let segment = Segment::create(client, 64, 4096).expect("memory");
        while segment.enter(0, client).is_some() {}
        let _rendezvous = link::open_rendezvous(&Name::of_process(client)).expect("free");
        let peer = Peer::join(segment, 1, 1).expect("a place");
        say_adopted(&peer, peer.process_index());
        other_side_ended(&peer);
        let is_link =
            |role: &&Role| matches!(role, Role::Adopted(of, ..) if Arc::ptr_eq(of, &peer));
        let roles = service::roles().expect("no panic");
        assert_eq!(roles.values().filter(is_link).count(), 1);
    }

    #[test]
    fn a_process_that_takes_no_part_is_not_met_for_ever() {
        let number = kernel::random() | 1;
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let index = segment.enter(0, number).expect("a place");
        // It lives, and closes every link of a segment that it does not know.
        let rendezvous = link::open_rendezvous(&Name::of_process(number)).expect("free");
        let peer = Peer::join(segment, 1, 1).expect("a place");
        let since = std::time::Instant::now();
        while peer.segment.process(0, index) != 0 && since.elapsed() < PATIENCE / 4 {
            other_side_ended(&peer);
            drop(link::answer(rendezvous.0));
            remove_link_to(&peer, index);
            std::thread::sleep(core::time::Duration::from_millis(1));
        }
        assert_eq!(peer.segment.process(0, index), 0);
        assert!(peer::is_forgotten(&peer));
    }

    #[test]
    fn a_holder_that_lacks_a_place_is_asked_again_and_resets_nothing() {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let peer = Peer::join(segment, 0, 1).expect("a place");
        let is_asked = || {
            let is_it =
                |one: &Unsure| matches!(one, Unsure::OtherSide(of) if Arc::ptr_eq(of, &peer));
            UNSURE.lock().expect("no panic").iter().any(is_it)
        };
        refused(&peer, Reason::Limit as u64);
        assert!(is_asked() && !peer.is_stale.load(Ordering::SeqCst));
        UNSURE.lock().expect("no panic").clear();
        refused(&peer, Reason::OtherUser as u64);
        assert!(!is_asked() && peer.is_stale.load(Ordering::SeqCst));
    }

    #[test]
    fn a_segment_is_kept_for_a_connect_that_waits_when_the_listener_closes() {
        let segment = Segment::create(1, 64, 4096).expect("memory");
        let peer = Peer::join(segment, 0, 1).expect("a place");
        let entering = peer.begin_entering();
        let slot = peer.take_slot().expect("a slot");
        abandoned(&peer);
        assert!(!peer::is_forgotten(&peer));
        peer.set_socket(slot, Some(5));
        drop(entering);
        assert!(!peer::is_forgotten(&peer));
        // The connection ends.
        peer.set_socket(slot, None);
        peer::retire(peer.clone());
        assert!(peer::is_forgotten(&peer));
    }

    #[test]
    fn a_thread_that_an_ended_process_was_to_wake_is_woken() {
        const NUMBER: u32 = 0x7fff_0001;
        let waker = Waker::create(process::number(), NUMBER).expect("a waker");
        let segment = Segment::create(1, 64, 4096).expect("memory");
        segment.enter(0, 1).expect("a place");
        let peer = Peer::join(segment, 1, 1).expect("a place");
        let index = peer.claim_ready_list(NUMBER);
        let ready_list = peer.segment.ready_list(1, index.expect("room"));
        ready_list.sleep();
        process_ended(&peer);
        assert!(!waker.take());
        assert!(ready_list.take_sleeper());
        process_ended(&peer);
        assert!(waker.take());
    }
}
